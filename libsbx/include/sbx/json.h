/*
 * JSON (RFC 8259): a strict check before cJSON sees the text, and a writer without a tree.
 *
 * cJSON 1.7.15 accepts more than JSON (leading zeros, raw control bytes, invalid UTF-8), cuts strings
 * at \u0000 and rounds large integers. So text is checked here first, and what must come back byte for
 * byte (a JSON-RPC id) is taken as a slice of the text.
 */
#ifndef SBX_JSON_H
#define SBX_JSON_H

#include "sbx/arena.h"
#include "sbx/buf.h"

struct cJSON;

#define SBX_JSON_DEPTH_MAX 32
#define SBX_JSON_VALUES_MAX 20000 /* cJSON takes up to 40 bytes of heap for a byte of text */

/*
 * One whole JSON text: syntax, UTF-8, depth, number of values, no \u0000. SBX_E_MALFORMED with what is
 * wrong and at which byte.
 */
int sbx_json_check(struct sbx_str text, struct sbx_err *err) SBX_MUST_CHECK;
/*
 * The raw text of a member of the top-level object, for text that passed the check; false when there is
 * none or the text is no object. With duplicates the first counts, as for cJSON.
 */
bool sbx_json_member_raw(struct sbx_str text, const char *name, struct sbx_str *ret_raw);
/* Checks, parses, and registers the tree to die with the arena. NULL on failure. */
struct cJSON *sbx_json_parse(struct sbx_arena *a, struct sbx_str text, struct sbx_err *err);
/* A member of an object, compared case-sensitively, or NULL. */
const struct cJSON *sbx_json_get(const struct cJSON *object, const char *name);

/*
 * Writer with a scope stack, appending to b. `key` is a literal inside an object and NULL inside an
 * array or at the top. Misuse (a key in an array) is a programming error.
 */
struct sbx_jw {
	struct sbx_buf *b;
	int depth;
	uint64_t is_array, has_value; /* a bit a level */
};

void sbx_jw_init(struct sbx_jw *w, struct sbx_buf *b);
void sbx_jw_obj(struct sbx_jw *w, const char *key);
void sbx_jw_arr(struct sbx_jw *w, const char *key);
void sbx_jw_end(struct sbx_jw *w); /* closes what was opened last */
void sbx_jw_s(struct sbx_jw *w, const char *key, struct sbx_str s);
void sbx_jw_z(struct sbx_jw *w, const char *key, const char *z); /* NULL writes null */
void sbx_jw_i(struct sbx_jw *w, const char *key, int64_t i);
void sbx_jw_bool(struct sbx_jw *w, const char *key, bool v);
void sbx_jw_null(struct sbx_jw *w, const char *key);
void sbx_jw_raw(struct sbx_jw *w, const char *key, struct sbx_str json); /* JSON text as it is */

#endif
