#include "sbx/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sbx/utf8.h"

void sbx_buf_init(struct sbx_buf *b, size_t max_bytes)
{
	*b = (struct sbx_buf){ .max = max_bytes };
}

void sbx_buf_done(struct sbx_buf *b)
{
	free(b->p);
	sbx_buf_init(b, b->max);
}

void sbx_buf_reset(struct sbx_buf *b)
{
	b->n = 0;
	b->failed = false;
	if (b->p)
		b->p[0] = '\0';
}

/* Makes room for n more bytes and the NUL, doubling so that appending stays linear. */
static bool grow(struct sbx_buf *b, size_t n)
{
	size_t want, cap;
	char *p;

	if (b->failed)
		return false;
	if (n > b->max || b->n > b->max - n) {
		b->failed = true;
		return false;
	}
	want = b->n + n + 1;
	if (want <= b->cap)
		return true;
	cap = b->cap ? b->cap : 64;
	while (cap < want)
		cap *= 2;
	if (cap > b->max + 1)
		cap = b->max + 1;
	p = realloc(b->p, cap);
	if (!p) {
		b->failed = true;
		return false;
	}
	b->p = p;
	b->cap = cap;
	return true;
}

void sbx_buf_add(struct sbx_buf *b, const void *p, size_t n)
{
	if (!grow(b, n))
		return;
	if (n)
		memcpy(b->p + b->n, p, n);
	b->n += n;
	b->p[b->n] = '\0';
}

void sbx_buf_adds(struct sbx_buf *b, struct sbx_str s)
{
	sbx_buf_add(b, s.p, s.n);
}

void sbx_buf_addz(struct sbx_buf *b, const char *z)
{
	sbx_buf_add(b, z, strlen(z));
}

void sbx_buf_addc(struct sbx_buf *b, char c)
{
	sbx_buf_add(b, &c, 1);
}

void sbx_buf_vaddf(struct sbx_buf *b, const char *fmt, va_list ap)
{
	va_list again;
	int n;

	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (n < 0) {
		b->failed = true;
		return;
	}
	if (!grow(b, (size_t)n))
		return;
	vsnprintf(b->p + b->n, (size_t)n + 1, fmt, ap);
	b->n += (size_t)n;
}

void sbx_buf_addf(struct sbx_buf *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	sbx_buf_vaddf(b, fmt, ap);
	va_end(ap);
}

char *sbx_buf_reserve(struct sbx_buf *b, size_t n)
{
	return grow(b, n) ? b->p + b->n : NULL;
}

void sbx_buf_added(struct sbx_buf *b, size_t n)
{
	SBX_ASSERT(b->n + n < b->cap);
	b->n += n;
	b->p[b->n] = '\0';
}

void sbx_buf_consume(struct sbx_buf *b, size_t n)
{
	SBX_ASSERT(n <= b->n);
	if (n == 0)
		return;
	memmove(b->p, b->p + n, b->n - n);
	b->n -= n;
	b->p[b->n] = '\0';
}

/* What a JSON string must escape (RFC 8259 section 7): quote, backslash, control bytes. */
static void json_byte(struct sbx_buf *b, unsigned char c)
{
	static const char named[] = "\bb\tt\nn\ff\rr\"\"\\\\";

	for (size_t i = 0; i + 1 < sizeof(named); i += 2)
		if ((unsigned char)named[i] == c) {
			sbx_buf_addc(b, '\\');
			sbx_buf_addc(b, named[i + 1]);
			return;
		}
	sbx_buf_addf(b, "\\u%04x", c);
}

void sbx_buf_json(struct sbx_buf *b, struct sbx_str s)
{
	size_t i = 0, plain = 0;

	sbx_buf_addc(b, '"');
	while (i < s.n) {
		unsigned char c = (unsigned char)s.p[i];
		int len = 1;

		if (c >= 0x80)
			len = sbx_utf8_next((struct sbx_str){ s.p + i, s.n - i });
		if (c >= 0x20 && c != '"' && c != '\\' && len > 0) {
			i += (size_t)len;
			continue;
		}
		sbx_buf_add(b, s.p + plain, i - plain);
		if (len <= 0)
			sbx_buf_addz(b, "\xef\xbf\xbd");
		else
			json_byte(b, c);
		plain = ++i;
	}
	sbx_buf_add(b, s.p + plain, s.n - plain);
	sbx_buf_addc(b, '"');
}

void sbx_buf_xml(struct sbx_buf *b, struct sbx_str s)
{
	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];

		switch (c) {
		case '<': sbx_buf_addz(b, "&lt;"); break;
		case '>': sbx_buf_addz(b, "&gt;"); break;
		case '&': sbx_buf_addz(b, "&amp;"); break;
		case '"': sbx_buf_addz(b, "&quot;"); break;
		case '\'': sbx_buf_addz(b, "&#39;"); break;
		default:
			/* XML 1.0 section 2.2: of the control bytes only tab, LF and CR may stand. */
			sbx_buf_addc(b, c < 0x20 && c != '\t' && c != '\n' && c != '\r' ? '?' : (char)c);
		}
	}
}

void sbx_buf_logfmt(struct sbx_buf *b, struct sbx_str s)
{
	bool plain = s.n > 0;

	for (size_t i = 0; i < s.n && plain; i++) {
		unsigned char c = (unsigned char)s.p[i];

		plain = c > 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '=';
	}
	if (plain)
		sbx_buf_adds(b, s);
	else
		sbx_buf_json(b, s);
}

void sbx_buf_url(struct sbx_buf *b, struct sbx_str s)
{
	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			(c && strchr("-._~", c)))
			sbx_buf_addc(b, (char)c);
		else
			sbx_buf_addf(b, "%%%02X", c);
	}
}

void sbx_buf_shell(struct sbx_buf *b, struct sbx_str s)
{
	sbx_buf_addc(b, '\'');
	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] == '\'')
			sbx_buf_addz(b, "'\\''");
		else
			sbx_buf_addc(b, s.p[i]);
	}
	sbx_buf_addc(b, '\'');
}

struct sbx_str sbx_buf_str(const struct sbx_buf *b)
{
	return (struct sbx_str){ b->p ? b->p : "", b->n };
}

const char *sbx_buf_z(struct sbx_buf *b)
{
	return b->p ? b->p : "";
}

int sbx_buf_ok(const struct sbx_buf *b, struct sbx_err *err)
{
	if (!b->failed)
		return 0;
	return SBX_FAIL(err, SBX_E_TOO_LARGE, "More than %zu bytes, or out of memory", b->max);
}
