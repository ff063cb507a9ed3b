/* core: errors, strings, buffers and their escapers, arena, UTF-8, encoders, clock, fds, frames. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../lib/test.h"
#include "sbx/arena.h"
#include "sbx/clock.h"
#include "sbx/enc.h"
#include "sbx/fd.h"
#include "sbx/frame.h"
#include "sbx/log.h"
#include "sbx/utf8.h"

static void err_first_wins(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;

	(void)state;
	assert_int_equal(SBX_FAIL(&err, SBX_E_NOT_FOUND, "box %s", "x"), -1);
	SBX_FAIL(&err, SBX_E_INTERNAL, "second");
	assert_int_equal(err.code, SBX_E_NOT_FOUND);
	assert_string_equal(err.msg, "box x");
	sbx_err_wrap(&err, "opening %d", 7);
	assert_string_equal(err.msg, "opening 7: box x");
	sbx_err_clear(&err);
	errno = ENOSPC;
	SBX_FAIL_SYS(&err, SBX_E_NO_SPACE, "full");
	assert_int_equal(err.sys, ENOSPC);
	assert_string_equal(err.detail, "No space left on device");
	assert_int_equal(SBX_FAIL(NULL, SBX_E_INTERNAL, "nobody listens"), -1);
}

static void err_codes(void **state)
{
	(void)state;
	for (int c = SBX_OK + 1; c < SBX_E__MAX; c++) {
		assert_int_equal(sbx_code_from_wire(sbx_code_wire((enum sbx_code)c)), c);
		assert_in_range(sbx_code_http((enum sbx_code)c), 400, 599);
	}
	assert_int_equal(sbx_code_from_wire("no such word"), SBX_E_INTERNAL);
	assert_int_equal(sbx_code_from_wire(NULL), SBX_E_INTERNAL);
	assert_true(sbx_code_retryable(SBX_E_UNAVAILABLE));
	assert_false(sbx_code_retryable(SBX_E_INVALID));
}

static void str_numbers(void **state)
{
	static const struct {
		const char *in;
		bool ok;
		int64_t v;
	} rows[] = {
		{ "0", true, 0 },
		{ "42", true, 42 },
		{ "-7", true, -7 },
		{ "9223372036854775807", true, INT64_MAX },
		{ "-9223372036854775808", true, INT64_MIN },
		{ "9223372036854775808", false, 0 },
		{ "", false, 0 },
		{ "-", false, 0 },
		{ "+1", false, 0 },
		{ " 1", false, 0 },
		{ "1 ", false, 0 },
		{ "1e3", false, 0 },
		{ "0x10", false, 0 },
		{ "--1", false, 0 },
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		int64_t v = 0;

		assert_int_equal(sbx_str_i64(sbx_str_of(rows[i].in), INT64_MIN, INT64_MAX, &v), rows[i].ok);
		assert_int_equal(v, rows[i].v);
	}
	assert_false(sbx_str_i64(SBX_STR("11"), 0, 10, &(int64_t){ 0 }));
}

static void str_split(void **state)
{
	struct sbx_str rest = SBX_STR("a,,b"), part;

	(void)state;
	assert_true(sbx_str_split(&rest, ',', &part));
	assert_view(part, "a");
	assert_true(sbx_str_split(&rest, ',', &part));
	assert_view(part, "");
	assert_true(sbx_str_split(&rest, ',', &part));
	assert_view(part, "b");
	assert_false(sbx_str_split(&rest, ',', &part));
	assert_view(sbx_str_trim(SBX_STR(" \t x y\r\n")), "x y");
	assert_true(sbx_str_caseeqz(SBX_STR("BeArEr"), "bearer"));
	assert_false(sbx_str_copyz(SBX_STR("four"), (char[4]){ 0 }, 4));
}

static void buf_bound_is_sticky(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_buf b;

	(void)state;
	sbx_buf_init(&b, 10);
	sbx_buf_addz(&b, "0123456789");
	assert_int_equal(sbx_buf_ok(&b, &err), 0);
	sbx_buf_addc(&b, 'x');
	sbx_buf_addz(&b, "");
	assert_int_equal(sbx_buf_ok(&b, &err), -1);
	assert_int_equal(err.code, SBX_E_TOO_LARGE);
	assert_buf(&b, "0123456789");
	sbx_buf_reset(&b);
	sbx_buf_addf(&b, "%05d", 42);
	sbx_buf_consume(&b, 3);
	assert_buf(&b, "42");
	assert_null(sbx_buf_reserve(&b, SIZE_MAX));
	sbx_buf_done(&b);
	assert_string_equal(sbx_buf_z(&b), "");
}

static void buf_escapers(void **state)
{
	static const struct {
		void (*add)(struct sbx_buf *, struct sbx_str);
		struct sbx_str in;
		const char *out;
	} rows[] = {
		{ sbx_buf_json, { "a\"\\\b\f\n\r\t\x01\x7f/", 11 }, "\"a\\\"\\\\\\b\\f\\n\\r\\t\\u0001\x7f/\"" },
		{ sbx_buf_json, { "a\0b", 3 }, "\"a\\u0000b\"" },
		{ sbx_buf_json, { "\xe2\x82\xac\xff\xe2\x82", 6 },
			"\"\xe2\x82\xac\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
		{ sbx_buf_json, { "\xed\xa0\x80", 3 }, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
		{ sbx_buf_xml, { "<a b='c'>&\"\x01", 12 }, "&lt;a b=&#39;c&#39;&gt;&amp;&quot;?" },
		{ sbx_buf_logfmt, { "plain", 5 }, "plain" },
		{ sbx_buf_logfmt, { "a b=\"\nevt=forged", 16 }, "\"a b=\\\"\\nevt=forged\"" },
		{ sbx_buf_logfmt, { "", 0 }, "\"\"" },
		{ sbx_buf_url, { "a b/\xe2\x82\xac~", 8 }, "a%20b%2F%E2%82%AC~" },
		{ sbx_buf_shell, { "it's", 4 }, "'it'\\''s'" },
		{ sbx_buf_shell, { "$(x)\n", 5 }, "'$(x)\n'" },
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		struct sbx_buf b;

		sbx_buf_init(&b, 1000);
		rows[i].add(&b, rows[i].in);
		assert_buf(&b, rows[i].out);
		sbx_buf_done(&b);
	}
}

static int deferred[3], deferred_n;

static void note(void *p)
{
	deferred[deferred_n++] = *(int *)p;
}

static void arena_limit_and_defer(void **state)
{
	struct sbx_arena *a = sbx_arena_new(10000);
	int one = 1, two = 2;
	char *p;

	(void)state;
	p = sbx_arena_alloc(a, 100);
	assert_non_null(p);
	for (int i = 0; i < 100; i++)
		assert_int_equal(p[i], 0);
	assert_string_equal(sbx_arena_printf(a, "%s-%d", "x", 5), "x-5");
	assert_null(sbx_arena_dupz(a, NULL));
	assert_null(sbx_arena_alloc(a, 10000));
	assert_null(sbx_arena_alloc(a, SIZE_MAX));
	assert_null(sbx_arena_calloc(a, SIZE_MAX / 2, 4));
	assert_non_null(sbx_arena_alloc(a, 9000));
	assert_null(sbx_arena_alloc(a, 2000));
	deferred_n = 0;
	assert_int_equal(sbx_arena_defer(a, note, &one), 0);
	assert_int_equal(sbx_arena_defer(a, note, &two), 0);
	sbx_arena_reset(a);
	assert_int_equal(deferred_n, 2);
	assert_int_equal(deferred[0], 2);
	assert_int_equal(sbx_arena_used(a), 0);
	assert_non_null(sbx_arena_alloc(a, 9000));
	sbx_arena_free(a);
	sbx_arena_free(NULL);
}

static void utf8_rows(void **state)
{
	static const struct {
		const char *in;
		int next;
	} rows[] = {
		{ "a", 1 },
		{ "\xc2\x80", 2 },
		{ "\xc1\x80", 0 },
		{ "\xc0\xaf", 0 },
		{ "\xe0\x80\x80", 0 },
		{ "\xe0\xa0\x80", 3 },
		{ "\xed\x9f\xbf", 3 },
		{ "\xed\xa0\x80", 0 },
		{ "\xf0\x9f\x90\x9f", 4 },
		{ "\xf0\x80\x80\x80", 0 },
		{ "\xf4\x8f\xbf\xbf", 4 },
		{ "\xf4\x90\x80\x80", 0 },
		{ "\xf5\x80\x80\x80", 0 },
		{ "\x80", 0 },
		{ "\xe2\x82", -1 },
		{ "\xf0\x9f\x90", -1 },
		{ "\xe2\x28", 0 },
		{ "", -1 },
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++)
		assert_int_equal(sbx_utf8_next(sbx_str_of(rows[i].in)), rows[i].next);
	assert_true(sbx_utf8_valid(SBX_STR("\xe2\x82\xac\xe6\xbc\xa2\xf0\x9f\x90\x9f")));
	assert_false(sbx_utf8_valid(SBX_STR("\xe2\x82\xac\xe6\xbc")));
	for (size_t max = 0; max <= 10; max++) {
		struct sbx_str cut = sbx_utf8_cut(SBX_STR("\xe2\x82\xac\xe6\xbc\xa2\xf0\x9f\x90\x9f"), max);

		assert_true(cut.n <= max && sbx_utf8_valid(cut));
		assert_true(max < 3 || cut.n + 3 >= max);
	}
}

static void enc_round_trips(void **state)
{
	static const struct {
		const char *in, *std, *url;
	} rows[] = {
		/* RFC 4648 section 10, and the digits in which the alphabets differ */
		{ "", "", "" },
		{ "f", "Zg==", "Zg" },
		{ "fo", "Zm8=", "Zm8" },
		{ "foo", "Zm9v", "Zm9v" },
		{ "foob", "Zm9vYg==", "Zm9vYg" },
		{ "fooba", "Zm9vYmE=", "Zm9vYmE" },
		{ "foobar", "Zm9vYmFy", "Zm9vYmFy" },
		{ "\xfb\xff", "+/8=", "-_8" },
	};
	uint8_t out[16];
	size_t n;

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		size_t len = strlen(rows[i].in);
		struct sbx_buf b;

		sbx_buf_init(&b, 100);
		sbx_buf_base64(&b, rows[i].in, len);
		assert_buf(&b, rows[i].std);
		assert_true(sbx_base64_decode(sbx_buf_str(&b), out, sizeof(out), &n));
		assert_int_equal(n, len);
		sbx_buf_reset(&b);
		sbx_buf_base64url(&b, rows[i].in, len);
		assert_buf(&b, rows[i].url);
		assert_true(sbx_base64url_decode(sbx_buf_str(&b), out, len));
		assert_memory_equal(out, rows[i].in, len);
		sbx_buf_done(&b);
	}
	assert_false(sbx_base64_decode(SBX_STR("Zg="), out, sizeof(out), &n));
	assert_false(sbx_base64_decode(SBX_STR("Zh=="), out, sizeof(out), &n)); /* stray bits */
	assert_false(sbx_base64url_decode(SBX_STR("Zh"), out, 1));
	assert_false(sbx_base64url_decode(SBX_STR("Z!"), out, 1));
	assert_true(sbx_hex_decode(SBX_STR("00ff7f"), out, 3));
	assert_memory_equal(out, "\x00\xff\x7f", 3);
	assert_false(sbx_hex_decode(SBX_STR("00FF7f"), out, 3));
	assert_false(sbx_hex_decode(SBX_STR("00ff7"), out, 3));
	assert_true(sbx_ct_equal("abc", "abc", 3));
	assert_false(sbx_ct_equal("abc", "abd", 3));
}

