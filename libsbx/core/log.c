#include "sbx/log.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sbx/buf.h"
#include "sbx/clock.h"
#include "sbx/fd.h"

static const char *const level_names[] = { "error", "warn", "info", "debug" };
static enum sbx_log_level level_max = SBX_LOG_INFO;
static char unit[32] = "sbx";

void sbx_log_open(const char *name)
{
	const char *want = getenv("SBX_LOG_LEVEL");

	if (!sbx_str_copyz(sbx_str_of(name), unit, sizeof(unit)))
		unit[0] = '\0';
	for (size_t i = 0; i < SBX_ARRAY_LEN(level_names); i++)
		if (sbx_streq(want, level_names[i]))
			level_max = (enum sbx_log_level)i;
}

bool sbx_log_on(enum sbx_log_level level)
{
	return level <= level_max;
}

static void pair(struct sbx_buf *b, const char *key, const char *value)
{
	sbx_buf_addc(b, ' ');
	sbx_buf_addz(b, key);
	sbx_buf_addc(b, '=');
	sbx_buf_logfmt(b, sbx_str_of(value));
}

static void pairs(struct sbx_buf *b, const struct sbx_kv *kv, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!kv[i].key)
			continue;
		if (kv[i].s)
			pair(b, kv[i].key, kv[i].s);
		else
			sbx_buf_addf(b, " %s=%lld", kv[i].key, (long long)kv[i].i);
	}
}

static void head(struct sbx_buf *b, enum sbx_log_level level, const char *evt)
{
	char now[SBX_RFC3339_SIZE];

	sbx_buf_init(b, 64 * 1024);
	sbx_rfc3339(sbx_wall_us(), now);
	sbx_buf_addf(b, "ts=%s level=%s", now, level_names[level]);
	pair(b, "unit", unit);
	pair(b, "evt", evt);
}

/* One write of at most PIPE_BUF bytes, which pipes keep whole (POSIX write()). */
static void emit(struct sbx_buf *b)
{
	size_t n = b->n < PIPE_BUF - 1 ? b->n : PIPE_BUF - 1;

	if (b->p) {
		b->p[n] = '\n';
		(void)sbx_fd_write_full(STDERR_FILENO, b->p, n + 1);
	}
	sbx_buf_done(b);
}

void sbx_log_write(enum sbx_log_level level, const char *evt, const struct sbx_kv *kv, size_t n)
{
	int saved = errno;
	struct sbx_buf b;

	if (!sbx_log_on(level))
		return;
	head(&b, level, evt);
	pairs(&b, kv, n);
	emit(&b);
	errno = saved;
}

void sbx_log_err_write(
	enum sbx_log_level level, const char *evt, const struct sbx_err *err, const struct sbx_kv *kv, size_t n)
{
	int saved = errno;
	struct sbx_buf b;

	if (!sbx_log_on(level))
		return;
	head(&b, level, evt);
	pair(&b, "code", sbx_code_wire(err->code));
	pair(&b, "msg", err->msg);
	if (err->detail[0])
		pair(&b, "detail", err->detail);
	if (err->sqlstate[0])
		pair(&b, "sqlstate", err->sqlstate);
	if (err->sys)
		sbx_buf_addf(&b, " errno=%d", err->sys);
	if (err->where)
		pair(&b, "where", err->where);
	pairs(&b, kv, n);
	emit(&b);
	errno = saved;
}
