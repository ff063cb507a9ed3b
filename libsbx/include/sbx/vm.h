/*
 * Virtual machines through libvirt: one struct sbx_vm a process, shared by its threads.
 *
 * Domains are transient and belong to an installation through a UUID in their metadata, never by
 * name alone. The domain's UUID is the machine's id. Nothing here knows the database.
 *
 * Time: every libvirt call runs in a thread of this module's own pool and has a time-out; a call that
 * hangs costs one pool thread and gives SBX_E_TIMEOUT, and what it would have done may still happen.
 * Connections are opened when needed, and again after libvirtd went away; while none can be had, calls
 * give SBX_E_UNAVAILABLE.
 *
 * Files: a machine's volumes belong to the uid of its slot, mode 0600, and its QEMU runs under that
 * uid. Domains carry relabel='no', so libvirt never changes the owner of a file: what machines share
 * (kernel, initramfs, root image) stays root's.
 */
#ifndef SBX_VM_H
#define SBX_VM_H

#include "sbx/buf.h"
#include "sbx/slot.h"

#define SBX_UUID_SIZE 37u

enum sbx_accel { SBX_ACCEL_TCG, SBX_ACCEL_KVM };
const char *sbx_accel_name(enum sbx_accel accel); /* "tcg", "kvm" */

/*
 * Which acceleration works here. wanted: "auto", "kvm" or "tcg"; cpuinfo: text of /proc/cpuinfo;
 * kvm_opens: whether /dev/kvm can be opened, which alone proves nothing. reason is for people.
 * Fails when kvm is demanded and cannot work.
 */
#define SBX_ACCEL_REASON_SIZE 200
int sbx_accel_pick(const char *wanted, struct sbx_str cpuinfo, bool kvm_opens, enum sbx_accel *ret,
	char reason[SBX_ACCEL_REASON_SIZE], struct sbx_err *err) SBX_MUST_CHECK;
/* The same with what this host has. */
int sbx_accel_detect(const char *wanted, enum sbx_accel *ret, char reason[SBX_ACCEL_REASON_SIZE], struct sbx_err *err)
	SBX_MUST_CHECK;

/* What a host's machines are built on, chosen once an installation and kept: saved machines need it. */
struct sbx_vm_profile {
	char emulator[128];
	char machine[32];              /* versioned: pc-q35-7.2 */
	char cpu_tcg[64], cpu_kvm[64]; /* named models; cpu_kvm is empty where KVM cannot be used */
};
/* The newest pc-q35-X.Y of a capabilities text. */
int sbx_vm_pick_machine(const char *capabilities_xml, char ret[32], struct sbx_err *err) SBX_MUST_CHECK;
/* The first model of our preference that domain capabilities call usable. */
int sbx_vm_pick_cpu(const char *domain_capabilities_xml, enum sbx_accel accel, char ret[64], struct sbx_err *err)
	SBX_MUST_CHECK;

/* Everything a domain is made from. */
struct sbx_vm_spec {
	const char *id; /* uuid */
	const char *instance, *instance_id;
	int64_t generation;
	enum sbx_accel accel;
	const struct sbx_vm_profile *profile;
	int64_t vcpu, memory_mib;
	const char *kernel, *initramfs, *cmdline, *root_image; /* of the image unit: shared, read only */
	const char *volume_dir, *log_dir;
	const struct sbx_slot *slot;
	uint32_t gid; /* of QEMU: the group that may open /dev/kvm, or the uid's own number */
	bool user_network;
};
/* Pure: the domain XML of a spec. */
void sbx_vm_xml(const struct sbx_vm_spec *spec, struct sbx_buf *out);
/* The value of an attribute in a start tag, unescaped not at all; false when it is not there. */
bool sbx_vm_xml_attr(const char *xml, const char *name, struct sbx_str *ret);

