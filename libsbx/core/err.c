#include "sbx/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *wire, *title;
	int http;
	bool retryable;
} codes[SBX_E__MAX] = {
	[SBX_OK] = { "ok", "OK", 200, false },
#define X(name, wire_, http_, retryable_, title_) \
	[SBX_E_##name] = { .wire = wire_, .title = title_, .http = http_, .retryable = retryable_ },
#include "sbx/codes.def"
#undef X
};

static int set(struct sbx_err *err, enum sbx_code code, int sys, const char *where, const char *fmt, va_list ap)
{
	if (!err || err->code != SBX_OK)
		return -1;
	err->code = code;
	err->sys = sys;
	err->where = where;
	err->sqlstate[0] = err->detail[0] = '\0';
	vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	return -1;
}

int sbx_err_set(struct sbx_err *err, enum sbx_code code, const char *where, const char *fmt, ...)
{
	int saved = errno;
	va_list ap;

	va_start(ap, fmt);
	set(err, code, 0, where, fmt, ap);
	va_end(ap);
	errno = saved;
	return -1;
}

int sbx_err_sys(struct sbx_err *err, enum sbx_code code, int sys, const char *where, const char *fmt, ...)
{
	bool first = err && err->code == SBX_OK;
	va_list ap;

	va_start(ap, fmt);
	set(err, code, sys, where, fmt, ap);
	va_end(ap);
	if (first)
		sbx_err_detail(err, "%s", strerrordesc_np(sys) ? strerrordesc_np(sys) : "unknown errno");
	errno = sys;
	return -1;
}

void sbx_err_detail(struct sbx_err *err, const char *fmt, ...)
{
	va_list ap;

	if (!err || err->detail[0])
		return;
	va_start(ap, fmt);
	vsnprintf(err->detail, sizeof(err->detail), fmt, ap);
	va_end(ap);
}

int sbx_err_wrap(struct sbx_err *err, const char *fmt, ...)
{
	char old[sizeof(err->msg)];
	va_list ap;
	size_t n;

	if (!err || err->code == SBX_OK)
		return -1;
	memcpy(old, err->msg, sizeof(old));
	va_start(ap, fmt);
	vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	n = strlen(err->msg);
	snprintf(err->msg + n, sizeof(err->msg) - n, ": %s", old);
	return -1;
}

void sbx_err_clear(struct sbx_err *err)
{
	if (err)
		*err = SBX_ERR_INIT;
}

const char *sbx_code_wire(enum sbx_code code)
{
	SBX_ASSERT(code < SBX_E__MAX);
	return codes[code].wire;
}

const char *sbx_code_title(enum sbx_code code)
{
	SBX_ASSERT(code < SBX_E__MAX);
	return codes[code].title;
}

int sbx_code_http(enum sbx_code code)
{
	SBX_ASSERT(code < SBX_E__MAX);
	return codes[code].http;
}

bool sbx_code_retryable(enum sbx_code code)
{
	SBX_ASSERT(code < SBX_E__MAX);
	return codes[code].retryable;
}

enum sbx_code sbx_code_from_wire(const char *wire)
{
	for (int i = SBX_OK + 1; wire && i < SBX_E__MAX; i++)
		if (strcmp(codes[i].wire, wire) == 0)
			return (enum sbx_code)i;
	return SBX_E_INTERNAL;
}
