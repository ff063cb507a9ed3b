/*
 * Volumes of machines, in a transient directory pool of this installation.
 *
 * libvirtd makes the files with owner and mode as the volume's XML says, so this process needs no
 * rights over them. It owns the directory, so what libvirt does not list any more can be unlinked.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <libvirt/virterror.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sbx/fd.h"
#include "vm/vm_priv.h"

static const char *const log_suffixes[] = { SBX_VM_LOG_SUFFIX, SBX_VM_LOG_SUFFIX ".0", SBX_VM_LOG_SUFFIX ".1",
	SBX_VM_LOG_SUFFIX ".2" };

static void pool_auto(virStoragePoolPtr *pool)
{
	if (*pool)
		virStoragePoolFree(*pool);
}

static void volume_auto(virStorageVolPtr *vol)
{
	if (*vol)
		virStorageVolFree(*vol);
}

static bool last_error_is(int code)
{
	const virError *e = virGetLastError();

	return e && e->code == code;
}

static void element(struct sbx_buf *b, const char *name, const char *value)
{
	sbx_buf_addc(b, '<');
	sbx_buf_addz(b, name);
	sbx_buf_addc(b, '>');
	sbx_buf_xml(b, sbx_str_of(value));
	sbx_buf_addz(b, "</");
	sbx_buf_addz(b, name);
	sbx_buf_addz(b, ">");
}

/* The pool, made when it is not there (first use, or the host was rebooted). */
static virStoragePoolPtr pool_open(struct sbx_vm *vm, virConnectPtr conn, struct sbx_err *err)
{
	const struct sbx_vm_conf *conf = vm_conf(vm);
	sbx_auto_buf struct sbx_buf name, xml;
	virStoragePoolPtr pool;

	sbx_buf_init(&name, 256);
	sbx_buf_addz(&name, "sbx-");
	sbx_buf_addz(&name, conf->instance);
	pool = virStoragePoolLookupByName(conn, sbx_buf_z(&name));
	sbx_buf_init(&xml, 8192);
	if (!pool && last_error_is(VIR_ERR_NO_STORAGE_POOL)) {
		sbx_buf_addz(&xml, "<pool type='dir'>");
		element(&xml, "name", sbx_buf_z(&name));
		sbx_buf_addz(&xml, "<target>");
		element(&xml, "path", conf->volume_dir);
		sbx_buf_addz(&xml, "</target></pool>");
		pool = virStoragePoolCreateXML(conn, sbx_buf_z(&xml), 0);
		/* Another thread was faster. */
		if (!pool)
			pool = virStoragePoolLookupByName(conn, sbx_buf_z(&name));
	}
	if (!pool)
		VM_FAIL(err, "opening the storage pool");
	return pool;
}

static bool volume_name(const char *id, const char *suffix, char name[80])
{
	return (size_t)snprintf(name, 80, "%s%s", id, suffix) < 80;
}

static bool file_path(const char *dir, const char *id, const char *suffix, char path[512])
{
	return (size_t)snprintf(path, 512, "%s/%s%s", dir, id, suffix) < 512;
}

static int file_unlink(const char *dir, const char *id, const char *suffix, struct sbx_err *err)
{
	char path[512];

	if (!file_path(dir, id, suffix, path))
		return SBX_FAIL(err, SBX_E_INTERNAL, "A path under %s is too long", dir);
	if (unlink(path) < 0 && errno != ENOENT)
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot remove %s", path);
	return 0;
}

static int volume_drop(
	struct sbx_vm *vm, virStoragePoolPtr pool, const char *id, const char *suffix, struct sbx_err *err)
{
	SBX_CLEANUP(volume_auto) virStorageVolPtr vol = NULL;
	char name[80];

	if (!volume_name(id, suffix, name))
		return SBX_FAIL(err, SBX_E_INTERNAL, "The name of a volume is too long");
	vol = virStorageVolLookupByName(pool, name);
	if (!vol && !last_error_is(VIR_ERR_NO_STORAGE_VOL))
		return VM_FAIL(err, "looking up a volume");
	if (vol && virStorageVolDelete(vol, 0) < 0 && !last_error_is(VIR_ERR_NO_STORAGE_VOL)) {
		/* libvirt fails when the file went away under it: a refresh makes it forget the volume. */
		if (virStoragePoolRefresh(pool, 0) < 0)
			return VM_FAIL(err, "deleting a volume");
	}
	return file_unlink(vm_conf(vm)->volume_dir, id, suffix, err);
}

static void permissions(struct sbx_buf *b, const struct vm_args *a)
{
	sbx_buf_addf(b,
		"<permissions><mode>0600</mode><owner>%" PRIu32 "</owner><group>%" PRIu32 "</group></permissions>",
		a->uid, a->gid);
}

