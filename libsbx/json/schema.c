#include "sbx/schema.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Writing */

static const char *const type_names[] = {
	[SBX_T_STR] = "string",
	[SBX_T_INT] = "integer",
	[SBX_T_BOOL] = "boolean",
	[SBX_T_STRS] = "array",
	[SBX_T_OBJS] = "array",
	[SBX_T_OBJ] = "object",
};

static void members(struct sbx_jw *w, const struct sbx_fields *f);

static void type_name(struct sbx_jw *w, const struct sbx_field *f)
{
	if (!f->nullable) {
		sbx_jw_z(w, "type", type_names[f->type]);
		return;
	}
	sbx_jw_arr(w, "type");
	sbx_jw_z(w, NULL, type_names[f->type]);
	sbx_jw_z(w, NULL, "null");
	sbx_jw_end(w);
}

static void bounds(struct sbx_jw *w, const struct sbx_field *f)
{
	static const char *const names[][2] = {
		[SBX_T_STR] = { "minLength", "maxLength" },
		[SBX_T_INT] = { "minimum", "maximum" },
		[SBX_T_BOOL] = { NULL, NULL },
		[SBX_T_STRS] = { "minItems", "maxItems" },
		[SBX_T_OBJS] = { "minItems", "maxItems" },
		[SBX_T_OBJ] = { NULL, NULL },
	};

	if (!names[f->type][0] || f->max == 0)
		return;
	if (f->min != 0)
		sbx_jw_i(w, names[f->type][0], f->min);
	sbx_jw_i(w, names[f->type][1], f->max);
}

static void field(struct sbx_jw *w, const struct sbx_field *f)
{
	sbx_jw_obj(w, f->name);
	type_name(w, f);
	if (f->help)
		sbx_jw_z(w, "description", f->help);
	bounds(w, f);
	if (f->pattern && f->type == SBX_T_STR)
		sbx_jw_z(w, "pattern", f->pattern);
	if (f->choices) {
		sbx_jw_arr(w, "enum");
		for (const char *const *c = f->choices; *c; c++)
			sbx_jw_z(w, NULL, *c);
		if (f->nullable)
			sbx_jw_null(w, NULL);
		sbx_jw_end(w);
	}
	if (f->type == SBX_T_STRS) {
		sbx_jw_obj(w, "items");
		sbx_jw_z(w, "type", "string");
		if (f->pattern)
			sbx_jw_z(w, "pattern", f->pattern);
		sbx_jw_end(w);
	}
	if (f->type == SBX_T_OBJS)
		sbx_schema_write(w, "items", f->items);
	if (f->type == SBX_T_OBJ)
		members(w, f->items);
	sbx_jw_end(w);
}

static void members(struct sbx_jw *w, const struct sbx_fields *f)
{
	bool any = false;

	sbx_jw_obj(w, "properties");
	for (size_t i = 0; i < f->n; i++) {
		field(w, &f->rows[i]);
		any |= f->rows[i].required;
	}
	sbx_jw_end(w);
	if (any) {
		sbx_jw_arr(w, "required");
		for (size_t i = 0; i < f->n; i++)
			if (f->rows[i].required)
				sbx_jw_z(w, NULL, f->rows[i].name);
		sbx_jw_end(w);
	}
	/* Outputs may grow: only inputs are closed. */
	if (f->size > 0)
		sbx_jw_bool(w, "additionalProperties", false);
}

void sbx_schema_write(struct sbx_jw *w, const char *key, const struct sbx_fields *f)
{
	sbx_jw_obj(w, key);
	sbx_jw_z(w, "type", "object");
	members(w, f);
	sbx_jw_end(w);
}

/* Decoding */

struct path {
	const struct path *up;
	const char *name;
	size_t index; /* of the element, where name is NULL */
};

static void path_add(struct sbx_buf *b, const struct path *p)
{
	if (!p)
		return;
	path_add(b, p->up);
	if (!p->name) {
		sbx_buf_addf(b, "[%zu]", p->index);
		return;
	}
	if (b->n)
		sbx_buf_addc(b, '.');
	sbx_buf_adds(b, (struct sbx_str){ p->name, strnlen(p->name, 60) });
}

static int wrong(struct sbx_err *err, const struct path *p, const char *expected)
{
	sbx_auto_buf struct sbx_buf b;

	sbx_buf_init(&b, 200);
	path_add(&b, p);
	return SBX_FAIL(err, SBX_E_INVALID, "`%s` %s", sbx_buf_z(&b), expected);
}

