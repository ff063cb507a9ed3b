#include "sbx/json.h"

#include <string.h>

#include "sbx/utf8.h"

struct scan {
	struct sbx_str text;
	size_t at;
	int depth;
	size_t values;
	const char *wrong;
};

static bool fail(struct scan *s, const char *wrong)
{
	if (!s->wrong)
		s->wrong = wrong;
	return false;
}

static int peek(const struct scan *s)
{
	return s->at < s->text.n ? (unsigned char)s->text.p[s->at] : -1;
}

static void blanks(struct scan *s)
{
	while (s->at < s->text.n && memchr(" \t\r\n", s->text.p[s->at], 4))
		s->at++;
}

static bool literal(struct scan *s, const char *z)
{
	size_t n = strlen(z);

	if (s->text.n - s->at < n || memcmp(s->text.p + s->at, z, n) != 0)
		return fail(s, "unknown word");
	s->at += n;
	return true;
}

static bool digits(struct scan *s)
{
	size_t from = s->at;

	while (peek(s) >= '0' && peek(s) <= '9')
		s->at++;
	return s->at > from || fail(s, "digit expected");
}

static bool number(struct scan *s)
{
	size_t from = s->at;

	if (peek(s) == '-')
		s->at++;
	if (peek(s) == '0')
		s->at++;
	else if (!digits(s))
		return false;
	if (peek(s) == '.') {
		s->at++;
		if (!digits(s))
			return false;
	}
	if (peek(s) == 'e' || peek(s) == 'E') {
		s->at++;
		if (peek(s) == '+' || peek(s) == '-')
			s->at++;
		if (!digits(s))
			return false;
	}
	if (s->at - from > 64)
		return fail(s, "number too long");
	return !(peek(s) >= '0' && peek(s) <= '9') || fail(s, "leading zero");
}

static bool unicode_escape(struct scan *s, uint32_t *ret)
{
	uint32_t v = 0;

	for (int i = 0; i < 4; i++, s->at++) {
		int c = peek(s);

		if (c >= '0' && c <= '9')
			v = v << 4 | (uint32_t)(c - '0');
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			v = v << 4 | (uint32_t)((c | 32) - 'a' + 10);
		else
			return fail(s, "four hex digits expected after \\u");
	}
	*ret = v;
	return true;
}

static bool escape(struct scan *s)
{
	uint32_t v, low;
	int c = peek(s);

	s->at++;
	if (c != 'u')
		return (c > 0 && strchr("\"\\/bfnrt", c)) || fail(s, "unknown escape");
	if (!unicode_escape(s, &v))
		return false;
	if (v == 0)
		return fail(s, "\\u0000 is not accepted in a string");
	if (v < 0xd800 || v > 0xdfff)
		return true;
	if (v > 0xdbff || peek(s) != '\\')
		return fail(s, "surrogate without its pair");
	s->at++;
	if (peek(s) != 'u')
		return fail(s, "surrogate without its pair");
	s->at++;
	if (!unicode_escape(s, &low))
		return false;
	return (low >= 0xdc00 && low <= 0xdfff) || fail(s, "surrogate without its pair");
}

static bool string(struct scan *s)
{
	s->at++;
	for (;;) {
		int c = peek(s), len;

		if (c < 0)
			return fail(s, "string without an end");
		if (c < 0x20)
			return fail(s, "raw control byte in a string");
		if (c == '"') {
			s->at++;
			return true;
		}
		if (c == '\\') {
			s->at++;
			if (!escape(s))
				return false;
			continue;
		}
		len = c < 0x80 ? 1 : sbx_utf8_next((struct sbx_str){ s->text.p + s->at, s->text.n - s->at });
		if (len <= 0)
			return fail(s, "invalid UTF-8");
		s->at += (size_t)len;
	}
}

static bool value(struct scan *s);

/* Members or elements between the brackets; key and colon first when it is an object. */
static bool items(struct scan *s, char close)
{
	s->at++;
	if (++s->depth > SBX_JSON_DEPTH_MAX)
		return fail(s, "nested too deeply");
	blanks(s);
	if (peek(s) == close)
		goto closed;
	for (;;) {
		if (close == '}') {
			if (peek(s) != '"')
				return fail(s, "member name expected");
			if (!string(s))
				return false;
			blanks(s);
			if (peek(s) != ':')
				return fail(s, "':' expected");
			s->at++;
		}
		if (!value(s))
			return false;
		if (peek(s) == close)
			goto closed;
		if (peek(s) != ',')
			return fail(s, close == '}' ? "',' or '}' expected" : "',' or ']' expected");
		s->at++;
		blanks(s);
	}
closed:
	s->at++;
	s->depth--;
	return true;
}

static bool value(struct scan *s)
{
	bool ok;

	if (++s->values > SBX_JSON_VALUES_MAX)
		return fail(s, "too many values");
	blanks(s);
	switch (peek(s)) {
	case '{': ok = items(s, '}'); break;
	case '[': ok = items(s, ']'); break;
	case '"': ok = string(s); break;
	case 't': ok = literal(s, "true"); break;
	case 'f': ok = literal(s, "false"); break;
	case 'n': ok = literal(s, "null"); break;
	case '-':
	case '0':
	case '1':
	case '2':
	case '3':
	case '4':
	case '5':
	case '6':
	case '7':
	case '8':
	case '9': ok = number(s); break;
	case -1: return fail(s, "the text ends where a value should stand");
	default: return fail(s, "value expected");
	}
	if (ok)
		blanks(s);
	return ok;
}

int sbx_json_check(struct sbx_str text, struct sbx_err *err)
{
	struct scan s = { .text = text };

	if (value(&s) && s.at == text.n)
		return 0;
	return SBX_FAIL(err, SBX_E_MALFORMED, "This is not JSON: %s at byte %zu",
		s.wrong ? s.wrong : "something follows the value", s.at);
}

bool sbx_json_member_raw(struct sbx_str text, const char *name, struct sbx_str *ret_raw)
{
	struct scan s = { .text = text };

	blanks(&s);
	if (peek(&s) != '{')
		return false;
	s.at++;
	for (blanks(&s); peek(&s) == '"'; blanks(&s)) {
		size_t key = s.at, from;
		bool hit;

		if (!string(&s))
			return false;
		hit = sbx_str_eqz((struct sbx_str){ text.p + key + 1, s.at - key - 2 }, name);
		blanks(&s);
		s.at++; /* the colon */
		blanks(&s);
		from = s.at;
		if (!value(&s))
			return false;
		if (hit) {
			*ret_raw = sbx_str_trim((struct sbx_str){ text.p + from, s.at - from });
			return true;
		}
		if (peek(&s) == ',')
			s.at++;
	}
	return false;
}