static virStorageVolPtr volume_create(virStoragePoolPtr pool, struct sbx_buf *xml, struct sbx_err *err)
{
	virStorageVolPtr vol;

	if (sbx_buf_ok(xml, err) < 0)
		return NULL;
	vol = virStorageVolCreateXML(pool, sbx_buf_z(xml), 0);
	if (!vol)
		VM_FAIL(err, "making a volume");
	return vol;
}

/* a->text: root image; a->number: size in GiB. */
static int overlay_make(virStoragePoolPtr pool, const struct vm_args *a, struct sbx_err *err)
{
	SBX_CLEANUP(volume_auto) virStorageVolPtr vol = NULL;
	sbx_auto_buf struct sbx_buf xml;
	char name[80];

	sbx_buf_init(&xml, 8192);
	volume_name(a->id, SBX_VM_OVERLAY_SUFFIX, name);
	sbx_buf_addz(&xml, "<volume>");
	element(&xml, "name", name);
	sbx_buf_addf(&xml, "<capacity unit='GiB'>%" PRId64 "</capacity><allocation>0</allocation>", a->number);
	sbx_buf_addz(&xml, "<target><format type='qcow2'/>");
	permissions(&xml, a);
	sbx_buf_addz(&xml, "<compat>1.1</compat><features><lazy_refcounts/></features></target><backingStore>");
	element(&xml, "path", a->text);
	sbx_buf_addz(&xml, "<format type='raw'/></backingStore></volume>");
	vol = volume_create(pool, &xml, err);
	return vol ? 0 : -1;
}

static int upload(virConnectPtr conn, virStorageVolPtr vol, struct sbx_str data, struct sbx_err *err)
{
	virStreamPtr stream = virStreamNew(conn, 0);
	int rc = 0;

	if (!stream || virStorageVolUpload(vol, stream, 0, data.n, 0) < 0) {
		rc = VM_FAIL(err, "opening the config drive");
		if (stream)
			virStreamFree(stream);
		return rc;
	}
	while (data.n > 0 && rc == 0) {
		int n = virStreamSend(stream, data.p, data.n);

		if (n < 0)
			rc = VM_FAIL(err, "writing the config drive");
		else
			data = (struct sbx_str){ data.p + n, data.n - (size_t)n };
	}
	if (rc < 0)
		virStreamAbort(stream);
	else if (virStreamFinish(stream) < 0)
		rc = VM_FAIL(err, "writing the config drive");
	virStreamFree(stream);
	return rc;
}

static int config_make(virConnectPtr conn, virStoragePoolPtr pool, const struct vm_args *a, struct sbx_err *err)
{
	SBX_CLEANUP(volume_auto) virStorageVolPtr vol = NULL;
	sbx_auto_buf struct sbx_buf xml;
	char name[80];

	sbx_buf_init(&xml, 8192);
	volume_name(a->id, SBX_VM_CONFIG_SUFFIX, name);
	sbx_buf_addz(&xml, "<volume>");
	element(&xml, "name", name);
	sbx_buf_addf(&xml, "<capacity unit='bytes'>%u</capacity><target><format type='raw'/>", SBX_VM_CONFIG_MAX);
	permissions(&xml, a);
	sbx_buf_addz(&xml, "</target></volume>");
	vol = volume_create(pool, &xml, err);
	return vol ? upload(conn, vol, sbx_buf_str(&a->data), err) : -1;
}

/* Between steps: the caller may have given up on one that hung. */
static int go_on(struct vm_args *a, struct sbx_err *err)
{
	return atomic_load(&a->is_abandoned) ? SBX_FAIL(err, SBX_E_TIMEOUT, "Given up") : 0;
}

static int make_call(struct sbx_vm *vm, virConnectPtr conn, struct vm_args *a, struct sbx_err *err)
{
	SBX_CLEANUP(pool_auto) virStoragePoolPtr pool = pool_open(vm, conn, err);

	if (!pool || go_on(a, err) < 0 || volume_drop(vm, pool, a->id, SBX_VM_OVERLAY_SUFFIX, err) < 0 ||
		volume_drop(vm, pool, a->id, SBX_VM_CONFIG_SUFFIX, err) < 0 || go_on(a, err) < 0 ||
		overlay_make(pool, a, err) < 0 || go_on(a, err) < 0)
		return -1;
	return config_make(conn, pool, a, err);
}

