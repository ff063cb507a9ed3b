#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "sbx/fd.h"
#include "sbx/vm.h"
#include "vm/vm_priv.h"

#define MACHINE_ID "3f2b8c1e-0d4a-4f6b-9a57-1c2d3e4f5a6b"

static void test_slot_space(void **state)
{
	static const struct {
		const char *cidr, *tag;
		int64_t uid_base;
		bool is_ok;
	} rows[] = {
		{ "100.64.0.0/16", "m0", 700000, true },
		{ "100.64.0.0/29", "m0", 700000, true },
		{ "100.64.0.0/30", "m0", 700000, false },
		{ "100.64.0.0/8", "m0", 700000, false },
		{ "100.64.0.1/16", "m0", 700000, false },
		{ "100.64.0.0", "m0", 700000, false },
		{ "100.64.0/16", "m0", 700000, false },
		{ "fd00::/64", "m0", 700000, false },
		{ "", "m0", 700000, false },
		{ "100.64.0.0/16", "M0", 700000, false },
		{ "100.64.0.0/16", "m", 700000, false },
		{ "100.64.0.0/16", "m0x", 700000, false },
		{ "100.64.0.0/16", "*a", 700000, false },
		{ "100.64.0.0/16", "m0", 0, false },
		{ "100.64.0.0/16", "m0", 2147483000, false },
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		struct sbx_err err = SBX_ERR_INIT;
		struct sbx_slot_space space;
		int rc = sbx_slot_space_init(&space, rows[i].cidr, rows[i].tag, rows[i].uid_base, &err);

		if ((rc == 0) != rows[i].is_ok)
			fail_msg("row %zu: rc %d, %s", i, rc, err.msg);
	}
}

static void test_slot_values(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_slot_space space;
	struct sbx_slot s;

	(void)state;
	assert_int_equal(sbx_slot_space_init(&space, "100.64.0.0/16", "m0", 700000, &err), 0);
	assert_int_equal(space.slots, 16384);
	assert_string_equal(space.resolver, "100.64.0.1");
	assert_int_equal(sbx_slot_at(&space, 1, &s, &err), 0);
	assert_string_equal(s.control_host, "100.64.0.4");
	assert_string_equal(s.user_guest, "100.64.0.7");
	assert_int_equal(sbx_slot_at(&space, 300, &s, &err), 0);
	assert_string_equal(s.control_host, "100.64.4.176");
	assert_string_equal(s.control_guest, "100.64.4.177");
	assert_string_equal(s.user_host, "100.64.4.178");
	assert_string_equal(s.user_guest, "100.64.4.179");
	assert_string_equal(s.control_tap, "sm0c300");
	assert_string_equal(s.user_tap, "sm0u300");
	assert_string_equal(s.control_mac, "02:73:63:00:02:58");
	assert_string_equal(s.user_mac, "02:73:63:00:02:59");
	assert_int_equal(s.uid, 700300);
	assert_int_equal(sbx_slot_at(&space, 16383, &s, &err), 0);
	assert_string_equal(s.user_guest, "100.64.255.255");
	assert_int_equal(sbx_slot_at(&space, 16384, &s, &err), -1);
	assert_int_equal(err.code, SBX_E_LIMIT);
	assert_int_equal(sbx_slot_at(&space, 0, &s, NULL), -1);
	assert_int_equal(sbx_slot_at(&space, -1, &s, NULL), -1);
}

/* Every slot of the largest range fits its names, and nothing is shared between neighbours. */
static void test_slot_largest(void **state)
{
	struct sbx_slot_space space;
	struct sbx_slot s;

	(void)state;
	assert_int_equal(sbx_slot_space_init(&space, "100.0.0.0/9", "zz", 10000, NULL), 0);
	assert_int_equal(sbx_slot_at(&space, space.slots - 1, &s, NULL), 0);
	assert_string_equal(s.control_tap, "szzc2097151");
	assert_string_equal(s.user_mac, "02:73:40:3f:ff:ff");
	assert_string_equal(s.user_guest, "100.127.255.255");
	assert_string_equal(space.resolver, "100.0.0.1");
}