struct sbx_vm_conf {
	const char *uri;      /* qemu:///system */
	const char *instance; /* name of the installation: names domains and the pool */
	const char *instance_id;
	const char *volume_dir; /* owned by this process's user, mode 0711 */
	const char *log_dir;
	int threads; /* libvirt calls at a time, hung ones included */
};

/* Called from the event thread when a domain stopped; must not call libvirt. id: its uuid. */
typedef void (*sbx_vm_stopped_fn)(void *arg, const char *id);

struct sbx_vm;
/* Starts the event loop (once a process, for its life); connects only when first used. */
struct sbx_vm *sbx_vm_new(const struct sbx_vm_conf *conf, sbx_vm_stopped_fn on_stopped, void *arg, struct sbx_err *err);
void sbx_vm_free(struct sbx_vm *vm); /* NULL ok */

/* Whether libvirt answers; also sees to it that events come, so it is called now and then. */
int sbx_vm_ping(struct sbx_vm *vm, struct sbx_err *err) SBX_MUST_CHECK;
/* Raised by each new connection for events: a change means that some may have been missed. */
uint64_t sbx_vm_connections(struct sbx_vm *vm);

/*
 * Reads the profile from path, or chooses it from what libvirt offers and writes it there.
 * kvm: also a CPU model for KVM is needed.
 */
int sbx_vm_profile_get(struct sbx_vm *vm, const char *path, bool kvm, struct sbx_vm_profile *ret, struct sbx_err *err)
	SBX_MUST_CHECK;

/*
 * Makes the machine's volumes: <id>.qcow2 laid over root_image, and <id>.conf, a small raw drive that
 * holds config. What an earlier attempt left is replaced. Both belong to uid, mode 0600.
 */
int sbx_vm_volumes_make(struct sbx_vm *vm, const char *id, int64_t disk_gib, const char *root_image, uint32_t uid,
	uint32_t gid, struct sbx_str config, struct sbx_err *err) SBX_MUST_CHECK;
/* Removes volumes and serial logs of a machine; what is gone already is fine. */
int sbx_vm_files_drop(struct sbx_vm *vm, const char *id, struct sbx_err *err) SBX_MUST_CHECK;
/* Ids of the machines that have a volume or a serial log here; freed with free(). */
int sbx_vm_files_list(struct sbx_vm *vm, char (**ret)[SBX_UUID_SIZE], size_t *ret_n, struct sbx_err *err)
	SBX_MUST_CHECK;
#define SBX_VM_CONFIG_MAX 65536u

int sbx_vm_create(struct sbx_vm *vm, const struct sbx_vm_spec *spec, struct sbx_err *err) SBX_MUST_CHECK;
/* Ends a domain of ours; one that is gone is fine. A domain that is not ours is left and is an error. */
int sbx_vm_destroy(struct sbx_vm *vm, const char *id, struct sbx_err *err) SBX_MUST_CHECK;

struct sbx_vm_domain {
	char id[SBX_UUID_SIZE];
	int64_t generation;
	bool is_running;
	bool is_paused;
	int64_t unknown_since_us; /* wall clock; 0: never marked */
};
/* The domains of this installation, in no order; freed with free(). */
int sbx_vm_list(struct sbx_vm *vm, struct sbx_vm_domain **ret, size_t *ret_n, struct sbx_err *err) SBX_MUST_CHECK;
/* One of them, or SBX_E_NOT_FOUND. */
int sbx_vm_get(struct sbx_vm *vm, const char *id, struct sbx_vm_domain *ret, struct sbx_err *err) SBX_MUST_CHECK;
/* Pauses a domain and notes in it since when it is unknown. */
int sbx_vm_mark_unknown(struct sbx_vm *vm, const char *id, int64_t since_us, struct sbx_err *err) SBX_MUST_CHECK;
/* Takes the note off and lets it run on. */
int sbx_vm_mark_known(struct sbx_vm *vm, const char *id, struct sbx_err *err) SBX_MUST_CHECK;

#endif
