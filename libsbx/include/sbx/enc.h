/*
 * Encoders: hex, base64 and base64url (RFC 4648 sections 8, 4, 5; base64url without padding), and
 * comparison in constant time. Decoders are strict: whole input, canonical, or failure.
 */
#ifndef SBX_ENC_H
#define SBX_ENC_H

#include "sbx/buf.h"

void sbx_buf_hex(struct sbx_buf *b, const void *p, size_t n);
void sbx_buf_base64(struct sbx_buf *b, const void *p, size_t n);
void sbx_buf_base64url(struct sbx_buf *b, const void *p, size_t n);
/* Decode exactly n bytes into out; false when s is not exactly their encoding. */
bool sbx_hex_decode(struct sbx_str s, void *out, size_t n);
bool sbx_base64url_decode(struct sbx_str s, void *out, size_t n);
/* Strict padded base64 of at most cap bytes. */
bool sbx_base64_decode(struct sbx_str s, void *out, size_t cap, size_t *ret_n);
/* Lower-case hex with its NUL into z, which holds 2n+1 bytes. */
void sbx_hexz(const void *p, size_t n, char *z);
/* True when the n bytes are equal; its time does not depend on them. */
bool sbx_ct_equal(const void *a, const void *b, size_t n);

#endif
