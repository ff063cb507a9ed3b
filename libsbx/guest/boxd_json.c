#include "guest/boxd_json.h"

#include <string.h>

#define DEPTH_MAX 8

static void skip_space(struct sbx_str *in)
{
	while (in->n && memchr(" \t\r\n", in->p[0], 4)) {
		in->p++;
		in->n--;
	}
}

static bool take(struct sbx_str *in, char c)
{
	skip_space(in);
	if (in->n == 0 || in->p[0] != c)
		return false;
	in->p++;
	in->n--;
	return true;
}

static bool skip_string(struct sbx_str *in)
{
	if (!take(in, '"'))
		return false;
	while (in->n) {
		unsigned char c = (unsigned char)in->p[0];
		size_t step = c == '\\' ? 2 : 1;

		if (c < 0x20 || step > in->n)
			return false;
		in->p += step;
		in->n -= step;
		if (c == '"')
			return true;
	}
	return false;
}

/* A number or one of the three names. */
static bool skip_plain(struct sbx_str *in)
{
	static const char *const names[] = { "true", "false", "null" };
	struct sbx_str word = { in->p, 0 };

	while (word.n < in->n && !memchr(" \t\r\n,]}", in->p[word.n], 7))
		word.n++;
	in->p += word.n;
	in->n -= word.n;
	for (size_t i = 0; i < SBX_ARRAY_LEN(names); i++) {
		if (sbx_str_eqz(word, names[i]))
			return true;
	}
	for (size_t i = 0; i < word.n; i++) {
		if (!word.p[i] || !strchr("0123456789+-.eE", word.p[i]))
			return false;
	}
	return word.n > 0;
}

static bool skip_value(struct sbx_str *in, int depth)
{
	char close;
	bool object;

	skip_space(in);
	if (in->n == 0 || depth > DEPTH_MAX)
		return false;
	if (in->p[0] == '"')
		return skip_string(in);
	if (in->p[0] != '{' && in->p[0] != '[')
		return skip_plain(in);
	object = in->p[0] == '{';
	close = object ? '}' : ']';
	take(in, in->p[0]);
	if (take(in, close))
		return true;
	do {
		if (object && !(skip_string(in) && take(in, ':')))
			return false;
		if (!skip_value(in, depth + 1))
			return false;
	} while (take(in, ','));
	return take(in, close);
}

bool json_is_object(struct sbx_str text)
{
	skip_space(&text);
	if (text.n == 0 || text.p[0] != '{' || !skip_value(&text, 0))
		return false;
	skip_space(&text);
	return text.n == 0;
}

bool json_string(struct sbx_str value, struct sbx_str *ret)
{
	if (value.n < 2 || value.p[0] != '"' || memchr(value.p, '\\', value.n))
		return false;
	*ret = (struct sbx_str){ value.p + 1, value.n - 2 };
	return true;
}

/* The value at the front, without the space before it. */
static struct sbx_str take_value(struct sbx_str *in)
{
	struct sbx_str value;

	skip_space(in);
	value = *in;
	if (!skip_value(in, 0))
		in->n = 0;
	value.n -= in->n;
	return value;
}

bool json_member(struct sbx_str object, const char *key, struct sbx_str *ret)
{
	if (!take(&object, '{'))
		return false;
	do {
		struct sbx_str name = take_value(&object), value, text;

		if (!take(&object, ':'))
			return false;
		value = take_value(&object);
		if (json_string(name, &text) && sbx_str_eqz(text, key)) {
			*ret = value;
			return true;
		}
	} while (take(&object, ','));
	return false;
}

bool json_item(struct sbx_str *array, struct sbx_str *ret)
{
	if (!take(array, '[') && !take(array, ','))
		return false;
	skip_space(array);
	if (array->n == 0 || array->p[0] == ']')
		return false;
	*ret = take_value(array);
	return ret->n > 0;
}
