/*
 * A machine's spec as libvirt's domain XML.
 *
 * The machine has what a box needs and no more: every device is named with its PCI address on the root
 * bus (no root ports to probe, and a saved machine finds the same addresses), no USB, video, option
 * ROMs or sound. qboot goes straight into the kernel; the timings are in tests/bench.
 *
 * relabel='no': with 'yes' libvirt gives kernel, initramfs and root image, which machines share, to
 * the uid of the machine that starts, and an escaped guest could then write what others boot. Volumes
 * are made with the right owner instead (vm_volume.c).
 */
#include <inttypes.h>

#include "sbx/vm.h"
#include "vm/vm_priv.h"

/* Under TCG a larger cache of translated code costs memory and gains nothing. */
#define TB_CACHE_MIB "128"

static void attr(struct sbx_buf *b, const char *before, const char *value, const char *after)
{
	sbx_buf_addz(b, before);
	sbx_buf_xml(b, sbx_str_of(value));
	sbx_buf_addz(b, after);
}

static void pci(struct sbx_buf *b, unsigned slot)
{
	sbx_buf_addf(b, "      <address type='pci' domain='0x0000' bus='0x00' slot='0x%02x' function='0x0'/>\n", slot);
}

static void head(const struct sbx_vm_spec *s, struct sbx_buf *b)
{
	attr(b, "<domain type='", s->accel == SBX_ACCEL_KVM ? "kvm" : "qemu", "'>\n");
	attr(b, "  <name>sbx-", s->instance, "-");
	attr(b, "", s->id, "</name>\n");
	attr(b, "  <uuid>", s->id, "</uuid>\n");
	sbx_buf_addz(b, "  <metadata>\n");
	attr(b, "    <sbx:machine xmlns:sbx='" SBX_VM_XMLNS "' instance='", s->instance_id, "'");
	sbx_buf_addf(b, " generation='%" PRId64 "'/>\n  </metadata>\n", s->generation);
	sbx_buf_addf(b, "  <memory unit='MiB'>%" PRId64 "</memory>\n", s->memory_mib);
	sbx_buf_addf(b, "  <vcpu placement='static'>%" PRId64 "</vcpu>\n", s->vcpu);
}

static void boot(const struct sbx_vm_spec *s, struct sbx_buf *b)
{
	bool kvm = s->accel == SBX_ACCEL_KVM;

	sbx_buf_addz(b, "  <os>\n");
	attr(b, "    <type arch='x86_64' machine='", s->profile->machine, "'>hvm</type>\n");
	sbx_buf_addz(b, "    <loader readonly='yes' type='rom'>" SBX_VM_QBOOT "</loader>\n");
	attr(b, "    <kernel>", s->kernel, "</kernel>\n");
	attr(b, "    <initrd>", s->initramfs, "</initrd>\n");
	attr(b, "    <cmdline>", s->cmdline, "</cmdline>\n");
	sbx_buf_addz(b, "  </os>\n  <features>\n    <acpi/>\n    <apic/>\n");
	if (!kvm)
		sbx_buf_addz(b, "    <tcg>\n      <tb-cache unit='MiB'>" TB_CACHE_MIB "</tb-cache>\n    </tcg>\n");
	sbx_buf_addz(b, "  </features>\n");
	sbx_buf_addf(b, "  <cpu mode='custom' match='exact' check='%s'>\n", kvm ? "partial" : "none");
	attr(b, "    <model fallback='forbid'>", kvm ? s->profile->cpu_kvm : s->profile->cpu_tcg, "</model>\n");
	sbx_buf_addz(b,
		"  </cpu>\n  <clock offset='utc'/>\n  <on_poweroff>destroy</on_poweroff>\n"
		"  <on_reboot>restart</on_reboot>\n  <on_crash>destroy</on_crash>\n");
}

static void volume(const struct sbx_vm_spec *s, struct sbx_buf *b, const char *suffix)
{
	attr(b, "      <source file='", s->volume_dir, "/");
	attr(b, "", s->id, suffix);
	sbx_buf_addz(b, "'/>\n");
}