static void test_slot_of_tap(void **state)
{
	static const struct {
		const char *name;
		int64_t slot;
	} rows[] = {
		{ "sm0c0", -1 },
		{ "sm0u17", 17 },
		{ "sm0c16383", 16383 },
		{ "sm0c16384", -1 },
		{ "sm1c0", -1 },
		{ "sm0x0", -1 },
		{ "sm0c", -1 },
		{ "eth0", -1 },
		{ "", -1 },
		{ "sm0c1x", -1 },
		{ "sm0c-1", -1 },
	};
	struct sbx_slot_space space;

	(void)state;
	assert_int_equal(sbx_slot_space_init(&space, "100.64.0.0/16", "m0", 700000, NULL), 0);
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++)
		assert_int_equal(sbx_slot_of_tap(&space, rows[i].name), rows[i].slot);
}

static const char intel[] = "processor\t: 0\nmodel name\t: Intel(R) vmx svm\nflags\t\t: fpu vme vmx ssse3\n";
static const char amd[] = "processor\t: 0\nflags\t\t: fpu svm lm\nbugs\t\t: none\n";
static const char neither[] = "processor\t: 0\nmodel name\t: vmx\nflags\t\t: fpu vmxx hypervisor\n"
			      "vmx flags\t: vnmi svm\n";

static void test_accel(void **state)
{
	static const struct {
		const char *wanted, *cpuinfo;
		bool kvm_opens;
		int rc;
		enum sbx_accel accel;
	} rows[] = {
		{ "auto", intel, true, 0, SBX_ACCEL_KVM },
		{ "auto", amd, true, 0, SBX_ACCEL_KVM },
		{ "auto", intel, false, 0, SBX_ACCEL_TCG },
		{ "auto", neither, true, 0, SBX_ACCEL_TCG },
		{ "auto", neither, false, 0, SBX_ACCEL_TCG },
		{ "auto", "", true, 0, SBX_ACCEL_TCG },
		{ "kvm", intel, true, 0, SBX_ACCEL_KVM },
		{ "kvm", intel, false, -1, SBX_ACCEL_TCG },
		{ "kvm", neither, true, -1, SBX_ACCEL_TCG },
		{ "tcg", intel, true, 0, SBX_ACCEL_TCG },
		{ "hax", intel, true, -1, SBX_ACCEL_TCG },
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		struct sbx_err err = SBX_ERR_INIT;
		char reason[SBX_ACCEL_REASON_SIZE] = "";
		enum sbx_accel accel = SBX_ACCEL_TCG;
		int rc = sbx_accel_pick(
			rows[i].wanted, sbx_str_of(rows[i].cpuinfo), rows[i].kvm_opens, &accel, reason, &err);

		if (rc != rows[i].rc || accel != rows[i].accel || (rc == 0 && !reason[0]))
			fail_msg("row %zu: rc %d, %s, \"%s\"", i, rc, sbx_accel_name(accel), reason);
	}
}

static void test_pick_machine(void **state)
{
	static const struct {
		const char *xml, *machine;
	} rows[] = {
		{ "<machine maxCpus='288'>pc-q35-7.2</machine><machine>pc-q35-10.0</machine>", "pc-q35-10.0" },
		{ "<machine>pc-q35-2.12</machine><machine>pc-q35-2.9</machine>", "pc-q35-2.12" },
		{ "<machine canonical='pc-q35-7.2' maxCpus='288'>q35</machine>", "pc-q35-7.2" },
		{ "<machine>pc-i440fx-7.2</machine><machine>pc-q35-rhel</machine>", NULL },
		{ "", NULL },
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		char machine[32] = "";
		int rc = sbx_vm_pick_machine(rows[i].xml, machine, NULL);

		assert_int_equal(rc, rows[i].machine ? 0 : -1);
		if (rows[i].machine)
			assert_string_equal(machine, rows[i].machine);
	}
}

