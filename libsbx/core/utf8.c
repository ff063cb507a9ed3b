#include "sbx/utf8.h"

/*
 * RFC 3629 section 4, as rows: first byte range, length, and the range of the second byte, which is
 * where overlong forms, surrogates and values above U+10FFFF are kept out.
 */
static const struct {
	uint8_t lo, hi, len, lo2, hi2;
} forms[] = {
	{ 0x00, 0x7f, 1, 0x00, 0x00 },
	{ 0xc2, 0xdf, 2, 0x80, 0xbf },
	{ 0xe0, 0xe0, 3, 0xa0, 0xbf },
	{ 0xe1, 0xec, 3, 0x80, 0xbf },
	{ 0xed, 0xed, 3, 0x80, 0x9f },
	{ 0xee, 0xef, 3, 0x80, 0xbf },
	{ 0xf0, 0xf0, 4, 0x90, 0xbf },
	{ 0xf1, 0xf3, 4, 0x80, 0xbf },
	{ 0xf4, 0xf4, 4, 0x80, 0x8f },
};

int sbx_utf8_next(struct sbx_str s)
{
	const uint8_t *p = (const uint8_t *)s.p;

	if (s.n == 0)
		return -1;
	for (size_t i = 0; i < SBX_ARRAY_LEN(forms); i++) {
		if (p[0] < forms[i].lo || p[0] > forms[i].hi)
			continue;
		for (size_t k = 1; k < forms[i].len; k++) {
			if (k == s.n)
				return -1;
			if (p[k] < (k == 1 ? forms[i].lo2 : 0x80) || p[k] > (k == 1 ? forms[i].hi2 : 0xbf))
				return 0;
		}
		return forms[i].len;
	}
	return 0;
}

bool sbx_utf8_valid(struct sbx_str s)
{
	while (s.n) {
		int len = sbx_utf8_next(s);

		if (len <= 0)
			return false;
		s.p += len;
		s.n -= (size_t)len;
	}
	return true;
}

struct sbx_str sbx_utf8_cut(struct sbx_str s, size_t max_bytes)
{
	size_t n = max_bytes;

	if (s.n <= max_bytes)
		return s;
	/* A cut inside a sequence falls on continuation bytes; at most three stand before its first byte. */
	while (n > 0 && max_bytes - n < 3 && ((uint8_t)s.p[n] & 0xc0) == 0x80)
		n--;
	if (((uint8_t)s.p[n] & 0xc0) == 0x80)
		n = max_bytes; /* not UTF-8 here: any place is as good */
	return (struct sbx_str){ s.p, n };
}
