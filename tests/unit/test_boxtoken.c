#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "sbx/boxtoken.h"
#include "sbx/buf.h"
#include "sbx/enc.h"

#define S 1000000ll /* a second in microseconds */

static struct sbx_boxtoken sample(void)
{
	struct sbx_boxtoken t = { .purpose = SBX_BOXTOKEN_KILL,
		.kid = 7,
		.epoch = 0x01020304,
		.issued_at_us = 0x0005a1b2c3d4e5f6,
		.ttl_ms = 30000 };

	for (uint8_t i = 0; i < 16; i++) {
		t.machine[i] = (uint8_t)(0x10 + i);
		t.nonce[i] = (uint8_t)(0xa0 + i);
	}
	memset(t.mac, 0xee, sizeof(t.mac));
	return t;
}

/* The bytes are a contract between two programs of two versions. */
static void test_layout(void **state)
{
	(void)state;
	struct sbx_boxtoken t = sample();
	uint8_t raw[SBX_BOXTOKEN_SIZE];
	char hex[2 * SBX_BOXTOKEN_SIZE + 1];

	sbx_boxtoken_put(&t, raw);
	sbx_hexz(raw, sizeof(raw), hex);
	assert_string_equal(hex,
		"01"
		"03"
		"07"
		"00"
		"01020304"
		"0005a1b2c3d4e5f6"
		"00007530"
		"101112131415161718191a1b1c1d1e1f"
		"a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
		"eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee");
}

static void encode(const uint8_t raw[SBX_BOXTOKEN_SIZE], struct sbx_buf *b)
{
	sbx_buf_init(b, 256);
	sbx_buf_base64url(b, raw, SBX_BOXTOKEN_SIZE);
	assert_int_equal(b->n, SBX_BOXTOKEN_TEXT);
}

static void test_round_trip(void **state)
{
	(void)state;
	struct sbx_boxtoken t = sample(), got;
	uint8_t raw[SBX_BOXTOKEN_SIZE], raw2[SBX_BOXTOKEN_SIZE];
	sbx_auto_buf struct sbx_buf b;

	sbx_boxtoken_put(&t, raw);
	encode(raw, &b);
	assert_true(sbx_boxtoken_parse(sbx_buf_str(&b), &got, raw2));
	assert_memory_equal(raw, raw2, sizeof(raw));
	assert_int_equal(got.purpose, t.purpose);
	assert_int_equal(got.kid, t.kid);
	assert_int_equal(got.epoch, t.epoch);
	assert_int_equal(got.issued_at_us, t.issued_at_us);
	assert_int_equal(got.ttl_ms, t.ttl_ms);
	assert_memory_equal(got.machine, t.machine, sizeof(t.machine));
	assert_memory_equal(got.nonce, t.nonce, sizeof(t.nonce));
	assert_memory_equal(got.mac, t.mac, sizeof(t.mac));
}

static void test_hostile_bytes(void **state)
{
	(void)state;
	static const struct {
		size_t at;
		uint8_t value;
		bool ok;
	} rows[] = {
		{ 0, 0, false },    /* a version of the past */
		{ 0, 2, false },    /* and of the future */
		{ 3, 1, false },    /* reserved */
		{ 1, 255, true },   /* purposes are the caller's to judge */
		{ 8, 0x3f, true },  /* the latest time that sums allow */
		{ 8, 0x40, false }, /* a time whose sums would overflow */
		{ 8, 0x80, false }, /* negative */
		{ 16, 0xff, true }, /* a life of 49 days */
	};

	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		struct sbx_boxtoken t = sample(), got = { .kid = 99 };
		uint8_t raw[SBX_BOXTOKEN_SIZE], out[SBX_BOXTOKEN_SIZE] = { 0 };
		sbx_auto_buf struct sbx_buf b;

		sbx_boxtoken_put(&t, raw);
		raw[rows[i].at] = rows[i].value;
		encode(raw, &b);
		assert_int_equal(sbx_boxtoken_parse(sbx_buf_str(&b), &got, out), rows[i].ok);
		if (!rows[i].ok) {
			assert_int_equal(got.kid, 99); /* untouched */
			assert_int_equal(out[0], 0);
		}
	}
}

static void test_hostile_text(void **state)
{
	(void)state;
	struct sbx_boxtoken t = sample(), got;
	uint8_t raw[SBX_BOXTOKEN_SIZE];
	sbx_auto_buf struct sbx_buf b;
	struct sbx_str text;

	sbx_boxtoken_put(&t, raw);
	encode(raw, &b);
	text = sbx_buf_str(&b);
	for (size_t n = 0; n < text.n; n++)
		assert_false(sbx_boxtoken_parse((struct sbx_str){ text.p, n }, &got, raw));
	for (size_t i = 0; i < text.n; i++) {
		static const char bad[] = { '\0', ' ', '=', '+', '/', '\n', (char)0xff, '.' };

		for (size_t k = 0; k < sizeof(bad); k++) {
			char was = b.p[i];

			b.p[i] = bad[k];
			assert_false(sbx_boxtoken_parse(text, &got, raw));
			b.p[i] = was;
		}
	}
	sbx_buf_addc(&b, 'A');
	assert_false(sbx_boxtoken_parse(sbx_buf_str(&b), &got, raw));
	assert_false(sbx_boxtoken_parse((struct sbx_str){ NULL, 0 }, &got, raw));
}

struct step {
	int64_t issued_us;
	uint32_t ttl_ms;
	uint8_t nonce;
	int64_t boot_ms;
	const char *why;
};

