/*
 * The bounded builder for all output. `max` is stated at init; a NUL always follows the content.
 * Failure (out of memory, over max) is sticky: append freely, check once with sbx_buf_ok().
 * Escapers live here: no format string ever builds JSON, XML, SQL or a command line.
 * One owner, one thread at a time.
 */
#ifndef SBX_BUF_H
#define SBX_BUF_H

#include <stdarg.h>

#include "sbx/err.h"
#include "sbx/str.h"

struct sbx_buf {
	char *p;
	size_t n, cap, max;
	bool failed;
};

void sbx_buf_init(struct sbx_buf *b, size_t max_bytes); /* allocates nothing */
void sbx_buf_done(struct sbx_buf *b);                   /* frees; usable again with the same max */
void sbx_buf_reset(struct sbx_buf *b);                  /* empty, memory kept */
#define sbx_auto_buf SBX_CLEANUP(sbx_buf_done)

void sbx_buf_add(struct sbx_buf *b, const void *p, size_t n);
void sbx_buf_adds(struct sbx_buf *b, struct sbx_str s);
void sbx_buf_addz(struct sbx_buf *b, const char *z);
void sbx_buf_addc(struct sbx_buf *b, char c);
void sbx_buf_addf(struct sbx_buf *b, const char *fmt, ...) SBX_PRINTF(2, 3);
void sbx_buf_vaddf(struct sbx_buf *b, const char *fmt, va_list ap) SBX_PRINTF(2, 0);
/* Room for n more bytes at the returned place, to be counted in with sbx_buf_added(); NULL on failure. */
char *sbx_buf_reserve(struct sbx_buf *b, size_t n);
void sbx_buf_added(struct sbx_buf *b, size_t n);
void sbx_buf_consume(struct sbx_buf *b, size_t n); /* drops n bytes from the front */

/* A quoted JSON string (RFC 8259 section 7). Invalid UTF-8 becomes U+FFFD, NUL becomes \u0000. */
void sbx_buf_json(struct sbx_buf *b, struct sbx_str s);
/* Text for XML content or an attribute in either quote; bytes XML 1.0 forbids become '?'. */
void sbx_buf_xml(struct sbx_buf *b, struct sbx_str s);
/* A logfmt value: bare when plain, else quoted with control bytes and invalid UTF-8 escaped. */
void sbx_buf_logfmt(struct sbx_buf *b, struct sbx_str s);
/* Percent-encoding of all but the unreserved set (RFC 3986 section 2.3). */
void sbx_buf_url(struct sbx_buf *b, struct sbx_str s);
/* One word for a POSIX shell, in single quotes. */
void sbx_buf_shell(struct sbx_buf *b, struct sbx_str s);

struct sbx_str sbx_buf_str(const struct sbx_buf *b);
const char *sbx_buf_z(struct sbx_buf *b); /* NUL-terminated; "" when nothing was added */
/* 0, or -1 with SBX_E_TOO_LARGE when the builder failed. */
int sbx_buf_ok(const struct sbx_buf *b, struct sbx_err *err) SBX_MUST_CHECK;

#endif
