/* json: the strict check, raw members, the writer, schemas and decoding. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "../lib/test.h"
#include "sbx/conf.h"
#include "sbx/schema.h"

static void check_rows(void **state)
{
	static const struct {
		const char *text;
		bool ok;
	} rows[] = {
		{ "{}", true },
		{ " [1, -0.5e+3, true, false, null, \"x\"] ", true },
		{ "\"\\u20ac\\ud83d\\udc1f\"", true },
		{ "", false },
		{ "{", false },
		{ "{}x", false },
		{ "{} {}", false },
		{ "[1,]", false },
		{ "{\"a\":1,}", false },
		{ "{a:1}", false },
		{ "{\"a\" 1}", false },
		{ "01", false },
		{ "-", false },
		{ "1.", false },
		{ ".5", false },
		{ "1e", false },
		{ "+1", false },
		{ "NaN", false },
		{ "tru", false },
		{ "'x'", false },
		{ "\"a\nb\"", false },
		{ "\"\\x41\"", false },
		{ "\"\\u12\"", false },
		{ "\"\\ud800\"", false },
		{ "\"\\udc00\"", false },
		{ "\"\\ud800\\u0041\"", false },
		{ "\"a\\u0000b\"", false },
		{ "\"\xff\"", false },
		{ "\xef\xbb\xbf{}", false },
		{ "\"", false },
		{ "\"\\", false },
		{ "/**/1", false },
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		struct sbx_err err = SBX_ERR_INIT;

		assert_int_equal(sbx_json_check(sbx_str_of(rows[i].text), &err), rows[i].ok ? 0 : -1);
		assert_int_equal(err.code, rows[i].ok ? SBX_OK : SBX_E_MALFORMED);
	}
	assert_int_equal(sbx_json_check((struct sbx_str){ "1\0", 2 }, NULL), -1);
}

static void check_bounds(void **state)
{
	char deep[200];
	struct sbx_buf wide;

	(void)state;
	memset(deep, '[', 40);
	memset(deep + 40, ']', 40);
	assert_int_equal(sbx_json_check((struct sbx_str){ deep, 80 }, NULL), -1);
	assert_int_equal(sbx_json_check((struct sbx_str){ deep + 10, 60 }, NULL), 0);
	sbx_buf_init(&wide, 1 << 20);
	sbx_buf_addz(&wide, "[0");
	for (int i = 0; i < SBX_JSON_VALUES_MAX; i++)
		sbx_buf_addz(&wide, ",0");
	sbx_buf_addz(&wide, "]");
	assert_int_equal(sbx_json_check(sbx_buf_str(&wide), NULL), -1);
	sbx_buf_done(&wide);
}

static void raw_members(void **state)
{
	static const struct {
		const char *text, *raw; /* raw NULL: none */
	} rows[] = {
		{ "{\"id\":1}", "1" },
		{ "{ \"a\" : {\"id\":7} , \"id\" : \"x\\\"y\" }", "\"x\\\"y\"" },
		{ "{\"id\":9007199254740991}", "9007199254740991" },
		{ "{\"id\":null}", "null" },
		{ "{\"x\":1}", NULL },
		{ "[1]", NULL },
		{ "{\"params\":[\"id\",{\"id\":2}],\"id\":-3}", "-3" },
	};
	struct sbx_str raw;

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		assert_int_equal(sbx_json_member_raw(sbx_str_of(rows[i].text), "id", &raw), rows[i].raw != NULL);
		if (rows[i].raw)
			assert_view(raw, rows[i].raw);
	}
}

static void writer(void **state)
{
	struct sbx_buf b;
	struct sbx_jw w;

	(void)state;
	sbx_buf_init(&b, 1000);
	sbx_jw_init(&w, &b);
	sbx_jw_obj(&w, NULL);
	sbx_jw_i(&w, "n", INT64_MIN);
	sbx_jw_arr(&w, "list");
	sbx_jw_bool(&w, NULL, true);
	sbx_jw_null(&w, NULL);
	sbx_jw_obj(&w, NULL);
	sbx_jw_end(&w);
	sbx_jw_end(&w);
	sbx_jw_z(&w, "s", NULL);
	sbx_jw_raw(&w, "raw", SBX_STR("[1]"));
	sbx_jw_end(&w);
	assert_buf(&b, "{\"n\":-9223372036854775808,\"list\":[true,null,{}],\"s\":null,\"raw\":[1]}");
	sbx_buf_done(&b);
}

struct inner {
	const char *name;
	struct sbx_opt_int port;
};
struct outer {
	const char *text, *choice;
	struct sbx_opt_int n;
	struct sbx_opt_bool flag;
	struct sbx_strs words;
	struct sbx_objs list;
};

static const char *const choices[] = { "red", "green", NULL };
static const struct sbx_field inner_rows[] = {
	SBX_IN(struct inner, name, "name", "its name", .required = true, .min = 1, .max = 5),
	SBX_IN(struct inner, port, "port", "its port", .required = true, .min = 1, .max = 65535),
};
static const struct sbx_fields inner_fields = SBX_FIELDS(inner_rows, struct inner);
static const struct sbx_field outer_rows[] = {
	SBX_IN(struct outer, text, "text", "some text", .required = true, .min = 1, .max = 8),
	SBX_IN(struct outer, choice, "choice", "a colour", .choices = choices),
	SBX_IN(struct outer, n, "n", "a number", .min = -5, .max = 5),
	SBX_IN(struct outer, flag, "flag", "yes or no"),
	SBX_IN(struct outer, words, "words", "words", .max = 2),
	SBX_IN(struct outer, list, "list", "things", .max = 2, .items = &inner_fields),
};
static const struct sbx_fields outer_fields = SBX_FIELDS(outer_rows, struct outer);

