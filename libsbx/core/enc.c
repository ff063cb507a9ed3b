#include "sbx/enc.h"

#include <string.h>

static const char hex_digits[] = "0123456789abcdef";
static const char b64_std[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char b64_url[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void sbx_buf_hex(struct sbx_buf *b, const void *p, size_t n)
{
	const uint8_t *s = p;

	for (size_t i = 0; i < n; i++) {
		sbx_buf_addc(b, hex_digits[s[i] >> 4]);
		sbx_buf_addc(b, hex_digits[s[i] & 15]);
	}
}

void sbx_hexz(const void *p, size_t n, char *z)
{
	const uint8_t *s = p;

	for (size_t i = 0; i < n; i++) {
		*z++ = hex_digits[s[i] >> 4];
		*z++ = hex_digits[s[i] & 15];
	}
	*z = '\0';
}

static void base64(struct sbx_buf *b, const uint8_t *s, size_t n, const char *digits, bool pad)
{
	for (size_t i = 0; i < n; i += 3) {
		size_t have = n - i < 3 ? n - i : 3;
		uint32_t v = (uint32_t)s[i] << 16 | (have > 1 ? (uint32_t)s[i + 1] << 8 : 0) |
			(have > 2 ? s[i + 2] : 0);
		char four[4] = { digits[v >> 18], digits[v >> 12 & 63], digits[v >> 6 & 63], digits[v & 63] };

		sbx_buf_add(b, four, have + 1);
		for (size_t k = have; pad && k < 3; k++)
			sbx_buf_addc(b, '=');
	}
}

void sbx_buf_base64(struct sbx_buf *b, const void *p, size_t n)
{
	base64(b, p, n, b64_std, true);
}

void sbx_buf_base64url(struct sbx_buf *b, const void *p, size_t n)
{
	base64(b, p, n, b64_url, false);
}

bool sbx_hex_decode(struct sbx_str s, void *out, size_t n)
{
	uint8_t *d = out;

	if (s.n != n * 2)
		return false;
	for (size_t i = 0; i < n; i++) {
		const char *hi = s.p[2 * i] ? strchr(hex_digits, s.p[2 * i]) : NULL;
		const char *lo = s.p[2 * i + 1] ? strchr(hex_digits, s.p[2 * i + 1]) : NULL;

		if (!hi || !lo)
			return false;
		d[i] = (uint8_t)((hi - hex_digits) << 4 | (lo - hex_digits));
	}
	return true;
}

/* Unpadded digits into out; false on a foreign digit, an impossible length, or stray bits at the end. */
static bool base64_decode(struct sbx_str s, uint8_t *out, size_t n, const char *digits)
{
	uint32_t v = 0;
	size_t at = 0;
	unsigned bits = 0;

	if (s.n != n / 3 * 4 + (n % 3 ? n % 3 + 1 : 0))
		return false;
	for (size_t i = 0; i < s.n; i++) {
		const char *d = s.p[i] ? strchr(digits, s.p[i]) : NULL;

		if (!d)
			return false;
		v = (v << 6 | (uint32_t)(d - digits)) & 0xffffff;
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			out[at++] = (uint8_t)(v >> bits & 0xff);
		}
	}
	return (v & ((1u << bits) - 1)) == 0;
}

bool sbx_base64url_decode(struct sbx_str s, void *out, size_t n)
{
	return base64_decode(s, out, n, b64_url);
}

bool sbx_base64_decode(struct sbx_str s, void *out, size_t cap, size_t *ret_n)
{
	size_t pad = 0, n;

	if (s.n % 4)
		return false;
	while (pad < 2 && s.n && s.p[s.n - 1] == '=')
		s.n--, pad++;
	n = s.n * 3 / 4;
	if (n > cap || !base64_decode(s, out, n, b64_std))
		return false;
	*ret_n = n;
	return true;
}

bool sbx_ct_equal(const void *a, const void *b, size_t n)
{
	const volatile uint8_t *x = a, *y = b;
	uint8_t differs = 0;

	for (size_t i = 0; i < n; i++)
		differs |= (uint8_t)(x[i] ^ y[i]);
	return differs == 0;
}
