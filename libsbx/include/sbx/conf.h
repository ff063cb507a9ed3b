/*
 * Configuration: read once, immutable after. The rows are in sbx/conf.def; parsing, documentation
 * and `sbx config` come from them. An unknown SBX_ key in the file is an error.
 * Secrets are never configuration values: they stand in files that values name.
 */
#ifndef SBX_CONF_H
#define SBX_CONF_H

#include "sbx/err.h"
#include "sbx/str.h"

struct sbx_conf {
#define SBX_CONF_STR const char *
#define SBX_CONF_INT int64_t
#define X(field, key, kind, def, min, max, help) SBX_CONF_##kind field;
#include "sbx/conf.def"
#undef X
};

/*
 * Reads the file named by SBX_CONFIG, or /etc/sbx/sbx.conf when it exists, then the environment.
 * NULL with SBX_E_INVALID and a message that names the key. Freed with sbx_conf_free(NULL ok).
 */
struct sbx_conf *sbx_conf_load(struct sbx_err *err);
void sbx_conf_free(struct sbx_conf *c);
/* Calls fn for each row, in order, with the value as text. */
void sbx_conf_each(const struct sbx_conf *c,
	void (*fn)(void *arg, const char *key, const char *value, const char *help), void *arg);
/* The entry of a comma separated list, compared without case. */
bool sbx_conf_listed(const char *list, struct sbx_str entry);

#endif
