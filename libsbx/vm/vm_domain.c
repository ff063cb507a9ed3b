/*
 * Domains: create, end, list, and the marks of those that nobody knows.
 */
#include <inttypes.h>
#include <libvirt/libvirt-qemu.h>
#include <libvirt/virterror.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sbx/fd.h"
#include "vm/vm_priv.h"

void vm_domain_auto(virDomainPtr *dom)
{
	if (*dom)
		virDomainFree(*dom);
}

static bool attr_i64(const char *xml, const char *name, int64_t *ret)
{
	struct sbx_str v;

	return sbx_vm_xml_attr(xml, name, &v) && sbx_str_i64(v, 0, INT64_MAX, ret);
}

/* 1: ours, described in ret; 0: not ours; -1: error, also when it vanished (SBX_E_NOT_FOUND). */
static int describe(const struct sbx_vm *vm, virDomainPtr dom, struct sbx_vm_domain *ret, struct sbx_err *err)
{
	struct sbx_vm_domain d = { 0 };
	struct sbx_str owner;
	virDomainInfo info;
	char *mark;
	char *meta = virDomainGetMetadata(dom, VIR_DOMAIN_METADATA_ELEMENT, SBX_VM_XMLNS, 0);
	bool is_ours;

	if (!meta) {
		const virError *e = virGetLastError();

		return e && e->code == VIR_ERR_NO_DOMAIN_METADATA ? 0 : VM_FAIL(err, "reading a domain's metadata");
	}
	is_ours = sbx_vm_xml_attr(meta, "instance", &owner) && sbx_str_eqz(owner, vm_conf(vm)->instance_id) &&
		attr_i64(meta, "generation", &d.generation);
	free(meta);
	if (!is_ours)
		return 0;
	if (virDomainGetUUIDString(dom, d.id) < 0 || virDomainGetInfo(dom, &info) < 0)
		return VM_FAIL(err, "reading a domain's state");
	d.is_running = info.state == VIR_DOMAIN_RUNNING || info.state == VIR_DOMAIN_BLOCKED;
	d.is_paused = info.state == VIR_DOMAIN_PAUSED || info.state == VIR_DOMAIN_PMSUSPENDED;
	mark = virDomainGetMetadata(dom, VIR_DOMAIN_METADATA_ELEMENT, SBX_VM_XMLNS_UNKNOWN, 0);
	if (mark)
		attr_i64(mark, "since_us", &d.unknown_since_us);
	free(mark);
	*ret = d;
	return 1;
}

virDomainPtr vm_domain_ours(
	struct sbx_vm *vm, virConnectPtr conn, const char *id, struct sbx_vm_domain *ret, struct sbx_err *err)
{
	virDomainPtr dom = virDomainLookupByUUIDString(conn, id);
	int rc;

	if (!dom) {
		VM_FAIL(err, "looking up a domain");
		return NULL;
	}
	rc = describe(vm, dom, ret, err);
	if (rc == 1)
		return dom;
	virDomainFree(dom);
	if (rc == 0)
		SBX_FAIL(err, SBX_E_CONFLICT, "Domain %s does not belong to this installation: it is left alone", id);
	return NULL;
}

static int create_call(struct sbx_vm *vm, virConnectPtr conn, struct vm_args *a, struct sbx_err *err)
{
	vm_auto_domain virDomainPtr dom = virDomainCreateXML(conn, a->text, 0);

	(void)vm;
	return dom ? 0 : VM_FAIL(err, "starting the machine");
}

int sbx_vm_create(struct sbx_vm *vm, const struct sbx_vm_spec *spec, struct sbx_err *err)
{
	vm_auto_args struct vm_args *a = vm_args_new(spec->id);
	sbx_auto_buf struct sbx_buf xml;

	sbx_buf_init(&xml, 65536);
	sbx_vm_xml(spec, &xml);
	if (!a || sbx_buf_ok(&xml, err) < 0)
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	a->text = strdup(sbx_buf_z(&xml));
	if (!a->text)
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	return vm_call(vm, create_call, a, SBX_VM_CREATE_MS, err);
}

