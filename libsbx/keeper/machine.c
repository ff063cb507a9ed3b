/*
 * From a row of the database to what a machine is made from: domain spec and config drive.
 */
#include <string.h>

#include "keeper/keeper_priv.h"
#include "sbx/enc.h"
#include "sbx/json.h"

/* What the image's kernel is told; everything that differs between machines is on the config drive. */
static const char cmdline[] = "console=ttyS0 quiet loglevel=3 panic=-1 cryptomgr.notests=1 pcie_ports=compat"
			      " random.trust_cpu=on rdinit=/init";
/*
 * Emulated code does not speculate, so what guards against speculation only costs there: a switch of page
 * tables at every system call, and a tenth of the boot.
 */
static const char cmdline_tcg[] = " mitigations=off";

int keeper_spec(struct keeper *k, const struct op *op, struct sbx_slot *slot, struct sbx_vm_profile *profile,
	struct sbx_arena *a, struct sbx_vm_spec *ret, struct sbx_err *err)
{
	if (sbx_slot_at(&k->space, op->slot_n, slot, err) < 0 || keeper_profile(k, profile, err) < 0)
		return -1;
	*ret = (struct sbx_vm_spec){
		.id = op->machine,
		.instance = k->conf->instance,
		.instance_id = k->instance_id,
		.generation = op->generation,
		.accel = k->accel,
		.profile = profile,
		.vcpu = op->vcpu,
		.memory_mib = op->memory_mib,
		.kernel = sbx_arena_printf(a, "%s/%s/kernel", k->image_dir, op->unit),
		.initramfs = sbx_arena_printf(a, "%s/%s/initrd", k->image_dir, op->unit),
		.cmdline = sbx_arena_printf(a, "%s%s", cmdline, k->accel == SBX_ACCEL_TCG ? cmdline_tcg : ""),
		.root_image = sbx_arena_printf(a, "%s/%s/root.img", k->image_dir, op->unit),
		.volume_dir = k->volume_dir,
		.log_dir = k->log_dir,
		.slot = slot,
		.gid = k->accel == SBX_ACCEL_KVM ? k->kvm_gid : slot->uid,
		.user_network = op->user_network,
	};
	if (!ret->kernel || !ret->cmdline || !ret->initramfs || !ret->root_image)
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	return 0;
}

static void nic(
	struct sbx_jw *w, const char *key, const char *mac, const char *guest, const char *host, const char *resolver)
{
	sbx_jw_obj(w, key);
	sbx_jw_z(w, "mac", mac);
	sbx_jw_z(w, "address", guest);
	sbx_jw_z(w, "host", host);
	if (resolver) {
		sbx_jw_arr(w, "dns");
		sbx_jw_z(w, NULL, resolver);
		sbx_jw_end(w);
	}
	sbx_jw_end(w);
}

/* Bytes of a uuid's text. */
static int machine_bytes(const char *uuid, uint8_t ret[SBX_MACHINE_ID_SIZE], struct sbx_err *err)
{
	char hex[33];
	size_t n = 0;

	for (const char *p = uuid; *p && n < sizeof(hex) - 1; p++)
		if (*p != '-')
			hex[n++] = *p;
	hex[n] = 0;
	if (!sbx_hex_decode((struct sbx_str){ hex, n }, ret, SBX_MACHINE_ID_SIZE))
		return SBX_FAIL(err, SBX_E_INTERNAL, "'%s' is not the id of a machine", uuid);
	return 0;
}

int keeper_config(
	struct keeper *k, const struct op *op, const struct sbx_slot *slot, struct sbx_buf *out, struct sbx_err *err)
{
	uint8_t machine[SBX_MACHINE_ID_SIZE], key[SBX_BOXD_KEY_SIZE];
	char machine_hex[2 * sizeof(machine) + 1], key_hex[2 * sizeof(key) + 1];
	char hostname[sizeof("box-") + 12];
	struct sbx_jw w;

	if (machine_bytes(op->machine, machine, err) < 0 ||
		sbx_keyring_boxd_key(k->keys, (int)op->kid, machine, (uint32_t)op->epoch, key, err) < 0)
		return -1;
	sbx_hexz(machine, sizeof(machine), machine_hex);
	sbx_hexz(key, sizeof(key), key_hex);
	memcpy(hostname, "box-", 4);
	memcpy(hostname + 4, machine_hex, 12);
	hostname[16] = 0;
	sbx_jw_init(&w, out);
	sbx_jw_obj(&w, NULL);
	sbx_jw_i(&w, "version", 1);
	sbx_jw_z(&w, "machineId", machine_hex);
	sbx_jw_i(&w, "epoch", op->epoch);
	sbx_jw_i(&w, "kid", op->kid);
	sbx_jw_z(&w, "key", key_hex);
	sbx_jw_z(&w, "hostname", hostname);
	nic(&w, "control", slot->control_mac, slot->control_guest, slot->control_host, NULL);
	if (op->user_network)
		nic(&w, "user", slot->user_mac, slot->user_guest, slot->user_host, k->space.resolver);
	sbx_jw_end(&w);
	explicit_bzero(key, sizeof(key));
	explicit_bzero(key_hex, sizeof(key_hex));
	return sbx_buf_ok(out, err);
}