static void test_pick_cpu(void **state)
{
	static const char xml[] = "<mode name='custom' supported='yes'>"
				  "<model usable='no'>Haswell-noTSX-IBRS</model>"
				  "<model usable='yes' vendor='Intel'>Haswell-noTSX-IBRS-v9</model>"
				  "<model usable='yes' vendor='AMD'>EPYC</model>"
				  "<model usable='yes' vendor='Intel'>Nehalem</model></mode>";
	char model[64];

	(void)state;
	assert_int_equal(sbx_vm_pick_cpu(xml, SBX_ACCEL_KVM, model, NULL), 0);
	assert_string_equal(model, "EPYC");
	assert_int_equal(sbx_vm_pick_cpu(xml, SBX_ACCEL_TCG, model, NULL), 0);
	assert_string_equal(model, "Nehalem");
	assert_int_equal(sbx_vm_pick_cpu("<model usable='no'>Nehalem</model>", SBX_ACCEL_TCG, model, NULL), -1);
}

static void test_xml_attr(void **state)
{
	static const struct {
		const char *xml, *name, *value;
	} rows[] = {
		{ "<machine instance=\"abc\" generation=\"7\"/>", "generation", "7" },
		{ "<machine instance='abc' generation='7'/>", "instance", "abc" },
		{ "<m\n\tgeneration='7'/>", "generation", "7" },
		{ "<m xgeneration='7'/>", "generation", NULL },
		{ "<m generation='7/>", "generation", NULL },
		{ "<m/><n generation='7'/>", "generation", NULL },
		{ "<m generation=7/>", "generation", NULL },
		{ "", "generation", NULL },
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		struct sbx_str v = { NULL, 0 };
		bool found = sbx_vm_xml_attr(rows[i].xml, rows[i].name, &v);

		assert_int_equal(found, rows[i].value != NULL);
		if (found)
			assert_true(sbx_str_eqz(v, rows[i].value));
	}
}

/* Compares with tests/data/NAME, or writes it when SBX_REGENERATE is set. */
static void golden(const char *path, struct sbx_str text)
{
	sbx_auto_buf struct sbx_buf want;
	struct sbx_err err = SBX_ERR_INIT;

	if (getenv("SBX_REGENERATE"))
		assert_int_equal(sbx_fd_replace(path, text, 0644, false, &err), 0);
	sbx_buf_init(&want, 1 << 20);
	if (sbx_fd_slurp(path, &want, &err) < 0)
		fail_msg("%s", err.msg);
	if (!sbx_str_eq(sbx_buf_str(&want), text))
		fail_msg("%s differs; with SBX_REGENERATE=1 it is written anew. Now:\n%.*s", path, (int)text.n, text.p);
}

static const struct sbx_vm_profile profile = {
	.emulator = "/usr/bin/qemu-system-x86_64",
	.machine = "pc-q35-7.2",
	.cpu_tcg = "Nehalem",
	.cpu_kvm = "Haswell-noTSX",
};

static struct sbx_vm_spec spec_of(const struct sbx_slot *slot)
{
	return (struct sbx_vm_spec){
		.id = MACHINE_ID,
		.instance = "main",
		.instance_id = "11111111-2222-4333-8444-555555555555",
		.generation = 3,
		.accel = SBX_ACCEL_TCG,
		.profile = &profile,
		.vcpu = 2,
		.memory_mib = 2048,
		.kernel = "/var/lib/sbx/images/base-1/vmlinux",
		.initramfs = "/var/lib/sbx/images/base-1/initramfs",
		.cmdline = "console=ttyS0 quiet",
		.root_image = "/var/lib/sbx/images/base-1/root.img",
		.volume_dir = "/var/lib/sbx/volumes",
		.log_dir = "/var/lib/sbx/serial",
		.slot = slot,
		.gid = slot->uid,
		.user_network = true,
	};
}

