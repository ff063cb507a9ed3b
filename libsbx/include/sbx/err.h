/*
 * The error object: owned by the caller, no heap, no thread-local state, so that it works when
 * memory is gone and has nothing to leak.
 *
 * A function that can fail returns int (0 or -1) or a pointer (NULL on failure) and takes
 * `struct sbx_err *err` last; NULL is allowed. Outputs are untouched on failure. The first error
 * wins: setting one on an error that is set already is a no-op, so cleanup cannot hide the cause.
 * Libraries do not log errors; the program logs once, at the edge.
 *
 * `msg` is written for the person who reads it (what happened, what to do) and may be shown to
 * clients; `detail` is for the log alone (foreign library texts, paths).
 */
#ifndef SBX_ERR_H
#define SBX_ERR_H

#include "sbx/base.h"

enum sbx_code {
	SBX_OK = 0,
#define X(name, wire, http, retryable, title) SBX_E_##name,
#include "sbx/codes.def"
#undef X
	SBX_E__MAX
};

struct sbx_err {
	enum sbx_code code;
	int sys;           /* errno, or 0 */
	char sqlstate[6];  /* PostgreSQL's, or "" */
	const char *where; /* function that failed: a string literal */
	char msg[480];
	char detail[240];
};

#define SBX_ERR_INIT ((struct sbx_err){ .code = SBX_OK })

/* Sets the error (unless one is set) and gives -1, so that it can be returned. */
int sbx_err_set(struct sbx_err *err, enum sbx_code code, const char *where, const char *fmt, ...) SBX_PRINTF(4, 5);
/* Same, with errno's value and text kept in sys and detail. */
int sbx_err_sys(struct sbx_err *err, enum sbx_code code, int sys, const char *where, const char *fmt, ...)
	SBX_PRINTF(5, 6);
/* Adds private text for the log. */
void sbx_err_detail(struct sbx_err *err, const char *fmt, ...) SBX_PRINTF(2, 3);
/* Puts "context: " before the message of an error that is set; gives -1. */
int sbx_err_wrap(struct sbx_err *err, const char *fmt, ...) SBX_PRINTF(2, 3);
void sbx_err_clear(struct sbx_err *err);

#define SBX_FAIL(err, code, ...) sbx_err_set((err), (code), __func__, __VA_ARGS__)
#define SBX_FAIL_SYS(err, code, ...) sbx_err_sys((err), (code), errno, __func__, __VA_ARGS__)

const char *sbx_code_wire(enum sbx_code code);  /* "not_found" */
const char *sbx_code_title(enum sbx_code code); /* "Not found" */
int sbx_code_http(enum sbx_code code);          /* 404 */
bool sbx_code_retryable(enum sbx_code code);
/* The code whose wire name this is, or SBX_E_INTERNAL. */
enum sbx_code sbx_code_from_wire(const char *wire);

#endif
