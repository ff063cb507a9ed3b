/*
 * API keys against the database: what is valid, what is not, and what use leaves behind.
 */
#include "it.h"

#include <stdio.h>
#include <string.h>

#include "sbx/auth.h"
#include "sbx/enc.h"

static PGconn *owner;
static struct sbx_db_pool *pool;
static char tenant[37], key[SBX_KEY_TEXT + 1], hash[2 * SBX_SHA256_SIZE + 1];

static void sql(const char *format)
{
	char text[500];
	snprintf(text, sizeof(text), "update sbx.%s hash = '\\x%s'", format, hash);
	it_value(owner, text);
}

static void expect(const char *text, enum sbx_code code, struct sbx_principal *ret)
{
	struct sbx_err err = SBX_ERR_INIT;
	sbx_auto_db struct sbx_db *db = sbx_db_take(pool, 1000, &err);
	struct sbx_principal who = { .max_boxes = -1 };
	int rc = sbx_auth_check(db, sbx_str_of(text), &who, &err);
	if (err.code != code)
		fail_msg("%s (%s)", err.msg, err.detail);
	assert_int_equal(rc, code == SBX_OK ? 0 : -1);
	if (rc < 0) {
		assert_int_equal(who.max_boxes, -1);
		assert_string_equal(err.msg, "The API key is not valid.");
	}
	if (ret != NULL)
		*ret = who;
}

static void test_principal(void **state)
{
	(void)state;
	struct sbx_principal who;
	expect(key, SBX_OK, &who);
	assert_string_equal(who.tenant_id, tenant);
	assert_string_equal(who.tenant, "keys");
	assert_string_equal(who.plan, "free");
	assert_int_equal(who.max_boxes, 3);
	assert_int_equal(who.scope, SBX_SCOPE_AGENT);
	assert_int_equal(strlen(who.key_id), 36);
}

static void test_unknown(void **state)
{
	(void)state;
	char other[SBX_KEY_TEXT + 1];
	uint8_t other_hash[SBX_SHA256_SIZE];
	assert_int_equal(sbx_auth_make_key(other, other_hash, NULL), 0);
	expect(other, SBX_E_AUTH, NULL);
	expect("", SBX_E_AUTH, NULL);
	expect("sbx_", SBX_E_AUTH, NULL);
	expect("' or true --", SBX_E_AUTH, NULL);
}

static void test_refused(void **state)
{
	(void)state;
	sql("api_keys set revoked_at = now() where");
	expect(key, SBX_E_AUTH, NULL);
	sql("api_keys set revoked_at = null where");
	expect(key, SBX_OK, NULL);
	sql("api_keys set expires_at = now() - interval '1 s' where");
	expect(key, SBX_E_AUTH, NULL);
	sql("api_keys set expires_at = now() + interval '1 hour' where");
	expect(key, SBX_OK, NULL);
	it_value(owner, "update sbx.tenants set suspended_at = now() where name = 'keys'");
	expect(key, SBX_E_AUTH, NULL);
	it_value(owner, "update sbx.tenants set suspended_at = null where name = 'keys'");
	expect(key, SBX_OK, NULL);
}

static const char *last_used(void)
{
	char text[300];
	snprintf(text, sizeof(text), "select last_used_at from sbx.api_keys where hash = '\\x%s'", hash);
	return it_value(owner, text);
}

static void test_last_use(void **state)
{
	(void)state;
	char first[64];
	sql("api_keys set last_used_at = null where");
	expect(key, SBX_OK, NULL);
	snprintf(first, sizeof(first), "%s", last_used());
	assert_string_not_equal(first, "");
	/* Not written again within a minute. */
	expect(key, SBX_OK, NULL);
	assert_string_equal(last_used(), first);
	sql("api_keys set last_used_at = now() - interval '61 s' where");
	snprintf(first, sizeof(first), "%s", last_used());
	expect(key, SBX_OK, NULL);
	assert_string_not_equal(last_used(), first);
	/* A refused key leaves no mark. */
	sql("api_keys set last_used_at = null, revoked_at = now() where");
	expect(key, SBX_E_AUTH, NULL);
	assert_string_equal(last_used(), "");
	sql("api_keys set revoked_at = null where");
}

/* A locked row delays nobody: the mark is left out. */
static void test_locked_row(void **state)
{
	(void)state;
	PGconn *other = it_connect("sbx_owner");
	sql("api_keys set last_used_at = null where");
	it_value(other, "begin; update sbx.api_keys set name = name");
	expect(key, SBX_OK, NULL);
	it_value(other, "rollback");
	assert_string_equal(last_used(), "");
	PQfinish(other);
}

static int setup(void **state)
{
	(void)state;
	char text[500];
	uint8_t h[SBX_SHA256_SIZE];
	owner = it_connect("sbx_owner");
	pool = it_pool("sbx_worker", 2);
	it_tenant(owner, "keys", tenant);
	if (sbx_auth_make_key(key, h, NULL) < 0)
		return -1;
	sbx_hexz(h, sizeof(h), hash);
	snprintf(text, sizeof(text),
		"insert into sbx.api_keys (tenant_id, prefix, hash, scope)"
		" values ('%s', 'sbx_000000', '\\x%s', 'agent')",
		tenant, hash);
	it_value(owner, text);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	PQfinish(owner);
	sbx_db_pool_free(pool);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_principal),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_last_use),
		cmocka_unit_test(test_locked_row),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
