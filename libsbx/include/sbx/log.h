/*
 * Log lines in logfmt on standard error, one write(2) a line:
 *     ts=2026-11-30T23:01:14.123Z level=info unit=sbx-keeper evt=op.done box=… dur_ms=12
 * Values are escaped, so no input can forge a line. Never hand a secret to the logger.
 * Thread-safe. Saves and restores errno. A line is cut at 4 KiB (PIPE_BUF), so lines do not mix.
 */
#ifndef SBX_LOG_H
#define SBX_LOG_H

#include "sbx/err.h"

enum sbx_log_level { SBX_LOG_ERROR, SBX_LOG_WARN, SBX_LOG_INFO, SBX_LOG_DEBUG };

struct sbx_kv {
	const char *key; /* a literal; a row without one is skipped */
	const char *s;   /* string value, or NULL for the number */
	int64_t i;
};

static inline struct sbx_kv sbx_kv_s(const char *key, const char *s)
{
	return (struct sbx_kv){ key, s ? s : "", 0 };
}

static inline struct sbx_kv sbx_kv_i(const char *key, int64_t i)
{
	return (struct sbx_kv){ key, NULL, i };
}

/* Names the program in each line and takes the level from SBX_LOG_LEVEL (error warn info debug). */
void sbx_log_open(const char *unit);
void sbx_log_write(enum sbx_log_level level, const char *evt, const struct sbx_kv *kv, size_t n);
/* An error object as one line: code, message, detail, errno, SQLSTATE, and kv. */
void sbx_log_err_write(
	enum sbx_log_level level, const char *evt, const struct sbx_err *err, const struct sbx_kv *kv, size_t n);
bool sbx_log_on(enum sbx_log_level level);

#define SBX_KV_NONE ((struct sbx_kv){ NULL, NULL, 0 })
#define SBX_KVS_(...) ((const struct sbx_kv[]){ __VA_ARGS__ })
#define SBX_KVN_(...) (sizeof(SBX_KVS_(__VA_ARGS__)) / sizeof(struct sbx_kv))
/* sbx_log(SBX_LOG_INFO, "op.done", sbx_kv_s("box", id), sbx_kv_i("dur_ms", ms)); at least SBX_KV_NONE. */
#define sbx_log(level, evt, ...) sbx_log_write((level), (evt), SBX_KVS_(__VA_ARGS__), SBX_KVN_(__VA_ARGS__))
#define sbx_log_err(level, evt, err, ...) \
	sbx_log_err_write((level), (evt), (err), SBX_KVS_(__VA_ARGS__), SBX_KVN_(__VA_ARGS__))

#endif
