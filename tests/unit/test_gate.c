/* The cap of calls a tenant has under way in one process. */
#include <stdio.h>
#include <string.h>

#include "../lib/test.h"
#include "api/api.h"

static void cap_a_tenant(void **state)
{
	struct sbx_arena *calls[4];
	struct sbx_err err = SBX_ERR_INIT;

	(void)state;
	assert_int_equal(sbx_gate_init(3, &err), 0);
	for (int i = 0; i < 4; i++) {
		calls[i] = sbx_arena_new(10000);
		assert_int_equal(sbx_gate_enter(calls[i], "one", &err), i < 3 ? 0 : -1);
	}
	assert_int_equal(err.code, SBX_E_BUSY);
	assert_non_null(strstr(err.msg, "3 calls under way"));
	sbx_err_clear(&err);
	assert_int_equal(sbx_gate_enter(calls[3], "two", &err), 0);
	sbx_arena_reset(calls[0]);
	assert_int_equal(sbx_gate_enter(calls[0], "one", &err), 0);
	for (int i = 0; i < 4; i++)
		sbx_arena_free(calls[i]);
}

/* More tenants than the table begins with; each keeps its own count. */
static void many_tenants(void **state)
{
	enum { TENANTS = 1000 };
	static struct sbx_arena *calls[TENANTS];
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_arena *more = sbx_arena_new(10000);
	char name[16];

	(void)state;
	assert_int_equal(sbx_gate_init(1, &err), 0);
	for (int i = 0; i < TENANTS; i++) {
		calls[i] = sbx_arena_new(10000);
		snprintf(name, sizeof(name), "t%d", i);
		assert_int_equal(sbx_gate_enter(calls[i], name, &err), 0);
	}
	for (int i = 0; i < TENANTS; i++) {
		snprintf(name, sizeof(name), "t%d", i);
		sbx_err_clear(&err);
		assert_int_equal(sbx_gate_enter(more, name, &err), -1);
		assert_int_equal(err.code, SBX_E_BUSY);
		sbx_arena_reset(more);
	}
	for (int i = 0; i < TENANTS; i++)
		sbx_arena_free(calls[i]);
	sbx_err_clear(&err);
	assert_int_equal(sbx_gate_enter(more, "t7", &err), 0);
	sbx_arena_free(more);
}

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(cap_a_tenant), TEST(many_tenants) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
