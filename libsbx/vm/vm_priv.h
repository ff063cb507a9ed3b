/*
 * What the files of vm/ share: names, the call pool, and small helpers over libvirt.
 */
#ifndef SBX_VM_PRIV_H
#define SBX_VM_PRIV_H

#include <libvirt/libvirt.h>
#include <pthread.h>
#include <stdatomic.h>

#include "sbx/vm.h"

#define SBX_VM_XMLNS "urn:x-sbx:machine:1"
#define SBX_VM_XMLNS_UNKNOWN "urn:x-sbx:unknown:1"
#define SBX_VM_QBOOT "/usr/share/qemu/qboot.rom"
#define SBX_VM_OVERLAY_SUFFIX ".qcow2"
#define SBX_VM_CONFIG_SUFFIX ".conf"
#define SBX_VM_LOG_SUFFIX ".log"

/* Time-outs of libvirt calls. Creating includes libvirt's first probing of QEMU. */
#define SBX_VM_CONNECT_MS 15000
#define SBX_VM_CREATE_MS 60000
#define SBX_VM_DESTROY_MS 30000
#define SBX_VM_CALL_MS 15000

/*
 * Arguments and results of one call. They outlive a caller that gave up waiting, so they are counted:
 * the caller holds one reference, the pool another while the call is queued or runs. Results may be
 * read only after vm_call() gave 0.
 */
struct vm_args {
	atomic_int refs;
	atomic_bool is_abandoned; /* the caller gave up: a call of several steps begins no further one */
	char id[SBX_UUID_SIZE];
	char *text, *more;
	struct sbx_buf data;
	int64_t number;
	uint32_t uid, gid;
	/* results */
	char *out;
	struct sbx_vm_domain *domains;
	size_t domains_n;
};
struct vm_args *vm_args_new(const char *id); /* NULL: out of memory */
void vm_args_unref(struct vm_args *a);
void vm_args_auto(struct vm_args **a);
#define vm_auto_args SBX_CLEANUP(vm_args_auto)

typedef int (*vm_call_fn)(struct sbx_vm *vm, virConnectPtr conn, struct vm_args *a, struct sbx_err *err);
/* Runs fn in the pool with a live connection, waiting at most timeout_ms. */
int vm_call(struct sbx_vm *vm, vm_call_fn fn, struct vm_args *a, int timeout_ms, struct sbx_err *err);

/* Copies an error whole into one that is not set yet; gives -1. */
int vm_pass(struct sbx_err *err, const struct sbx_err *from);
/* Sets err from libvirt's error of this thread. */
int vm_fail(struct sbx_err *err, const char *where, const char *what);
#define VM_FAIL(err, what) vm_fail((err), __func__, (what))

const struct sbx_vm_conf *vm_conf(const struct sbx_vm *vm);
/* The domain of that id when it is ours: NULL with SBX_E_NOT_FOUND, or SBX_E_CONFLICT for a stranger's. */
virDomainPtr vm_domain_ours(
	struct sbx_vm *vm, virConnectPtr conn, const char *id, struct sbx_vm_domain *ret, struct sbx_err *err);
void vm_domain_auto(virDomainPtr *dom);
#define vm_auto_domain SBX_CLEANUP(vm_domain_auto)

int sbx_vm_profile_save(const char *path, const struct sbx_vm_profile *p, struct sbx_err *err) SBX_MUST_CHECK;
int sbx_vm_profile_load(const char *path, struct sbx_vm_profile *ret, struct sbx_err *err) SBX_MUST_CHECK;

#endif
