#include "sbx/str.h"

#include <string.h>
#include <strings.h>

struct sbx_str sbx_str_of(const char *z)
{
	return (struct sbx_str){ z ? z : "", z ? strlen(z) : 0 };
}

bool sbx_str_eq(struct sbx_str a, struct sbx_str b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

bool sbx_str_eqz(struct sbx_str a, const char *z)
{
	return sbx_str_eq(a, sbx_str_of(z));
}

bool sbx_str_caseeqz(struct sbx_str a, const char *z)
{
	return a.n == strlen(z) && (a.n == 0 || strncasecmp(a.p, z, a.n) == 0);
}

bool sbx_str_starts(struct sbx_str a, const char *prefix)
{
	size_t n = strlen(prefix);

	return a.n >= n && (n == 0 || memcmp(a.p, prefix, n) == 0);
}

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

struct sbx_str sbx_str_trim(struct sbx_str a)
{
	while (a.n && blank(a.p[0]))
		a.p++, a.n--;
	while (a.n && blank(a.p[a.n - 1]))
		a.n--;
	return a;
}

bool sbx_str_split(struct sbx_str *rest, char sep, struct sbx_str *ret_part)
{
	const char *at;

	if (!rest->p)
		return false;
	at = rest->n ? memchr(rest->p, sep, rest->n) : NULL;
	if (at) {
		*ret_part = (struct sbx_str){ rest->p, (size_t)(at - rest->p) };
		rest->n -= ret_part->n + 1;
		rest->p = at + 1;
	} else {
		*ret_part = *rest;
		*rest = (struct sbx_str){ NULL, 0 };
	}
	return true;
}

bool sbx_str_i64(struct sbx_str s, int64_t min, int64_t max, int64_t *ret)
{
	bool minus = s.n && s.p[0] == '-';
	int64_t v = 0;

	if (s.n == (size_t)minus)
		return false;
	for (size_t i = minus; i < s.n; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
		if (__builtin_mul_overflow(v, 10, &v))
			return false;
		/* Counts down for negative numbers, so that INT64_MIN fits. */
		if (minus ? __builtin_sub_overflow(v, s.p[i] - '0', &v) : __builtin_add_overflow(v, s.p[i] - '0', &v))
			return false;
	}
	if (v < min || v > max)
		return false;
	*ret = v;
	return true;
}

bool sbx_streq(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

bool sbx_str_copyz(struct sbx_str s, char *dst, size_t cap)
{
	if (s.n >= cap)
		return false;
	if (s.n)
		memcpy(dst, s.p, s.n);
	dst[s.n] = '\0';
	return true;
}
