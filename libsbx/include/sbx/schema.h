/*
 * Typed tables of fields. One row describes one member of an object: from the rows come the JSON
 * Schema (2020-12) that clients see, the decoder that fills a C struct, and documentation. The type of
 * a row is deduced from the struct member, so struct and schema cannot drift.
 */
#ifndef SBX_SCHEMA_H
#define SBX_SCHEMA_H

#include "sbx/json.h"

enum sbx_type { SBX_T_STR, SBX_T_INT, SBX_T_BOOL, SBX_T_STRS, SBX_T_OBJS, SBX_T_OBJ };

/* What fields decode to. A string that is absent is NULL; an absent list is empty. */
struct sbx_opt_int {
	bool set;
	int64_t v;
};
struct sbx_opt_bool {
	bool set, v;
};
struct sbx_strs {
	const char **v;
	size_t n;
};
struct sbx_objs { /* n structs of items.size bytes each */
	void *v;
	size_t n;
};

struct sbx_fields {
	const struct sbx_field *rows;
	size_t n;
	size_t size; /* of the struct that a row's offset counts in; 0 for outputs */
};

struct sbx_field {
	const char *name;
	const char *help;
	enum sbx_type type;
	size_t offset;
	bool required;                    /* input: must be there; output: always there */
	bool nullable;                    /* output: may be null */
	int64_t min, max;                 /* INT: range; STR: length in bytes; STRS and OBJS: count. max 0 = no bound */
	const char *pattern;              /* STR: for the schema; `check` enforces it */
	bool (*check)(const char *value); /* STR, each of STRS: false refuses */
	const char *const *choices;       /* STR: NULL-ended list of what it may be */
	const struct sbx_fields *items;   /* OBJS, OBJ */
};

/* clang-format off */
#define SBX_TYPE_OF(T, m) \
	_Generic(((T *)0)->m, const char *: SBX_T_STR, struct sbx_opt_int: SBX_T_INT, \
		struct sbx_opt_bool: SBX_T_BOOL, struct sbx_strs: SBX_T_STRS, struct sbx_objs: SBX_T_OBJS)
/*
 * Rows. What follows the name (and type) begins with the help text, then what else differs:
 *     SBX_IN(struct exec_args, cmd, "cmd", "what it is", .required = true, .max = 100)
 *     SBX_OUT("id", STR, "what it is", .nullable = true)        always there
 */
#define SBX_IN(T, m, name_, ...) \
	{ .name = name_, .type = SBX_TYPE_OF(T, m), .offset = offsetof(T, m), .help = __VA_ARGS__ }
#define SBX_OUT(name_, type_, ...) \
	{ .name = name_, .type = SBX_T_##type_, .required = true, .help = __VA_ARGS__ }
#define SBX_FIELDS(rows_, T) { rows_, SBX_ARRAY_LEN(rows_), sizeof(T) }
#define SBX_OUT_FIELDS(rows_) { rows_, SBX_ARRAY_LEN(rows_), 0 }
#define SBX_NO_FIELDS { NULL, 0, 1 }
/* clang-format on */

/* Writes the schema of an object with these fields as a value of w. */
void sbx_schema_write(struct sbx_jw *w, const char *key, const struct sbx_fields *f);
/*
 * Decodes object into out (f->size zeroed bytes); strings live in the arena. Unknown members, wrong types,
 * values out of range are SBX_E_INVALID with the path of the member and what is expected.
 */
int sbx_schema_decode(struct sbx_arena *a, const struct cJSON *object, const struct sbx_fields *f, void *out,
	struct sbx_err *err) SBX_MUST_CHECK;

#endif