static void test_xml_golden(void **state)
{
	struct sbx_slot_space space;
	struct sbx_slot slot;
	struct sbx_vm_spec spec;
	sbx_auto_buf struct sbx_buf xml;

	(void)state;
	sbx_buf_init(&xml, 65536);
	assert_int_equal(sbx_slot_space_init(&space, "100.64.0.0/16", "m0", 700000, NULL), 0);
	assert_int_equal(sbx_slot_at(&space, 7, &slot, NULL), 0);
	spec = spec_of(&slot);
	sbx_vm_xml(&spec, &xml);
	golden("tests/data/domain_tcg.xml", sbx_buf_str(&xml));

	/* KVM, no user network, and characters that must be escaped wherever text goes in. */
	sbx_buf_reset(&xml);
	spec.accel = SBX_ACCEL_KVM;
	spec.gid = 107;
	spec.user_network = false;
	spec.instance = "a<b>&'\"";
	spec.kernel = "/srv/<k>&'\"/vmlinux";
	spec.root_image = "/srv/<r>&'\"/root.img";
	spec.volume_dir = "/srv/<v>&'\"";
	spec.cmdline = "a=\"<&>\" b='c'";
	sbx_vm_xml(&spec, &xml);
	golden("tests/data/domain_kvm.xml", sbx_buf_str(&xml));
}

static void test_profile_file(void **state)
{
	char path[] = "/tmp/sbx-test-profile-XXXXXX";
	int fd = mkstemp(path);
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_vm_profile got = { 0 };

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(sbx_vm_profile_load(path, &got, &err), -1);
	assert_int_equal(err.code, SBX_E_INVALID);
	assert_int_equal(sbx_vm_profile_save(path, &profile, NULL), 0);
	assert_int_equal(sbx_vm_profile_load(path, &got, NULL), 0);
	assert_string_equal(got.machine, profile.machine);
	assert_string_equal(got.cpu_kvm, profile.cpu_kvm);
	unlink(path);
	sbx_err_clear(&err);
	assert_int_equal(sbx_vm_profile_load(path, &got, &err), -1);
	assert_int_equal(err.code, SBX_E_NOT_FOUND);
}

static const struct sbx_vm_conf test_conf = {
	.uri = "test:///default",
	.instance = "unit",
	.instance_id = "11111111-2222-4333-8444-555555555555",
	.volume_dir = "/nonexistent",
	.log_dir = "/nonexistent",
	.threads = 2,
};

static void test_connection(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_vm *vm = sbx_vm_new(&test_conf, NULL, NULL, &err);
	struct sbx_vm_domain *domains = NULL, one;
	size_t n = 9;

	(void)state;
	assert_non_null(vm);
	assert_int_equal(sbx_vm_ping(vm, &err), 0);
	assert_int_equal(sbx_vm_connections(vm), 1);
	/* The test driver has one domain, which is not ours: it is not seen, and never ended. */
	assert_int_equal(sbx_vm_list(vm, &domains, &n, &err), 0);
	assert_int_equal(n, 0);
	free(domains);
	assert_int_equal(sbx_vm_destroy(vm, "6695eb01-f6a4-8304-79aa-97f2502e193f", &err), -1);
	assert_int_equal(err.code, SBX_E_CONFLICT);
	sbx_err_clear(&err);
	assert_int_equal(sbx_vm_destroy(vm, MACHINE_ID, &err), 0);
	assert_int_equal(sbx_vm_get(vm, MACHINE_ID, &one, &err), -1);
	assert_int_equal(err.code, SBX_E_NOT_FOUND);
	sbx_vm_free(vm);
}