static void decode_good(void **state)
{
	struct sbx_arena *a = sbx_arena_new(1 << 20);
	struct sbx_err err = SBX_ERR_INIT;
	struct outer o = { 0 };
	const struct cJSON *tree = sbx_json_parse(a,
		SBX_STR("{\"text\":\"hi\",\"choice\":\"green\",\"n\":-5,\"flag\":true,\"words\":[\"a\",\"b\"],"
			"\"list\":[{\"name\":\"x\",\"port\":80}]}"),
		&err);

	(void)state;
	assert_int_equal(sbx_schema_decode(a, tree, &outer_fields, &o, &err), 0);
	assert_string_equal(o.text, "hi");
	assert_string_equal(o.choice, "green");
	assert_true(o.n.set && o.n.v == -5 && o.flag.set && o.flag.v);
	assert_int_equal(o.words.n, 2);
	assert_string_equal(o.words.v[1], "b");
	assert_int_equal(o.list.n, 1);
	assert_string_equal(((struct inner *)o.list.v)[0].name, "x");
	assert_int_equal(((struct inner *)o.list.v)[0].port.v, 80);
	sbx_arena_free(a);
}

static void decode_bad(void **state)
{
	static const struct {
		const char *text, *says;
	} rows[] = {
		{ "{}", "`text` is missing" },
		{ "{\"text\":\"\"}", "`text` must not be empty" },
		{ "{\"text\":5}", "`text` must be a string" },
		{ "{\"text\":null}", "`text` must be a string" },
		{ "{\"text\":\"123456789\"}", "`text` must have at most 8 bytes; it has 9" },
		{ "{\"text\":\"x\",\"other\":1}", "`other` is not known here" },
		{ "{\"text\":\"x\",\"text\":\"y\"}", "`text` stands there twice" },
		{ "{\"text\":\"x\",\"choice\":\"blue\"}", "`choice` must be one of \"red\", \"green\"" },
		{ "{\"text\":\"x\",\"n\":6}", "`n` must be from -5 to 5" },
		{ "{\"text\":\"x\",\"n\":1e9}", "`n` must be from -5 to 5" },
		{ "{\"text\":\"x\",\"n\":1e999}", "`n` must be from -5 to 5" },
		{ "{\"text\":\"x\",\"n\":0.5}", "`n` must be a whole number" },
		{ "{\"text\":\"x\",\"n\":\"5\"}", "`n` must be a whole number" },
		{ "{\"text\":\"x\",\"flag\":1}", "`flag` must be true or false" },
		{ "{\"text\":\"x\",\"words\":\"a\"}", "`words` must be an array" },
		{ "{\"text\":\"x\",\"words\":[\"a\",1]}", "`words[1]` must be a string" },
		{ "{\"text\":\"x\",\"words\":[\"a\",\"b\",\"c\"]}", "`words` must have 0 to 2 entries" },
		{ "{\"text\":\"x\",\"list\":[{\"name\":\"a\",\"port\":70000}]}",
			"`list[0].port` must be from 1 to 65535" },
		{ "{\"text\":\"x\",\"list\":[{\"port\":7}]}", "`list[0].name` is missing" },
		{ "{\"text\":\"x\",\"list\":[7]}", "`list[0]` must be an object" },
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		struct sbx_arena *a = sbx_arena_new(1 << 20);
		struct sbx_err err = SBX_ERR_INIT;
		struct outer o = { 0 };
		const struct cJSON *tree = sbx_json_parse(a, sbx_str_of(rows[i].text), &err);

		assert_non_null(tree);
		assert_int_equal(sbx_schema_decode(a, tree, &outer_fields, &o, &err), -1);
		assert_int_equal(err.code, SBX_E_INVALID);
		assert_string_equal(err.msg, rows[i].says);
		sbx_arena_free(a);
	}
}

static void schema_text(void **state)
{
	struct sbx_buf b;
	struct sbx_jw w;

	(void)state;
	sbx_buf_init(&b, 10000);
	sbx_jw_init(&w, &b);
	sbx_schema_write(&w, NULL, &inner_fields);
	assert_buf(&b,
		"{\"type\":\"object\",\"properties\":{"
		"\"name\":{\"type\":\"string\",\"description\":\"its name\",\"minLength\":1,\"maxLength\":5},"
		"\"port\":{\"type\":\"integer\",\"description\":\"its port\",\"minimum\":1,\"maximum\":65535}},"
		"\"required\":[\"name\",\"port\"],\"additionalProperties\":false}");
	sbx_buf_done(&b);
}

static void conf_rows(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_conf *c;

	(void)state;
	setenv("SBX_CONFIG", "/dev/null", 1);
	setenv("SBX_WORKER_THREADS", "3", 1);
	c = sbx_conf_load(&err);
	assert_non_null(c);
	assert_int_equal(c->worker_threads, 3);
	assert_string_equal(c->instance, "main");
	assert_true(c->host_name[0] != '\0');
	sbx_conf_free(c);
	setenv("SBX_WORKER_THREADS", "0", 1);
	assert_null(sbx_conf_load(&err));
	assert_non_null(strstr(err.msg, "SBX_WORKER_THREADS must be a whole number from 1 to 256"));
	unsetenv("SBX_WORKER_THREADS");
	assert_true(sbx_conf_listed("a.example, B.example", SBX_STR("b.EXAMPLE")));
	assert_false(sbx_conf_listed("a.example", SBX_STR("a.exampl")));
	assert_false(sbx_conf_listed("", SBX_STR("")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(check_rows),
		TEST(check_bounds),
		TEST(raw_members),
		TEST(writer),
		TEST(decode_good),
		TEST(decode_bad),
		TEST(schema_text),
		TEST(conf_rows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