int sbx_vm_volumes_make(struct sbx_vm *vm, const char *id, int64_t disk_gib, const char *root_image, uint32_t uid,
	uint32_t gid, struct sbx_str config, struct sbx_err *err)
{
	vm_auto_args struct vm_args *a = vm_args_new(id);

	if (config.n > SBX_VM_CONFIG_MAX)
		return SBX_FAIL(err, SBX_E_INTERNAL, "The configuration of a machine is larger than its drive");
	if (a)
		a->text = strdup(root_image);
	if (!a || !a->text)
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	a->number = disk_gib;
	a->uid = uid;
	a->gid = gid;
	sbx_buf_adds(&a->data, config);
	if (sbx_buf_ok(&a->data, err) < 0)
		return -1;
	return vm_call(vm, make_call, a, SBX_VM_CALL_MS, err);
}

static int drop_call(struct sbx_vm *vm, virConnectPtr conn, struct vm_args *a, struct sbx_err *err)
{
	SBX_CLEANUP(pool_auto) virStoragePoolPtr pool = pool_open(vm, conn, err);

	if (!pool || go_on(a, err) < 0 || volume_drop(vm, pool, a->id, SBX_VM_OVERLAY_SUFFIX, err) < 0 ||
		go_on(a, err) < 0)
		return -1;
	return volume_drop(vm, pool, a->id, SBX_VM_CONFIG_SUFFIX, err);
}

int sbx_vm_files_drop(struct sbx_vm *vm, const char *id, struct sbx_err *err)
{
	vm_auto_args struct vm_args *a = vm_args_new(id);

	if (vm_call(vm, drop_call, a, SBX_VM_CALL_MS, err) < 0)
		return -1;
	for (size_t i = 0; i < SBX_ARRAY_LEN(log_suffixes); i++)
		if (file_unlink(vm_conf(vm)->log_dir, id, log_suffixes[i], err) < 0)
			return -1;
	return 0;
}

/* A name that begins with a uuid followed by one of our suffixes. */
static bool is_machine_file(const char *name)
{
	const char *suffix = name + SBX_UUID_SIZE - 1;

	if (strnlen(name, SBX_UUID_SIZE) < SBX_UUID_SIZE)
		return false;
	for (size_t i = 0; i < SBX_UUID_SIZE - 1; i++) {
		bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;

		if (is_dash ? name[i] != '-' : !strchr("0123456789abcdef", name[i]))
			return false;
	}
	if (strcmp(suffix, SBX_VM_OVERLAY_SUFFIX) == 0 || strcmp(suffix, SBX_VM_CONFIG_SUFFIX) == 0)
		return true;
	for (size_t i = 0; i < SBX_ARRAY_LEN(log_suffixes); i++)
		if (strcmp(suffix, log_suffixes[i]) == 0)
			return true;
	return false;
}

static int by_id(const void *a, const void *b)
{
	return strcmp(a, b);
}

struct ids {
	char (*id)[SBX_UUID_SIZE];
	size_t n, cap;
};

static int ids_add(struct ids *ids, const char *name, struct sbx_err *err)
{
	if (ids->n == ids->cap) {
		size_t cap = ids->cap ? ids->cap * 2 : 64;
		void *p = reallocarray(ids->id, cap, sizeof(*ids->id));

		if (!p)
			return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
		ids->id = p;
		ids->cap = cap;
	}
	memcpy(ids->id[ids->n], name, SBX_UUID_SIZE - 1);
	ids->id[ids->n][SBX_UUID_SIZE - 1] = 0;
	ids->n++;
	return 0;
}

static int scan(const char *path, struct ids *ids, struct sbx_err *err)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	int rc = 0;

	if (!dir)
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot list %s", path);
	while (rc == 0 && (entry = readdir(dir)))
		if (is_machine_file(entry->d_name))
			rc = ids_add(ids, entry->d_name, err);
	closedir(dir);
	return rc;
}

int sbx_vm_files_list(struct sbx_vm *vm, char (**ret)[SBX_UUID_SIZE], size_t *ret_n, struct sbx_err *err)
{
	struct ids ids = { NULL, 0, 0 };
	size_t n = 0;

	if (scan(vm_conf(vm)->volume_dir, &ids, err) < 0 || scan(vm_conf(vm)->log_dir, &ids, err) < 0) {
		free(ids.id);
		return -1;
	}
	if (ids.n)
		qsort(ids.id, ids.n, sizeof(*ids.id), by_id);
	for (size_t i = 0; i < ids.n; i++)
		if (n == 0 || strcmp(ids.id[n - 1], ids.id[i]) != 0)
			memmove(ids.id[n++], ids.id[i], SBX_UUID_SIZE);
	*ret = ids.id;
	*ret_n = n;
	return 0;
}