static void disks(const struct sbx_vm_spec *s, struct sbx_buf *b)
{
	sbx_buf_addz(b,
		"    <disk type='file' device='disk'>\n"
		"      <driver name='qemu' type='qcow2' discard='unmap' detect_zeroes='unmap'/>\n");
	volume(s, b, SBX_VM_OVERLAY_SUFFIX);
	/* Told explicitly, so that nothing ever guesses a format from content the guest can write. */
	sbx_buf_addz(b, "      <backingStore type='file'>\n        <format type='raw'/>\n");
	attr(b, "        <source file='", s->root_image, "'/>\n        <backingStore/>\n      </backingStore>\n");
	sbx_buf_addz(b, "      <target dev='vda' bus='virtio'/>\n      <serial>sbxroot</serial>\n");
	pci(b, 2);
	sbx_buf_addz(b,
		"    </disk>\n    <disk type='file' device='disk'>\n"
		"      <driver name='qemu' type='raw'/>\n");
	volume(s, b, SBX_VM_CONFIG_SUFFIX);
	sbx_buf_addz(b,
		"      <backingStore/>\n      <target dev='vdb' bus='virtio'/>\n      <readonly/>\n"
		"      <serial>sbxconf</serial>\n");
	pci(b, 3);
	sbx_buf_addz(b, "    </disk>\n");
}

/* A routed tap: libvirt makes it, puts the host's side up and routes the guest's address to it. */
static void nic(struct sbx_buf *b, const char *mac, const char *host, const char *guest, const char *tap, unsigned slot)
{
	sbx_buf_addz(b, "    <interface type='ethernet'>\n");
	attr(b, "      <mac address='", mac, "'/>\n");
	attr(b, "      <source>\n        <ip address='", host, "' family='ipv4' prefix='32'");
	attr(b, " peer='", guest, "'/>\n      </source>\n");
	attr(b, "      <target dev='", tap, "'/>\n");
	sbx_buf_addz(b, "      <model type='virtio'/>\n      <rom enabled='no'/>\n");
	pci(b, slot);
	sbx_buf_addz(b, "    </interface>\n");
}

static void devices(const struct sbx_vm_spec *s, struct sbx_buf *b)
{
	const struct sbx_slot *n = s->slot;

	sbx_buf_addz(b, "  <devices>\n");
	attr(b, "    <emulator>", s->profile->emulator, "</emulator>\n");
	disks(s, b);
	nic(b, n->control_mac, n->control_host, n->control_guest, n->control_tap, 4);
	if (s->user_network)
		nic(b, n->user_mac, n->user_host, n->user_guest, n->user_tap, 5);
	/* virtlogd writes it and bounds its size. */
	attr(b, "    <serial type='file'>\n      <source path='", s->log_dir, "/");
	attr(b, "", s->id, SBX_VM_LOG_SUFFIX "'/>\n");
	sbx_buf_addz(b,
		"      <target type='isa-serial' port='0'>\n        <model name='isa-serial'/>\n"
		"      </target>\n    </serial>\n"
		"    <controller type='usb' model='none'/>\n"
		"    <memballoon model='virtio' freePageReporting='on'>\n");
	pci(b, 6);
	sbx_buf_addz(b,
		"    </memballoon>\n    <rng model='virtio'>\n"
		"      <backend model='random'>/dev/urandom</backend>\n");
	pci(b, 7);
	sbx_buf_addz(b, "    </rng>\n  </devices>\n");
}

void sbx_vm_xml(const struct sbx_vm_spec *spec, struct sbx_buf *out)
{
	head(spec, out);
	boot(spec, out);
	devices(spec, out);
	sbx_buf_addz(out, "  <seclabel type='static' model='dac' relabel='no'>\n");
	sbx_buf_addf(out, "    <label>+%" PRIu32 ":+%" PRIu32 "</label>\n  </seclabel>\n</domain>\n", spec->slot->uid,
		spec->gid);
}

bool sbx_vm_xml_attr(const char *xml, const char *name, struct sbx_str *ret)
{
	size_t n = sbx_str_of(name).n;

	for (const char *p = xml; *p && *p != '>'; p++) {
		const char *value, *end;

		if ((*p != ' ' && *p != '\n' && *p != '\t') || !sbx_str_starts(sbx_str_of(p + 1), name) ||
			p[1 + n] != '=' || (p[2 + n] != '\'' && p[2 + n] != '"'))
			continue;
		value = p + 3 + n;
		for (end = value; *end && *end != p[2 + n]; end++)
			;
		if (!*end)
			return false;
		*ret = (struct sbx_str){ value, (size_t)(end - value) };
		return true;
	}
	return false;
}