static void run_steps(size_t nonces, const struct step *step, size_t n)
{
	struct sbx_boxtoken_gate *g = sbx_boxtoken_gate_new(nonces);

	assert_non_null(g);
	for (size_t i = 0; i < n; i++) {
		struct sbx_boxtoken t = { .issued_at_us = step[i].issued_us, .ttl_ms = step[i].ttl_ms };
		const char *why;

		/* only the end differs: a bucket is shared */
		t.nonce[15] = step[i].nonce;
		why = sbx_boxtoken_gate_pass(g, &t, step[i].boot_ms);
		if (step[i].why) {
			assert_non_null(why);
			assert_string_equal(why, step[i].why);
		} else if (why) {
			fail_msg("step %zu: %s", i, why);
		}
	}
	sbx_boxtoken_gate_free(g);
}

static void test_gate(void **state)
{
	(void)state;
	static const struct step rows[] = {
		{ 100 * S, 1000, 1, 5000, NULL }, /* the first sets the clock */
		{ 100 * S, 1000, 1, 5000, "used" },
		{ 100 * S, 1000, 2, 5000, NULL }, /* same time, another token */
		{ 99 * S, 1000, 3, 5000, NULL },  /* overtaken on the way, still alive */
		{ 99 * S, 1000, 4, 5001, "expired" },
		{ 101 * S, 1000, 5, 7000, NULL }, /* now is 102 s: just alive */
		{ 101 * S, 999, 6, 7000, NULL },  /* and the clock went back to the host's */
		{ 101 * S, 1000, 5, 7000, "used" },
		{ 500 * S, 1, 7, 7001, NULL },          /* a thaw, or the host's clock stepped */
		{ 102 * S, 60000, 8, 7002, "expired" }, /* what was caught before it is worth nothing */
		{ 500 * S, 0, 9, 7001, NULL },
		{ 500 * S, 0, 10, 7002, "expired" },
		{ 0, UINT32_MAX, 11, 7002, NULL }, /* a life of 49 days */
		{ INT64_MAX / 2, UINT32_MAX, 12, 7003, NULL },
	};

	run_steps(64, rows, SBX_ARRAY_LEN(rows));
}

/* A full table forgets the oldest and then refuses all that is as old: nothing is accepted twice. */
static void test_gate_full(void **state)
{
	(void)state;
	static const struct step rows[] = {
		{ 100 * S, 60000, 1, 0, NULL }, { 101 * S, 60000, 2, 0, NULL }, { 102 * S, 60000, 3, 0, NULL },
		{ 101 * S, 60000, 2, 0, "used" }, { 103 * S, 60000, 4, 0, NULL }, /* 1 is forgotten */
		{ 100 * S, 60000, 1, 0, "stale" }, { 100 * S, 60000, 5, 0, "stale" }, { 101 * S, 60000, 2, 0, "used" },
		{ 100 * S + 1, 60000, 6, 0, NULL }, /* 2 is forgotten */
		{ 101 * S, 60000, 2, 0, "stale" }, { 102 * S, 60000, 3, 0, "used" },
		{ 104 * S, 60000, 3, 0, "used" }, /* the nonce counts, whatever else it says */
	};

	run_steps(3, rows, SBX_ARRAY_LEN(rows));
}

static void test_gate_of_one(void **state)
{
	(void)state;
	static const struct step rows[] = {
		{ 1 * S, 1000, 1, 0, NULL },
		{ 1 * S, 1000, 1, 0, "used" },
		{ 2 * S, 1000, 2, 0, NULL },
		{ 1 * S, 1000, 1, 0, "stale" },
		{ 2 * S, 1000, 2, 0, "used" },
	};

	run_steps(1, rows, SBX_ARRAY_LEN(rows));
	assert_null(sbx_boxtoken_gate_new(0));
	assert_null(sbx_boxtoken_gate_new((size_t)UINT32_MAX));
	sbx_boxtoken_gate_free(NULL);
}

/* The table behaves as a plain list would, over many tokens and few places. */
static void test_gate_many(void **state)
{
	(void)state;
	struct sbx_boxtoken_gate *g = sbx_boxtoken_gate_new(16);

	for (int i = 0; i < 2000; i++) {
		struct sbx_boxtoken t = { .issued_at_us = (i + 1) * S, .ttl_ms = UINT32_MAX };

		t.nonce[0] = (uint8_t)(i * 7);
		t.nonce[4] = (uint8_t)i;
		t.nonce[5] = (uint8_t)(i >> 8);
		assert_null(sbx_boxtoken_gate_pass(g, &t, i));
		assert_string_equal(sbx_boxtoken_gate_pass(g, &t, i), "used");
		if (i >= 16) {
			int k = i - 16;

			t = (struct sbx_boxtoken){ .issued_at_us = (k + 1) * S, .ttl_ms = UINT32_MAX };
			t.nonce[0] = (uint8_t)(k * 7);
			t.nonce[4] = (uint8_t)k;
			t.nonce[5] = (uint8_t)(k >> 8);
			assert_string_equal(sbx_boxtoken_gate_pass(g, &t, i), "stale");
		}
	}
	sbx_boxtoken_gate_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_hostile_bytes),
		cmocka_unit_test(test_hostile_text),
		cmocka_unit_test(test_gate),
		cmocka_unit_test(test_gate_full),
		cmocka_unit_test(test_gate_of_one),
		cmocka_unit_test(test_gate_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
