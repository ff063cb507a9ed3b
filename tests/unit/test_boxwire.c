#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "sbx/boxwire.h"

static void test_end_round_trip(void **state)
{
	(void)state;
	static const struct sbx_wire_end rows[] = {
		{ 0, false, false, false, 0, 0, 0 },
		{ 255, false, false, true, UINT64_MAX, UINT64_MAX, 1 },
		{ 124, false, true, false, 3600000, 7, 1u << 20 },
		{ 0, true, false, true, 1, 2, 3 },
		{ 3, true, true, true, 1, 2, 3 },
	};

	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		struct sbx_wire_end got;
		struct sbx_frame f;
		struct sbx_str in;
		sbx_auto_buf struct sbx_buf b;

		sbx_buf_init(&b, 64);
		sbx_wire_end_add(&b, &rows[i]);
		in = sbx_buf_str(&b);
		assert_int_equal(in.n, SBX_FRAME_HEAD + SBX_WIRE_END_SIZE);
		assert_int_equal(sbx_frame_take(&in, SBX_EXEC_FRAME_MAX, &f), 1);
		assert_true(sbx_wire_end_read(&f, &got));
		assert_int_equal(got.exit_code, rows[i].exit_code);
		assert_int_equal(got.running, rows[i].running);
		assert_int_equal(got.timed_out, rows[i].timed_out);
		assert_int_equal(got.truncated, rows[i].truncated);
		assert_true(got.duration_ms == rows[i].duration_ms && got.out_bytes == rows[i].out_bytes &&
			got.err_bytes == rows[i].err_bytes);
	}
}

static void test_end_hostile(void **state)
{
	(void)state;
	static const struct {
		uint8_t type;
		size_t n, at;
		uint8_t value;
		bool ok;
	} rows[] = {
		{ SBX_WIRE_END, 32, 3, 200, true },
		{ SBX_WIRE_END, 32, 2, 1, false }, /* exit code 256 */
		{ SBX_WIRE_END, 32, 0, 0x80, false },
		{ SBX_WIRE_END, 32, 7, 7, true },
		{ SBX_WIRE_END, 32, 7, 8, false }, /* a flag of another version */
		{ SBX_WIRE_END, 32, 4, 1, false },
		{ SBX_WIRE_END, 31, 0, 0, false },
		{ SBX_WIRE_END, 33, 0, 0, false },
		{ SBX_WIRE_END, 0, 0, 0, false },
		{ SBX_WIRE_OUT, 32, 0, 0, false },
		{ 0, 32, 0, 0, false },
	};

	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		char p[40] = { 0 };
		struct sbx_wire_end got = { .exit_code = 77 };

		p[rows[i].at] = (char)rows[i].value;
		assert_int_equal(
			sbx_wire_end_read(&(struct sbx_frame){ rows[i].type, { p, rows[i].n } }, &got), rows[i].ok);
		if (!rows[i].ok)
			assert_int_equal(got.exit_code, 77);
	}
}

static void test_exec_id(void **state)
{
	(void)state;
	static const struct {
		const char *id;
		bool ok;
	} rows[] = {
		{ "00112233445566778899aabbccddeeff", true },
		{ "ffffffffffffffffffffffffffffffff", true },
		{ "00112233445566778899AABBCCDDEEFF", false },
		{ "00112233445566778899aabbccddeef", false },
		{ "00112233445566778899aabbccddeeff0", false },
		{ "00112233445566778899aabbccddeefg", false },
		{ "../../../../../../../../../../etc", false },
		{ "0011223344556677 8899aabbccddeef", false },
		{ "", false },
	};

	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++)
		assert_int_equal(sbx_exec_id_ok(sbx_str_of(rows[i].id)), rows[i].ok);
	assert_false(sbx_exec_id_ok((struct sbx_str){ "0011223344556677\0008899aabbccddee", 32 }));
	assert_false(sbx_exec_id_ok((struct sbx_str){ NULL, 0 }));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_end_round_trip),
		cmocka_unit_test(test_end_hostile),
		cmocka_unit_test(test_exec_id),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