static int destroy_call(struct sbx_vm *vm, virConnectPtr conn, struct vm_args *a, struct sbx_err *err)
{
	struct sbx_err e = SBX_ERR_INIT;
	struct sbx_vm_domain d;
	vm_auto_domain virDomainPtr dom = vm_domain_ours(vm, conn, a->id, &d, &e);

	if (!dom && e.code == SBX_E_NOT_FOUND)
		return 0;
	if (!dom)
		return vm_pass(err, &e);
	if (virDomainDestroy(dom) < 0) {
		const virError *last = virGetLastError();

		/* It ended by itself between the two calls. */
		if (last && (last->code == VIR_ERR_NO_DOMAIN || last->code == VIR_ERR_OPERATION_INVALID))
			return 0;
		return VM_FAIL(err, "ending the machine");
	}
	return 0;
}

int sbx_vm_destroy(struct sbx_vm *vm, const char *id, struct sbx_err *err)
{
	vm_auto_args struct vm_args *a = vm_args_new(id);

	return vm_call(vm, destroy_call, a, SBX_VM_DESTROY_MS, err);
}

static int list_call(struct sbx_vm *vm, virConnectPtr conn, struct vm_args *a, struct sbx_err *err)
{
	virDomainPtr *doms = NULL;
	int n = virConnectListAllDomains(conn, &doms, VIR_CONNECT_LIST_DOMAINS_ACTIVE);
	int rc = 0;

	if (n < 0)
		return VM_FAIL(err, "listing domains");
	a->domains = calloc((size_t)n + 1, sizeof(*a->domains));
	if (!a->domains)
		rc = SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	for (int i = 0; i < n; i++) {
		struct sbx_err e = SBX_ERR_INIT;

		if (rc == 0) {
			int is_ours = describe(vm, doms[i], &a->domains[a->domains_n], &e);

			if (is_ours == 1)
				a->domains_n++;
			/* One that ended meanwhile is no failure of the list. */
			if (is_ours < 0 && e.code != SBX_E_NOT_FOUND)
				rc = vm_pass(err, &e);
		}
		virDomainFree(doms[i]);
	}
	free(doms);
	return rc;
}

int sbx_vm_list(struct sbx_vm *vm, struct sbx_vm_domain **ret, size_t *ret_n, struct sbx_err *err)
{
	vm_auto_args struct vm_args *a = vm_args_new(NULL);

	if (vm_call(vm, list_call, a, SBX_VM_CALL_MS, err) < 0)
		return -1;
	*ret = SBX_STEAL(a->domains);
	*ret_n = a->domains_n;
	return 0;
}

static int get_call(struct sbx_vm *vm, virConnectPtr conn, struct vm_args *a, struct sbx_err *err)
{
	vm_auto_domain virDomainPtr dom = NULL;

	a->domains = calloc(1, sizeof(*a->domains));
	if (!a->domains)
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	dom = vm_domain_ours(vm, conn, a->id, a->domains, err);
	return dom ? 0 : -1;
}

int sbx_vm_get(struct sbx_vm *vm, const char *id, struct sbx_vm_domain *ret, struct sbx_err *err)
{
	vm_auto_args struct vm_args *a = vm_args_new(id);

	if (vm_call(vm, get_call, a, SBX_VM_CALL_MS, err) < 0)
		return -1;
	*ret = a->domains[0];
	return 0;
}

/*
 * libvirt 9.0 puts the addresses of taps on again when it resumes, and fails because they are there.
 * QEMU itself is asked then; libvirt follows its event.
 */
static int resume(virDomainPtr dom)
{
	char *answer = NULL;
	int rc = virDomainResume(dom);

	if (rc < 0)
		rc = virDomainQemuMonitorCommand(dom, "{\"execute\":\"cont\"}", &answer, 0);
	free(answer);
	return rc;
}

