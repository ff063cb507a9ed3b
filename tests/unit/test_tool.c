/*
 * The catalogue: tools/list and the documentation page against golden files (SBX_REGENERATE=1
 * rewrites them), and what every tool must keep.
 */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "../lib/test.h"
#include "sbx/fd.h"
#include "sbx/tool.h"

static void same_as_file(const struct sbx_buf *b, const char *path)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_buf golden;

	if (getenv("SBX_REGENERATE"))
		assert_int_equal(sbx_fd_replace(path, sbx_buf_str(b), 0644, false, &err), 0);
	sbx_buf_init(&golden, 1 << 20);
	assert_int_equal(sbx_fd_slurp(path, &golden, &err), 0);
	assert_int_equal(golden.n, b->n);
	assert_memory_equal(golden.p, b->p, b->n);
	sbx_buf_done(&golden);
}

static void list_is_golden(void **state)
{
	struct sbx_buf b, pretty;
	struct sbx_jw w;
	cJSON *tree;
	char *text;

	(void)state;
	sbx_buf_init(&b, 1 << 20);
	sbx_buf_init(&pretty, 1 << 20);
	sbx_jw_init(&w, &b);
	sbx_tool_list(&sbx_catalogue_box, &w, NULL);
	assert_int_equal(sbx_json_check(sbx_buf_str(&b), NULL), 0);
	tree = cJSON_ParseWithLength(b.p, b.n);
	text = cJSON_Print(tree);
	sbx_buf_addf(&pretty, "%s\n", text);
	same_as_file(&pretty, "tests/data/tools_list.json");
	cJSON_free(text);
	cJSON_Delete(tree);
	sbx_buf_done(&b);
	sbx_buf_done(&pretty);
}

static void page_is_golden(void **state)
{
	struct sbx_buf b;

	(void)state;
	sbx_buf_init(&b, 1 << 20);
	sbx_tool_page(&sbx_catalogue_box, &b);
	same_as_file(&b, "nginx/www/tools.md");
	sbx_buf_done(&b);
}

/* Names that model vendors accept, objects at every root, nothing but type and properties there. */
static void tools_keep_the_rules(void **state)
{
	(void)state;
	for (size_t i = 0; i < sbx_catalogue_box.n; i++) {
		const struct sbx_tool *t = sbx_catalogue_box.tools[i];

		assert_in_range(strlen(t->name), 1, 64);
		assert_int_equal(strspn(t->name, "abcdefghijklmnopqrstuvwxyz_"), strlen(t->name));
		assert_true(t->title && t->description && t->run);
		assert_ptr_equal(sbx_tool_find(&sbx_catalogue_box, sbx_str_of(t->name)), t);
		for (size_t k = 0; k < t->in.n; k++)
			assert_true(t->in.rows[k].help != NULL && t->in.rows[k].offset < t->in.size);
	}
	assert_null(sbx_tool_find(&sbx_catalogue_box, SBX_STR("sandbox_")));
}

static enum sbx_step call_with(const char *tool, const char *arguments, enum sbx_scope scope, struct sbx_err *err)
{
	struct sbx_call call = { .arena = sbx_arena_new(1 << 20), .who = { .scope = scope } };
	struct sbx_buf b;
	struct sbx_jw w;
	enum sbx_step step;

	sbx_buf_init(&b, 1000);
	sbx_jw_init(&w, &b);
	sbx_jw_obj(&w, NULL);
	step = sbx_tool_call(sbx_tool_find(&sbx_catalogue_box, sbx_str_of(tool)), &call,
		sbx_json_parse(call.arena, sbx_str_of(arguments), err), &w, err);
	sbx_buf_done(&b);
	sbx_arena_free(call.arena);
	return step;
}

/* Arguments that are refused before anything happens. */
static void bad_arguments(void **state)
{
	static const struct {
		const char *tool, *arguments, *says;
	} rows[] = {
		{ "sandbox_start", "{\"services\":[{\"name\":\"web\",\"port\":70000}]}",
			"`services[0].port` must be from 1 to 65535" },
		{ "sandbox_start", "{\"services\":[{\"name\":\"web\",\"port\":0}]}",
			"`services[0].port` must be from 1 to 65535" },
		{ "sandbox_start", "{\"services\":[{\"name\":\"web\",\"port\":1},{\"name\":\"web\",\"port\":2}]}",
			"`services[1].name` is \"web\" again: each service needs a name of its own" },
		{ "sandbox_start", "{\"services\":[{\"name\":\"We b\",\"port\":1}]}",
			"`services[0].name` must match ^[a-z][a-z0-9]*(-[a-z0-9]+)*$" },
		{ "sandbox_start", "{\"services\":[{\"name\":\"a--b\",\"port\":1}]}",
			"`services[0].name` must match ^[a-z][a-z0-9]*(-[a-z0-9]+)*$" },
		{ "sandbox_start", "{\"idleTimeoutMin\":0}", "`idleTimeoutMin` must be from 1 to 525600" },
		{ "sandbox_start", "{\"idleTimeoutMin\":-1}", "`idleTimeoutMin` must be from 1 to 525600" },
		{ "sandbox_start", "{\"idleTimeoutMin\":\"5\"}", "`idleTimeoutMin` must be a whole number" },
		{ "sandbox_start", "{\"idleTimeoutMin\":1e9}", "`idleTimeoutMin` must be from 1 to 525600" },
		{ "sandbox_start", "{\"externalBaseUrl\":\"ftp://x\"}", "`externalBaseUrl` must match ^https?://" },
		{ "sandbox_start", "{\"externalBaseUrl\":\"http://a b\"}", "`externalBaseUrl` must match ^https?://" },
		{ "sandbox_start", "{\"secrets\":[\"TOKEN\"]}",
			"There is no secret \"TOKEN\". This installation stores no secrets; nothing was started." },
		{ "sandbox_start", "[]", "An object is expected" },
		{ "sandbox_exec", "{\"id\":\"x\",\"cmd\":\"\"}", "`cmd` must not be empty" },
		{ "sandbox_exec", "{\"id\":\"x\"}", "`cmd` is missing" },
		{ "sandbox_exec", "{\"id\":\"x\",\"cmd\":\"true\",\"timeoutSec\":3601}",
			"`timeoutSec` must be from 1 to 3600" },
		{ "sandbox_exec", "{\"id\":\"x\",\"cmd\":\"true\",\"background\":\"yes\"}",
			"`background` must be true or false" },
		{ "sandbox_result", "{\"id\":\"x\"}", "Give `execId` or `bgId`, one of them" },
		{ "sandbox_result", "{\"id\":\"x\",\"execId\":\"../../etc\"}", "`execId` must match ^[0-9a-f]{32}$" },
		{ "sandbox_environments", "{\"x\":1}", "`x` is not known here" },
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		struct sbx_err err = SBX_ERR_INIT;

		assert_int_equal(call_with(rows[i].tool, rows[i].arguments, SBX_SCOPE_FULL, &err), SBX_FAILED);
		assert_int_equal(err.code, SBX_E_INVALID);
		assert_string_equal(err.msg, rows[i].says);
	}
}

static void read_keys_change_nothing(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;

	(void)state;
	assert_int_equal(call_with("sandbox_stop", "{\"id\":\"x\"}", SBX_SCOPE_READ, &err), SBX_FAILED);
	assert_int_equal(err.code, SBX_E_FORBIDDEN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(list_is_golden),
		TEST(page_is_golden),
		TEST(tools_keep_the_rules),
		TEST(bad_arguments),
		TEST(read_keys_change_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
