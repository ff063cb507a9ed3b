#include "sbx/json.h"

#include <cjson/cJSON.h>

static void drop(void *tree)
{
	cJSON_Delete(tree);
}

struct cJSON *sbx_json_parse(struct sbx_arena *a, struct sbx_str text, struct sbx_err *err)
{
	cJSON *tree;

	if (sbx_json_check(text, err) < 0)
		return NULL;
	tree = cJSON_ParseWithLength(text.p, text.n);
	if (!tree) {
		SBX_FAIL(err, SBX_E_NOMEM, "Out of memory while reading JSON");
		return NULL;
	}
	if (sbx_arena_defer(a, drop, tree) < 0) {
		SBX_FAIL(err, SBX_E_NOMEM, "Out of memory while reading JSON");
		return NULL;
	}
	return tree;
}

const struct cJSON *sbx_json_get(const struct cJSON *object, const char *name)
{
	return cJSON_GetObjectItemCaseSensitive(object, name);
}