/* a->number: since when, or 0 to take the mark off. */
static int mark_call(struct sbx_vm *vm, virConnectPtr conn, struct vm_args *a, struct sbx_err *err)
{
	struct sbx_vm_domain d;
	vm_auto_domain virDomainPtr dom = vm_domain_ours(vm, conn, a->id, &d, err);
	char xml[64];

	if (!dom)
		return -1;
	snprintf(xml, sizeof(xml), "<unknown since_us='%" PRId64 "'/>", a->number);
	/* The note goes on first and comes off last: a domain that was paused never lacks it. */
	if (a->number &&
		virDomainSetMetadata(dom, VIR_DOMAIN_METADATA_ELEMENT, xml, "sbxu", SBX_VM_XMLNS_UNKNOWN,
			VIR_DOMAIN_AFFECT_LIVE) < 0)
		return VM_FAIL(err, "marking a domain");
	if (a->number && d.is_running && virDomainSuspend(dom) < 0)
		return VM_FAIL(err, "pausing a domain");
	if (!a->number && d.is_paused && resume(dom) < 0)
		return VM_FAIL(err, "resuming a domain");
	if (!a->number &&
		virDomainSetMetadata(dom, VIR_DOMAIN_METADATA_ELEMENT, NULL, "sbxu", SBX_VM_XMLNS_UNKNOWN,
			VIR_DOMAIN_AFFECT_LIVE) < 0)
		return VM_FAIL(err, "unmarking a domain");
	return 0;
}

int sbx_vm_mark_unknown(struct sbx_vm *vm, const char *id, int64_t since_us, struct sbx_err *err)
{
	vm_auto_args struct vm_args *a = vm_args_new(id);

	if (a)
		a->number = since_us;
	return vm_call(vm, mark_call, a, SBX_VM_CALL_MS, err);
}

int sbx_vm_mark_known(struct sbx_vm *vm, const char *id, struct sbx_err *err)
{
	vm_auto_args struct vm_args *a = vm_args_new(id);

	return vm_call(vm, mark_call, a, SBX_VM_CALL_MS, err);
}

/* a->number: whether a CPU model for KVM is wanted too. The profile goes into a->data. */
static int profile_call(struct sbx_vm *vm, virConnectPtr conn, struct vm_args *a, struct sbx_err *err)
{
	struct sbx_vm_profile p = { .emulator = "/usr/bin/qemu-system-x86_64" };
	char *caps = virConnectGetCapabilities(conn);
	int rc;

	(void)vm;
	if (!caps)
		return VM_FAIL(err, "asking for capabilities");
	rc = sbx_vm_pick_machine(caps, p.machine, err);
	free(caps);
	for (int kvm = 0; rc == 0 && kvm <= (int)a->number; kvm++) {
		caps = virConnectGetDomainCapabilities(conn, p.emulator, "x86_64", p.machine, kvm ? "kvm" : "qemu", 0);
		if (!caps)
			return VM_FAIL(err, "asking for domain capabilities");
		rc = sbx_vm_pick_cpu(caps, kvm ? SBX_ACCEL_KVM : SBX_ACCEL_TCG, kvm ? p.cpu_kvm : p.cpu_tcg, err);
		free(caps);
	}
	if (rc < 0)
		return -1;
	sbx_buf_add(&a->data, &p, sizeof(p));
	return sbx_buf_ok(&a->data, err);
}

int sbx_vm_profile_get(struct sbx_vm *vm, const char *path, bool kvm, struct sbx_vm_profile *ret, struct sbx_err *err)
{
	vm_auto_args struct vm_args *a = vm_args_new(NULL);
	struct sbx_err e = SBX_ERR_INIT;
	struct sbx_vm_profile chosen, kept;
	bool has_kept = sbx_vm_profile_load(path, &kept, &e) == 0;

	if (has_kept && (!kvm || kept.cpu_kvm[0])) {
		*ret = kept;
		return 0;
	}
	if (!has_kept && e.code != SBX_E_NOT_FOUND)
		return vm_pass(err, &e);
	if (a)
		a->number = kvm;
	if (vm_call(vm, profile_call, a, SBX_VM_CREATE_MS, err) < 0)
		return -1;
	memcpy(&chosen, a->data.p, sizeof(chosen));
	/* A host that gained KVM keeps the machine type that its saved machines were made with. */
	if (has_kept) {
		memcpy(kept.cpu_kvm, chosen.cpu_kvm, sizeof(kept.cpu_kvm));
		chosen = kept;
	}
	if (sbx_vm_profile_save(path, &chosen, err) < 0)
		return -1;
	*ret = chosen;
	return 0;
}