static int wrongf(struct sbx_err *err, const struct path *p, const char *fmt, ...) SBX_PRINTF(3, 4);
static int wrongf(struct sbx_err *err, const struct path *p, const char *fmt, ...)
{
	char text[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return wrong(err, p, text);
}

static int one_of(const char *v, const struct sbx_field *f, const struct path *p, struct sbx_err *err)
{
	sbx_auto_buf struct sbx_buf b;

	sbx_buf_init(&b, 180);
	for (const char *const *c = f->choices; *c; c++) {
		if (strcmp(*c, v) == 0)
			return 0;
		sbx_buf_addf(&b, "%s\"%s\"", b.n ? ", " : "", *c);
	}
	return wrongf(err, p, "must be one of %s", sbx_buf_z(&b));
}

static int str_ok(const char *v, const struct sbx_field *f, const struct path *p, struct sbx_err *err)
{
	int64_t n = (int64_t)strlen(v);

	if (f->type == SBX_T_STR && n < f->min)
		return f->min == 1 ? wrong(err, p, "must not be empty")
				   : wrongf(err, p, "must have at least %" PRId64 " characters", f->min);
	if (f->type == SBX_T_STR && f->max && n > f->max)
		return wrongf(err, p, "must have at most %" PRId64 " bytes; it has %" PRId64, f->max, n);
	if (f->choices && one_of(v, f, p, err) < 0)
		return -1;
	if (f->check && !f->check(v))
		return f->pattern ? wrongf(err, p, "must match %s", f->pattern) : wrong(err, p, "is not valid");
	return 0;
}

static int take_str(struct sbx_arena *a, const cJSON *v, const struct sbx_field *f, const struct path *p,
	const char **ret, struct sbx_err *err)
{
	if (!cJSON_IsString(v))
		return wrong(err, p, "must be a string");
	if (str_ok(v->valuestring, f, p, err) < 0)
		return -1;
	*ret = sbx_arena_dupz(a, v->valuestring);
	return *ret ? 0 : SBX_FAIL(err, SBX_E_TOO_LARGE, "The arguments are too large");
}

static int take_int(
	const cJSON *v, const struct sbx_field *f, const struct path *p, struct sbx_opt_int *ret, struct sbx_err *err)
{
	double d = v->valuedouble;
	int64_t max = f->max ? f->max : (int64_t)1 << 53;

	if (!cJSON_IsNumber(v) || floor(d) != d)
		return wrong(err, p, "must be a whole number");
	if (!(d >= (double)f->min && d <= (double)max))
		return wrongf(err, p, "must be from %" PRId64 " to %" PRId64, f->min, max);
	*ret = (struct sbx_opt_int){ true, (int64_t)d };
	return 0;
}

static int decode(struct sbx_arena *a, const cJSON *object, const struct sbx_fields *f, void *out,
	const struct path *up, struct sbx_err *err);

static int take_list(struct sbx_arena *a, const cJSON *v, const struct sbx_field *f, const struct path *p, void *out,
	struct sbx_err *err)
{
	size_t n, i = 0, size = f->type == SBX_T_OBJS ? f->items->size : sizeof(const char *);
	const cJSON *e;
	char *mem;

	if (!cJSON_IsArray(v))
		return wrong(err, p, "must be an array");
	n = (size_t)cJSON_GetArraySize(v);
	if ((int64_t)n < f->min || (f->max && (int64_t)n > f->max))
		return wrongf(err, p, "must have %" PRId64 " to %" PRId64 " entries", f->min, f->max);
	mem = sbx_arena_calloc(a, n ? n : 1, size);
	if (!mem)
		return SBX_FAIL(err, SBX_E_TOO_LARGE, "The arguments are too large");
	cJSON_ArrayForEach(e, v) {
		struct path at = { p, NULL, i };
		int rc = f->type == SBX_T_OBJS ? decode(a, e, f->items, mem + i * size, &at, err)
					       : take_str(a, e, f, &at, (const char **)(void *)(mem + i * size), err);

		if (rc < 0)
			return -1;
		i++;
	}
	/* Both list structs are a pointer and a count. */
	*(struct sbx_objs *)out = (struct sbx_objs){ mem, n };
	return 0;
}

static int take(struct sbx_arena *a, const cJSON *v, const struct sbx_field *f, const struct path *p, void *out,
	struct sbx_err *err)
{
	switch (f->type) {
	case SBX_T_STR: return take_str(a, v, f, p, out, err);
	case SBX_T_INT: return take_int(v, f, p, out, err);
	case SBX_T_BOOL:
		if (!cJSON_IsBool(v))
			return wrong(err, p, "must be true or false");
		*(struct sbx_opt_bool *)out = (struct sbx_opt_bool){ true, cJSON_IsTrue(v) };
		return 0;
	case SBX_T_STRS:
	case SBX_T_OBJS: return take_list(a, v, f, p, out, err);
	case SBX_T_OBJ: break; /* outputs only */
	}
	SBX_UNREACHABLE();
}

static const struct sbx_field *row_of(const struct sbx_fields *f, const char *name)
{
	for (size_t i = 0; i < f->n; i++)
		if (strcmp(f->rows[i].name, name) == 0)
			return &f->rows[i];
	return NULL;
}

static int decode(struct sbx_arena *a, const cJSON *object, const struct sbx_fields *f, void *out,
	const struct path *up, struct sbx_err *err)
{
	const cJSON *v;

	if (!cJSON_IsObject(object))
		return up ? wrong(err, up, "must be an object") : SBX_FAIL(err, SBX_E_INVALID, "An object is expected");
	cJSON_ArrayForEach(v, object) {
		struct path p = { up, v->string, 0 };
		const struct sbx_field *row = row_of(f, v->string);

		if (!row)
			return wrong(err, &p, "is not known here");
		if (cJSON_GetObjectItemCaseSensitive(object, v->string) != v)
			return wrong(err, &p, "stands there twice");
		/* Clients of typed languages send null for what they leave out. */
		if (cJSON_IsNull(v) && !row->required)
			continue;
		if (take(a, v, row, &p, (char *)out + row->offset, err) < 0)
			return -1;
	}
	for (size_t i = 0; i < f->n; i++) {
		struct path p = { up, f->rows[i].name, 0 };

		if (f->rows[i].required && !sbx_json_get(object, f->rows[i].name))
			return wrong(err, &p, "is missing");
	}
	return 0;
}

int sbx_schema_decode(
	struct sbx_arena *a, const struct cJSON *object, const struct sbx_fields *f, void *out, struct sbx_err *err)
{
	return decode(a, object, f, out, NULL, err);
}
