/*
 * String views: a pointer and a length, not owned and not NUL-terminated. For input and slices.
 */
#ifndef SBX_STR_H
#define SBX_STR_H

#include "sbx/base.h"

struct sbx_str {
	const char *p;
	size_t n;
};

#define SBX_STR(literal) ((struct sbx_str){ (literal), sizeof(literal) - 1 })

struct sbx_str sbx_str_of(const char *z); /* NULL gives the empty view */
bool sbx_str_eq(struct sbx_str a, struct sbx_str b);
bool sbx_str_eqz(struct sbx_str a, const char *z);
bool sbx_str_caseeqz(struct sbx_str a, const char *z); /* ASCII */
bool sbx_str_starts(struct sbx_str a, const char *prefix);
struct sbx_str sbx_str_trim(struct sbx_str a); /* spaces, tabs, CR, LF at both ends */
/* Cuts up to the first sep off the front of *rest and gives it; false when *rest was used up. */
bool sbx_str_split(struct sbx_str *rest, char sep, struct sbx_str *ret_part);
/* A whole decimal integer within [min, max], nothing else round it. */
bool sbx_str_i64(struct sbx_str s, int64_t min, int64_t max, int64_t *ret);
bool sbx_streq(const char *a, const char *b); /* NULL equals NULL only */
/* Copies with a NUL, cutting nothing: false when it does not fit. */
bool sbx_str_copyz(struct sbx_str s, char *dst, size_t cap);

#endif
