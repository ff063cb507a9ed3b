#include "sbx/json.h"

#include <inttypes.h>

void sbx_jw_init(struct sbx_jw *w, struct sbx_buf *b)
{
	*w = (struct sbx_jw){ .b = b };
}

static uint64_t level(const struct sbx_jw *w)
{
	return (uint64_t)1 << w->depth;
}

/* Comma and key before a value. */
static void before(struct sbx_jw *w, const char *key)
{
	bool in_object = w->depth > 0 && !(w->is_array & level(w));

	SBX_ASSERT(in_object == (key != NULL));
	if (w->has_value & level(w))
		sbx_buf_addc(w->b, ',');
	w->has_value |= level(w);
	if (key) {
		sbx_buf_json(w->b, sbx_str_of(key));
		sbx_buf_addc(w->b, ':');
	}
}

static void open_scope(struct sbx_jw *w, const char *key, bool array)
{
	before(w, key);
	SBX_ASSERT(w->depth < 62);
	w->depth++;
	w->has_value &= ~level(w);
	w->is_array = array ? w->is_array | level(w) : w->is_array & ~level(w);
	sbx_buf_addc(w->b, array ? '[' : '{');
}

void sbx_jw_obj(struct sbx_jw *w, const char *key)
{
	open_scope(w, key, false);
}

void sbx_jw_arr(struct sbx_jw *w, const char *key)
{
	open_scope(w, key, true);
}

void sbx_jw_end(struct sbx_jw *w)
{
	SBX_ASSERT(w->depth > 0);
	sbx_buf_addc(w->b, w->is_array & level(w) ? ']' : '}');
	w->depth--;
}

void sbx_jw_s(struct sbx_jw *w, const char *key, struct sbx_str s)
{
	before(w, key);
	sbx_buf_json(w->b, s);
}

void sbx_jw_z(struct sbx_jw *w, const char *key, const char *z)
{
	if (z)
		sbx_jw_s(w, key, sbx_str_of(z));
	else
		sbx_jw_null(w, key);
}

void sbx_jw_i(struct sbx_jw *w, const char *key, int64_t i)
{
	before(w, key);
	sbx_buf_addf(w->b, "%" PRId64, i);
}

void sbx_jw_bool(struct sbx_jw *w, const char *key, bool v)
{
	before(w, key);
	sbx_buf_addz(w->b, v ? "true" : "false");
}

void sbx_jw_null(struct sbx_jw *w, const char *key)
{
	before(w, key);
	sbx_buf_addz(w->b, "null");
}

void sbx_jw_raw(struct sbx_jw *w, const char *key, struct sbx_str json)
{
	before(w, key);
	sbx_buf_adds(w->b, json);
}