static void clock_texts(void **state)
{
	char z[SBX_RFC3339_SIZE];

	(void)state;
	sbx_rfc3339(0, z);
	assert_string_equal(z, "1970-01-01T00:00:00.000Z");
	sbx_rfc3339(1796079674123456, z);
	assert_string_equal(z, "2026-11-30T23:01:14.123Z");
	sbx_rfc3339(-1, z);
	assert_string_equal(z, "1969-12-31T23:59:59.999Z");
	assert_int_equal(sbx_ms_left(sbx_mono_ms() - 5), 0);
	assert_in_range(sbx_ms_left(sbx_mono_ms() + 5000), 4000, 5000);
}

static void fd_files(void **state)
{
	char dir[] = "/tmp/sbx-unit-XXXXXX", path[64], deep[80];
	struct sbx_err err = SBX_ERR_INIT;
	struct stat st;
	struct sbx_buf b;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/f", dir);
	snprintf(deep, sizeof(deep), "%s/a/b/c", dir);
	assert_int_equal(sbx_fd_mkdirs(deep, 0700, &err), 0);
	assert_int_equal(sbx_fd_mkdirs(deep, 0700, &err), 0);
	assert_int_equal(sbx_fd_replace(path, SBX_STR("one"), 0600, false, &err), 0);
	assert_int_equal(sbx_fd_replace(path, SBX_STR("two"), 0640, true, &err), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0640);
	sbx_buf_init(&b, 3);
	assert_int_equal(sbx_fd_slurp(path, &b, &err), 0);
	assert_buf(&b, "two");
	assert_int_equal(sbx_fd_slurp(path, &b, &err), -1);
	assert_int_equal(err.code, SBX_E_TOO_LARGE);
	sbx_buf_done(&b);
	sbx_err_clear(&err);
	assert_int_equal(sbx_fd_slurp(deep, &b, &err), -1);
	sbx_err_clear(&err);
	unlink(path);
	assert_int_equal(sbx_fd_slurp(path, &b, &err), -1);
	assert_int_equal(err.code, SBX_E_NOT_FOUND);
	rmdir(deep);
	*strrchr(deep, '/') = '\0';
	rmdir(deep);
	*strrchr(deep, '/') = '\0';
	rmdir(deep);
	rmdir(dir);
}