static void test_unreachable(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_vm_conf conf = test_conf;
	struct sbx_vm *vm;

	(void)state;
	conf.uri = "qemu+unix:///system?socket=/nonexistent/sock";
	vm = sbx_vm_new(&conf, NULL, NULL, &err);
	assert_non_null(vm);
	assert_int_equal(sbx_vm_ping(vm, &err), -1);
	assert_int_equal(err.code, SBX_E_UNAVAILABLE);
	sbx_err_clear(&err);
	assert_int_equal(sbx_vm_ping(vm, &err), -1);
	assert_int_equal(err.code, SBX_E_UNAVAILABLE);
	assert_int_equal(sbx_vm_connections(vm), 0);
	sbx_vm_free(vm);
}

static int slow_call(struct sbx_vm *vm, virConnectPtr conn, struct vm_args *a, struct sbx_err *err)
{
	(void)vm;
	(void)conn;
	(void)err;
	usleep(300000);
	a->number = 1;
	return 0;
}

static enum sbx_code slow(struct sbx_vm *vm, const char *id, int timeout_ms, int64_t *ret)
{
	vm_auto_args struct vm_args *a = vm_args_new(id);
	struct sbx_err err = SBX_ERR_INIT;

	if (vm_call(vm, slow_call, a, timeout_ms, &err) == 0)
		*ret = a->number;
	return err.code;
}

/* A call that hangs gives a time-out; the pool serves others meanwhile; a full pool times out too. */
static void test_timeout(void **state)
{
	struct sbx_vm *vm = sbx_vm_new(&test_conf, NULL, NULL, NULL);
	int64_t number = 0;

	(void)state;
	assert_non_null(vm);
	assert_int_equal(sbx_vm_ping(vm, NULL), 0);
	assert_int_equal(slow(vm, NULL, 20, &number), SBX_E_TIMEOUT);
	assert_int_equal(sbx_vm_ping(vm, NULL), 0);
	assert_int_equal(slow(vm, NULL, 20, &number), SBX_E_TIMEOUT);
	assert_int_equal(slow(vm, NULL, 20, &number), SBX_E_TIMEOUT);
	assert_int_equal(number, 0);
	assert_int_equal(slow(vm, NULL, 5000, &number), SBX_OK);
	assert_int_equal(number, 1);
	sbx_vm_free(vm);
}

/* While a call that was given up may still happen, its machine is left alone, and others are not. */
static void test_late_call(void **state)
{
	struct sbx_vm *vm = sbx_vm_new(&test_conf, NULL, NULL, NULL);
	struct sbx_err err = SBX_ERR_INIT;
	int64_t number = 0;

	(void)state;
	assert_non_null(vm);
	assert_int_equal(slow(vm, MACHINE_ID, 100, &number), SBX_E_TIMEOUT);
	assert_int_equal(sbx_vm_destroy(vm, MACHINE_ID, &err), -1);
	assert_int_equal(err.code, SBX_E_UNAVAILABLE);
	assert_int_equal(sbx_vm_destroy(vm, "00000000-0000-4000-8000-000000000000", NULL), 0);
	/* The test's call takes 300 ms: then the machine is free again. */
	for (int i = 0; i < 100 && sbx_vm_destroy(vm, MACHINE_ID, NULL) < 0; i++)
		usleep(20000);
	assert_int_equal(sbx_vm_destroy(vm, MACHINE_ID, NULL), 0);
	sbx_vm_free(vm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slot_space),
		cmocka_unit_test(test_slot_values),
		cmocka_unit_test(test_slot_largest),
		cmocka_unit_test(test_slot_of_tap),
		cmocka_unit_test(test_accel),
		cmocka_unit_test(test_pick_machine),
		cmocka_unit_test(test_pick_cpu),
		cmocka_unit_test(test_xml_attr),
		cmocka_unit_test(test_xml_golden),
		cmocka_unit_test(test_profile_file),
		cmocka_unit_test(test_connection),
		cmocka_unit_test(test_unreachable),
		cmocka_unit_test(test_timeout),
		cmocka_unit_test(test_late_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
