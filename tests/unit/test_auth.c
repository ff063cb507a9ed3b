#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sbx/auth.h"
#include "sbx/clock.h"
#include "sbx/enc.h"
#include "sbx/fd.h"

#define K1 "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define K2 "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eff"

static char dir[] = "/tmp/sbx-auth.XXXXXX";
static char path[64];

static struct sbx_str unhex(const char *hex, uint8_t *out)
{
	size_t n = strlen(hex) / 2;
	assert_true(sbx_hex_decode(sbx_str_of(hex), out, n));
	return (struct sbx_str){ (const char *)out, n };
}

static void assert_hex(const uint8_t *p, size_t n, const char *want)
{
	char got[256];
	assert_true(2 * n < sizeof(got));
	sbx_hexz(p, n, got);
	assert_string_equal(got, want);
}

/* FIPS 180-2, appendix B. */
static void test_sha256(void **state)
{
	(void)state;
	uint8_t out[32];
	assert_int_equal(sbx_sha256("abc", 3, out, NULL), 0);
	assert_hex(out, 32, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	assert_int_equal(sbx_sha256("", 0, out, NULL), 0);
	assert_hex(out, 32, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

/* RFC 4231, cases 1, 2 and 6. */
static void test_hmac(void **state)
{
	(void)state;
	uint8_t key[131], out[32];
	memset(key, 0x0b, 20);
	assert_int_equal(sbx_hmac_sha256(key, 20, "Hi There", 8, out, NULL), 0);
	assert_hex(out, 32, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
	assert_int_equal(sbx_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, out, NULL), 0);
	assert_hex(out, 32, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
	memset(key, 0xaa, 131);
	assert_int_equal(
		sbx_hmac_sha256(key, 131, "Test Using Larger Than Block-Size Key - Hash Key First", 54, out, NULL), 0);
	assert_hex(out, 32, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

/* RFC 5869, appendix A, cases 1 to 3. */
static void test_hkdf(void **state)
{
	(void)state;
	static const struct {
		const char *key, *salt, *info, *okm;
	} rows[] = {
		{ "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "000102030405060708090a0b0c", "f0f1f2f3f4f5f6f7f8f9",
			"3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5"
			"b887185865" },
		{ "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f2021222324252627"
		  "28292a2b2c2d2e"
		  "2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f",
			"606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f8081828384"
			"85868788898a8b8c"
			"8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
			"b0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4"
			"d5d6d7d8d9dadbdc"
			"dddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
			"b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99ca"
			"c7827271cb41c65e"
			"590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d8"
			"7" },
		{ "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "", "",
			"8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395fa"
			"a4b61a96c8" },
	};
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		uint8_t key[80], salt[80], info[80], out[96];
		size_t n = strlen(rows[i].okm) / 2;
		assert_int_equal(sbx_hkdf_sha256(unhex(rows[i].key, key), unhex(rows[i].salt, salt),
					 unhex(rows[i].info, info), out, n, NULL),
			0);
		assert_hex(out, n, rows[i].okm);
	}
}

static void test_key_form(void **state)
{
	(void)state;
	char key[SBX_KEY_TEXT + 1], again[SBX_KEY_TEXT + 1];
	uint8_t hash[32], want[32];
	assert_int_equal(sbx_auth_make_key(key, hash, NULL), 0);
	assert_int_equal(sbx_auth_make_key(again, want, NULL), 0);
	assert_string_not_equal(key, again);
	assert_int_equal(strlen(key), SBX_KEY_TEXT);
	assert_true(sbx_auth_is_key(sbx_str_of(key)));
	assert_int_equal(sbx_sha256(key, strlen(key), want, NULL), 0);
	assert_memory_equal(hash, want, 32);

	static const char *const bad[] = {
		"",
		"sbx_",
		"sbx_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		"sbx_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", /* 44 */
		"sby_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		"sbx_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA+",
		"sbx_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
		"sbx_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB", /* bits that no encoder writes */
		"SBX_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	};
	assert_true(sbx_auth_is_key(SBX_STR("sbx_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")));
	for (size_t i = 0; i < SBX_ARRAY_LEN(bad); i++)
		assert_false(sbx_auth_is_key(sbx_str_of(bad[i])));
}

/* What is no key never reaches the database: there is none here. */
static void test_check_malformed(void **state)
{
	(void)state;
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_principal who;
	assert_int_equal(sbx_auth_check(NULL, SBX_STR("sbx_short"), &who, &err), -1);
	assert_int_equal(err.code, SBX_E_AUTH);
}

static void test_scopes(void **state)
{
	(void)state;
	static const char *const names[] = { "full", "agent", "read" };
	enum sbx_scope s;
	for (size_t i = 0; i < SBX_ARRAY_LEN(names); i++) {
		assert_true(sbx_scope_parse(names[i], &s));
		assert_string_equal(sbx_scope_name(s), names[i]);
	}
	assert_false(sbx_scope_parse("admin", &s));
	assert_false(sbx_scope_parse(NULL, &s));
}

static struct sbx_keyring *open_text(const char *text, mode_t mode, struct sbx_err *err)
{
	sbx_err_clear(err);
	assert_int_equal(sbx_fd_replace(path, sbx_str_of(text), mode, false, NULL), 0);
	assert_int_equal(chmod(path, mode), 0);
	return sbx_keyring_open(path, err);
}

static void test_keyring_file(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		enum sbx_code code;
		int kid;
	} rows[] = {
		{ "1 " K1 "\n", SBX_OK, 1 },
		{ "1 " K1, SBX_OK, 1 },
		{ "# made today\n\n255 " K1 "\r\n1 " K2 "\n", SBX_OK, 255 },
		{ "", SBX_E_INVALID, 0 },
		{ "# nothing\n", SBX_E_INVALID, 0 },
		{ "0 " K1 "\n", SBX_E_INVALID, 0 },
		{ "256 " K1 "\n", SBX_E_INVALID, 0 },
		{ "x " K1 "\n", SBX_E_INVALID, 0 },
		{ "1" K1 "\n", SBX_E_INVALID, 0 },
		{ "1 " K1 "00\n", SBX_E_INVALID, 0 },
		{ "1 00\n", SBX_E_INVALID, 0 },
		{ "1 " K1 "\n1 " K2 "\n", SBX_E_INVALID, 0 },
		{ "1 " K1 "\n2 " K2 "\n3 " K1 "\n", SBX_E_INVALID, 0 },
	};
	struct sbx_err err = SBX_ERR_INIT;
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		struct sbx_keyring *kr = open_text(rows[i].text, 0640, &err);
		assert_int_equal(err.code, rows[i].code);
		assert_int_equal(kr != NULL, rows[i].code == SBX_OK);
		if (kr != NULL)
			assert_int_equal(sbx_keyring_current_kid(kr), rows[i].kid);
		assert_null(strstr(err.msg, "0001020304"));
		sbx_keyring_free(kr);
	}
	assert_null(open_text("1 " K1 "\n", 0644, &err));
	assert_int_equal(err.code, SBX_E_FORBIDDEN);
	sbx_err_clear(&err);
	assert_null(sbx_keyring_open("/nonexistent/key", &err));
	assert_int_equal(err.code, SBX_E_NOT_FOUND);
	sbx_err_clear(&err);
	assert_null(sbx_keyring_open("/tmp", &err));
	assert_int_equal(err.code, SBX_E_INVALID);
}

static void test_boxd_key(void **state)
{
	(void)state;
	struct sbx_err err = SBX_ERR_INIT;
	uint8_t machine[16], other[16], a[32], b[32], want[32], master[32];
	char info[28] = "sbx boxd";
	struct sbx_keyring *kr = open_text("7 " K1 "\n8 " K2 "\n", 0600, &err);
	assert_non_null(kr);
	memset(machine, 0x11, 16);
	memset(other, 0x12, 16);
	assert_int_equal(sbx_keyring_boxd_key(kr, 7, machine, 0x01020304, a, &err), 0);
	memcpy(info + 8, machine, 16);
	memcpy(info + 24, "\1\2\3\4", 4);
	assert_int_equal(
		sbx_hkdf_sha256(unhex(K1, master), SBX_STR(""), (struct sbx_str){ info, 28 }, want, 32, &err), 0);
	assert_memory_equal(a, want, 32);
	/* Another epoch, machine or master key is another key. */
	assert_int_equal(sbx_keyring_boxd_key(kr, 7, machine, 5, b, &err), 0);
	assert_memory_not_equal(a, b, 32);
	assert_int_equal(sbx_keyring_boxd_key(kr, 7, other, 0x01020304, b, &err), 0);
	assert_memory_not_equal(a, b, 32);
	assert_int_equal(sbx_keyring_boxd_key(kr, 8, machine, 0x01020304, b, &err), 0);
	assert_memory_not_equal(a, b, 32);
	assert_int_equal(sbx_keyring_boxd_key(kr, 9, machine, 1, b, &err), -1);
	assert_int_equal(err.code, SBX_E_NOT_FOUND);
	sbx_keyring_free(kr);
}

static void test_boxd_token(void **state)
{
	(void)state;
	struct sbx_err err = SBX_ERR_INIT;
	uint8_t machine[16] = { 1, 2, 3 }, key[32], mac[32], raw[SBX_BOXTOKEN_SIZE];
	char text[SBX_BOXTOKEN_TEXT + 1], again[SBX_BOXTOKEN_TEXT + 1];
	struct sbx_boxtoken t;
	struct sbx_keyring *kr = open_text("7 " K1 "\n", 0600, &err);
	int64_t before = sbx_wall_us();
	assert_int_equal(sbx_keyring_boxd_token(kr, SBX_BOXTOKEN_EXEC, 7, machine, 3, 5000, text, &err), 0);
	assert_int_equal(sbx_keyring_boxd_token(kr, SBX_BOXTOKEN_EXEC, 7, machine, 3, 5000, again, &err), 0);
	assert_string_not_equal(text, again);
	assert_int_equal(strlen(text), SBX_BOXTOKEN_TEXT);
	assert_true(sbx_boxtoken_parse(sbx_str_of(text), &t, raw));
	assert_int_equal(t.purpose, SBX_BOXTOKEN_EXEC);
	assert_int_equal(t.kid, 7);
	assert_int_equal(t.epoch, 3);
	assert_int_equal(t.ttl_ms, 5000);
	assert_memory_equal(t.machine, machine, 16);
	assert_in_range(t.issued_at_us, before, sbx_wall_us());
	assert_int_equal(sbx_keyring_boxd_key(kr, 7, machine, 3, key, &err), 0);
	assert_int_equal(sbx_hmac_sha256(key, 32, raw, SBX_BOXTOKEN_SIGNED, mac, &err), 0);
	assert_memory_equal(mac, t.mac, 32);
	sbx_keyring_free(kr);
}

static void test_ids(void **state)
{
	(void)state;
	char id[SBX_BOX_ID_CHARS + 1], before[SBX_BOX_ID_CHARS + 1] = "", uuid[SBX_UUID_SIZE];
	for (int i = 0; i < 200; i++) {
		assert_int_equal(sbx_box_id_new(id, NULL), 0);
		assert_int_equal(strlen(id), 27);
		assert_int_equal(id[0], 'b');
		assert_int_equal(strspn(id, "abcdefghijklmnopqrstuvwxyz234567"), 27);
		/* Three bits stand in the last character. */
		assert_non_null(strchr("aeimquy4", id[26]));
		assert_string_not_equal(id, before);
		memcpy(before, id, sizeof(id));
		assert_int_equal(sbx_uuid_new(uuid, NULL), 0);
		assert_int_equal(strlen(uuid), 36);
		assert_int_equal(uuid[14], '4');
		assert_non_null(strchr("89ab", uuid[19]));
		assert_true(uuid[8] == '-' && uuid[13] == '-' && uuid[18] == '-' && uuid[23] == '-');
	}
}

static void *derive(void *arg)
{
	uint8_t machine[16] = { 9 }, key[32];
	for (uint32_t i = 0; i < 500; i++)
		if (sbx_keyring_boxd_key(arg, 7, machine, i, key, NULL) < 0)
			return arg;
	return NULL;
}

static void test_threads(void **state)
{
	(void)state;
	struct sbx_err err = SBX_ERR_INIT;
	pthread_t t[4];
	struct sbx_keyring *kr = open_text("7 " K1 "\n", 0600, &err);
	for (size_t i = 0; i < SBX_ARRAY_LEN(t); i++)
		assert_int_equal(pthread_create(&t[i], NULL, derive, kr), 0);
	for (size_t i = 0; i < SBX_ARRAY_LEN(t); i++) {
		void *failed = NULL;
		assert_int_equal(pthread_join(t[i], &failed), 0);
		assert_null(failed);
	}
	sbx_keyring_free(kr);
}

static int setup(void **state)
{
	(void)state;
	if (mkdtemp(dir) == NULL)
		return -1;
	snprintf(path, sizeof(path), "%s/master.key", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sha256),
		cmocka_unit_test(test_hmac),
		cmocka_unit_test(test_hkdf),
		cmocka_unit_test(test_key_form),
		cmocka_unit_test(test_check_malformed),
		cmocka_unit_test(test_scopes),
		cmocka_unit_test(test_keyring_file),
		cmocka_unit_test(test_boxd_key),
		cmocka_unit_test(test_boxd_token),
		cmocka_unit_test(test_ids),
		cmocka_unit_test(test_threads),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