static void frames_in_any_pieces(void **state)
{
	struct sbx_buf b;
	struct sbx_str in;
	struct sbx_frame f;
	uint64_t v;

	(void)state;
	sbx_buf_init(&b, 1000);
	sbx_frame_addz(&b, 'o', "hello");
	sbx_frame_add_u64(&b, 't', UINT64_MAX - 1);
	sbx_frame_add(&b, 'k', "", 0);
	for (size_t n = 0; n < 10; n++) {
		in = (struct sbx_str){ b.p, n };
		assert_int_equal(sbx_frame_take(&in, 100, &f), 0);
		assert_int_equal(in.n, n);
	}
	in = sbx_buf_str(&b);
	assert_int_equal(sbx_frame_take(&in, 100, &f), 1);
	assert_int_equal(f.type, 'o');
	assert_view(f.data, "hello");
	assert_false(sbx_frame_u64(&f, &v));
	assert_int_equal(sbx_frame_take(&in, 100, &f), 1);
	assert_true(sbx_frame_u64(&f, &v));
	assert_true(v == UINT64_MAX - 1);
	assert_int_equal(sbx_frame_take(&in, 100, &f), 1);
	assert_int_equal(f.data.n, 0);
	assert_int_equal(sbx_frame_take(&in, 100, &f), 0);
	in = SBX_STR("x\xff\xff\xff\xff");
	assert_int_equal(sbx_frame_take(&in, 100, &f), -1);
	sbx_buf_done(&b);
}

