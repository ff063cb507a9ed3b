/*
 * Choosing machine type and CPU models. libvirt's capability texts are searched for the few tags we
 * need rather than parsed: they come from libvirtd, and a tag that is not found is an error.
 */
#include <stdio.h>
#include <string.h>

#include "sbx/fd.h"
#include "sbx/vm.h"
#include "vm/vm_priv.h"

/* Best first. What Haswell has (AVX2, BMI) many programs expect today; Nehalem is x86-64-v2. */
static const char *const kvm_models[] = {
	"Haswell-noTSX-IBRS",
	"Haswell-noTSX",
	"EPYC",
	"SandyBridge",
	"Westmere",
	"Nehalem",
	"qemu64",
};
/* Emulated instructions cost time: the plain model boots faster than what has AVX. */
static const char *const tcg_models[] = { "Nehalem", "Westmere", "qemu64" };

int sbx_vm_pick_machine(const char *capabilities_xml, char ret[32], struct sbx_err *err)
{
	static const char mark[] = "pc-q35-";
	int64_t best = -1;
	struct sbx_str best_text = { NULL, 0 };

	for (const char *p = capabilities_xml; (p = strstr(p, mark)); p++) {
		size_t n = strspn(p + sizeof(mark) - 1, "0123456789.");
		struct sbx_str rest = { p + sizeof(mark) - 1, n }, major;
		int64_t major_n, minor_n;

		if (!sbx_str_split(&rest, '.', &major) || !sbx_str_i64(major, 0, 9999, &major_n) ||
			!sbx_str_i64(rest, 0, 9999, &minor_n) || major_n * 10000 + minor_n <= best)
			continue;
		best = major_n * 10000 + minor_n;
		best_text = (struct sbx_str){ p, sizeof(mark) - 1 + n };
	}
	if (best < 0 || !sbx_str_copyz(best_text, ret, 32))
		return SBX_FAIL(err, SBX_E_UNAVAILABLE,
			"libvirt offers no x86_64 machine of type q35: install qemu-system-x86");
	return 0;
}

static bool model_usable(const char *xml, const char *model)
{
	size_t n = strlen(model);

	for (const char *p = xml; (p = strstr(p, "<model ")); p++) {
		const char *end = strchr(p, '>');
		struct sbx_str usable;

		if (end && strncmp(end + 1, model, n) == 0 && end[1 + n] == '<' &&
			sbx_vm_xml_attr(p, "usable", &usable) && sbx_str_eqz(usable, "yes"))
			return true;
	}
	return false;
}

int sbx_vm_pick_cpu(const char *domain_capabilities_xml, enum sbx_accel accel, char ret[64], struct sbx_err *err)
{
	const char *const *models = accel == SBX_ACCEL_KVM ? kvm_models : tcg_models;
	size_t n = accel == SBX_ACCEL_KVM ? SBX_ARRAY_LEN(kvm_models) : SBX_ARRAY_LEN(tcg_models);

	for (size_t i = 0; i < n; i++) {
		if (!model_usable(domain_capabilities_xml, models[i]))
			continue;
		snprintf(ret, 64, "%s", models[i]);
		return 0;
	}
	return SBX_FAIL(err, SBX_E_UNAVAILABLE, "libvirt offers none of the CPU models that boxes use under %s",
		sbx_accel_name(accel));
}

static void put_line(struct sbx_buf *b, const char *key, const char *value)
{
	sbx_buf_addz(b, key);
	sbx_buf_addc(b, '=');
	sbx_buf_addz(b, value);
	sbx_buf_addc(b, '\n');
}

int sbx_vm_profile_save(const char *path, const struct sbx_vm_profile *p, struct sbx_err *err)
{
	sbx_auto_buf struct sbx_buf b;

	sbx_buf_init(&b, 4096);
	put_line(&b, "emulator", p->emulator);
	put_line(&b, "machine", p->machine);
	put_line(&b, "cpu_tcg", p->cpu_tcg);
	put_line(&b, "cpu_kvm", p->cpu_kvm);
	if (sbx_buf_ok(&b, err) < 0)
		return -1;
	return sbx_fd_replace(path, sbx_buf_str(&b), 0644, true, err);
}

int sbx_vm_profile_load(const char *path, struct sbx_vm_profile *ret, struct sbx_err *err)
{
	sbx_auto_buf struct sbx_buf b;
	struct sbx_vm_profile p = { 0 };
	struct sbx_str rest, line, key;
	const struct {
		const char *key;
		char *dst;
		size_t cap;
	} rows[] = {
		{ "emulator", p.emulator, sizeof(p.emulator) },
		{ "machine", p.machine, sizeof(p.machine) },
		{ "cpu_tcg", p.cpu_tcg, sizeof(p.cpu_tcg) },
		{ "cpu_kvm", p.cpu_kvm, sizeof(p.cpu_kvm) },
	};

	sbx_buf_init(&b, 4096);
	if (sbx_fd_slurp(path, &b, err) < 0)
		return -1;
	rest = sbx_buf_str(&b);
	while (sbx_str_split(&rest, '\n', &line)) {
		if (!sbx_str_split(&line, '=', &key))
			continue;
		for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++)
			if (sbx_str_eqz(key, rows[i].key) && !sbx_str_copyz(line, rows[i].dst, rows[i].cap))
				return SBX_FAIL(
					err, SBX_E_INVALID, "%s: the value of %s is too long", path, rows[i].key);
	}
	if (!p.emulator[0] || !p.machine[0] || !p.cpu_tcg[0])
		return SBX_FAIL(err, SBX_E_INVALID, "%s is not complete: remove it, and it is made again", path);
	*ret = p;
	return 0;
}
