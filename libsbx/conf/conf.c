#include "sbx/conf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sbx/fd.h"

#define CONF_FILE "/etc/sbx/sbx.conf"
#define CONF_FILE_MAX (256u * 1024u)

enum kind { STR, INT };

struct row {
	const char *key;
	enum kind kind;
	size_t offset;
	const char *def_str;
	int64_t def_int, min, max;
	const char *help;
};

#define DEF_STR(d) .def_str = d
#define DEF_INT(d) .def_int = d
static const struct row rows[] = {
#define X(field, key_, kind_, def, min_, max_, help_) \
	{ .key = "SBX_" key_, \
		.kind = kind_, \
		.offset = offsetof(struct sbx_conf, field), \
		DEF_##kind_(def), \
		.min = min_, \
		.max = max_, \
		.help = help_ },
#include "sbx/conf.def"
#undef X
};

static const char **str_at(const struct sbx_conf *c, const struct row *r)
{
	return (const char **)((uintptr_t)c + r->offset);
}

static int64_t *int_at(const struct sbx_conf *c, const struct row *r)
{
	return (int64_t *)((uintptr_t)c + r->offset);
}

static void drop(const char *owned)
{
	free((void *)(uintptr_t)owned);
}

/* gcc 12 loses what is stored at an offset that it does not know, and calls it a leak. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
static int put(struct sbx_conf *c, const struct row *r, struct sbx_str v, struct sbx_err *err)
{
	char *copy;

	if (r->kind == INT) {
		if (!sbx_str_i64(v, r->min, r->max, int_at(c, r)))
			return SBX_FAIL(err, SBX_E_INVALID,
				"%s must be a whole number from %" PRId64 " to %" PRId64 ", not \"%.*s\"", r->key,
				r->min, r->max, (int)(v.n < 60 ? v.n : 60), v.p);
		return 0;
	}
	if ((int64_t)v.n < r->min || (int64_t)v.n > r->max || memchr(v.p, '\0', v.n))
		return SBX_FAIL(err, SBX_E_INVALID, "%s must have %" PRId64 " to %" PRId64 " characters", r->key,
			r->min, r->max);
	copy = strndup(v.p, v.n);
	if (!copy)
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	drop(*str_at(c, r));
	*str_at(c, r) = copy;
	return 0;
}
#pragma GCC diagnostic pop

static const struct row *row_of(struct sbx_str key)
{
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++)
		if (sbx_str_eqz(key, rows[i].key))
			return &rows[i];
	return NULL;
}

/* `KEY=value` a line; # begins a comment line; quotes round the whole value are taken off. */
static int line(struct sbx_conf *c, struct sbx_str l, const char *path, int number, struct sbx_err *err)
{
	struct sbx_str key;
	const struct row *r;

	l = sbx_str_trim(l);
	if (l.n == 0 || l.p[0] == '#')
		return 0;
	if (!memchr(l.p, '=', l.n) || !sbx_str_split(&l, '=', &key))
		return SBX_FAIL(err, SBX_E_INVALID, "%s line %d: expected KEY=value", path, number);
	l = sbx_str_trim(l);
	if (l.n >= 2 && (l.p[0] == '"' || l.p[0] == '\'') && l.p[l.n - 1] == l.p[0]) {
		l.p++;
		l.n -= 2;
	}
	r = row_of(sbx_str_trim(key));
	if (!r)
		return SBX_FAIL(err, SBX_E_INVALID, "%s line %d: unknown setting \"%.*s\"", path, number,
			(int)(key.n < 60 ? key.n : 60), key.p);
	if (put(c, r, l, err) < 0)
		return sbx_err_wrap(err, "%s line %d", path, number);
	return 0;
}

static int file(struct sbx_conf *c, struct sbx_err *err)
{
	const char *path = getenv("SBX_CONFIG");
	struct sbx_str rest, l;
	sbx_auto_buf struct sbx_buf b;
	int number = 0;

	sbx_buf_init(&b, CONF_FILE_MAX);
	if (!path && access(CONF_FILE, F_OK) < 0)
		return 0;
	path = path ? path : CONF_FILE;
	if (sbx_fd_slurp(path, &b, err) < 0)
		return -1;
	rest = sbx_buf_str(&b);
	while (sbx_str_split(&rest, '\n', &l))
		if (line(c, l, path, ++number, err) < 0)
			return -1;
	return 0;
}

static int defaults(struct sbx_conf *c, struct sbx_err *err)
{
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		if (rows[i].kind == INT)
			*int_at(c, &rows[i]) = rows[i].def_int;
		else if (put(c, &rows[i], sbx_str_of(rows[i].def_str), err) < 0)
			return -1;
	}
	return 0;
}

static int environment(struct sbx_conf *c, struct sbx_err *err)
{
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		const char *v = getenv(rows[i].key);

		if (v && put(c, &rows[i], sbx_str_of(v), err) < 0)
			return sbx_err_wrap(err, "Environment");
	}
	return 0;
}

/* A host without a configured name goes by its own. */
static int host_name(struct sbx_conf *c, struct sbx_err *err)
{
	char name[64] = "";

	if (c->host_name[0])
		return 0;
	if (gethostname(name, sizeof(name) - 1) < 0 || !name[0])
		return SBX_FAIL(err, SBX_E_INVALID, "The host has no name: set SBX_HOST_NAME");
	for (char *p = name; *p; p++)
		if (*p >= 'A' && *p <= 'Z')
			*p = (char)(*p - 'A' + 'a');
	return put(c, row_of(SBX_STR("SBX_HOST_NAME")), sbx_str_of(name), err);
}

struct sbx_conf *sbx_conf_load(struct sbx_err *err)
{
	struct sbx_conf *c = calloc(1, sizeof(*c));

	if (!c) {
		SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
		return NULL;
	}
	if (defaults(c, err) < 0 || file(c, err) < 0 || environment(c, err) < 0 || host_name(c, err) < 0) {
		sbx_conf_free(c);
		return NULL;
	}
	return c;
}

void sbx_conf_free(struct sbx_conf *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++)
		if (rows[i].kind == STR)
			drop(*str_at(c, &rows[i]));
	free(c);
}

void sbx_conf_each(const struct sbx_conf *c,
	void (*fn)(void *arg, const char *key, const char *value, const char *help), void *arg)
{
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		char number[24];

		if (rows[i].kind == INT)
			snprintf(number, sizeof(number), "%" PRId64, *int_at(c, &rows[i]));
		fn(arg, rows[i].key, rows[i].kind == INT ? number : *str_at(c, &rows[i]), rows[i].help);
	}
}

bool sbx_conf_listed(const char *list, struct sbx_str entry)
{
	struct sbx_str rest = sbx_str_of(list), part;
	char z[256];

	if (!sbx_str_copyz(entry, z, sizeof(z)) || !z[0])
		return false;
	while (sbx_str_split(&rest, ',', &part))
		if (sbx_str_caseeqz(sbx_str_trim(part), z))
			return true;
	return false;
}