/* What a log line looks like, taken from a pipe in place of standard error. */
static void log_lines_cannot_be_forged(void **state)
{
	char line[5000];
	int p[2], saved = dup(STDERR_FILENO);
	ssize_t n;

	(void)state;
	assert_int_equal(pipe(p), 0);
	dup2(p[1], STDERR_FILENO);
	sbx_log_open("unit");
	errno = EBUSY;
	sbx_log(SBX_LOG_INFO, "a.b", sbx_kv_s("box", "x\nts=1 level=error"), sbx_kv_i("n", -3));
	assert_int_equal(errno, EBUSY);
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(p[1]);
	n = read(p[0], line, sizeof(line) - 1);
	close(p[0]);
	assert_true(n > 0);
	line[n] = '\0';
	assert_non_null(strstr(line, " level=info unit=unit evt=a.b box=\"x\\nts=1 level=error\" n=-3\n"));
	assert_ptr_equal(strchr(line, '\n'), line + n - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(err_first_wins),
		TEST(err_codes),
		TEST(str_numbers),
		TEST(str_split),
		TEST(buf_bound_is_sticky),
		TEST(buf_escapers),
		TEST(arena_limit_and_defer),
		TEST(utf8_rows),
		TEST(enc_round_trips),
		TEST(clock_texts),
		TEST(fd_files),
		TEST(frames_in_any_pieces),
		TEST(log_lines_cannot_be_forged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
