/*
 * The command line `sbx`: what commands share. A command reads its arguments from struct cli,
 * speaks to the database as the role that has the right, and prints a table or, with --json, JSON.
 */
#ifndef SBX_CLI_H
#define SBX_CLI_H

#include "db/stmts.h"
#include "sbx/conf.h"
#include "sbx/json.h"

#define CLI_ARGS_MAX 2
/* Where `make install` puts the migrations. */
#define SBX_SQL_DIR "/usr/local/share/sbx/sql"

enum cli_opt { OPT_JSON, OPT_ALL, OPT_DIR, OPT_PLAN, OPT_NAME, OPT_SCOPE, OPT_EXPIRES, OPT__MAX };

struct cli {
	const struct sbx_conf *conf;
	const char *arg[CLI_ARGS_MAX]; /* NULL when not given */
	const char *opt[OPT__MAX];     /* the value, "" for a switch, NULL when not given */
	struct sbx_db_pool *pool;      /* owned; one connection */
	struct sbx_db *db;
};

enum cli_kind { CLI_TEXT, CLI_INT, CLI_BOOL, CLI_TIME };

/* A column of a result, in its order. Without a title it is shown in JSON only. */
struct cli_column {
	const char *json;
	const char *title;
	enum cli_kind kind;
};

/* Connects as a role of the database. */
int cli_connect(struct cli *cli, const char *role, struct sbx_err *err) SBX_MUST_CHECK;
/* Prints all rows: aligned columns, or an array of objects. */
int cli_print(const struct cli *cli, const struct sbx_res *r, const struct cli_column *columns, int n,
	struct sbx_err *err) SBX_MUST_CHECK;
/* Writes what was built to standard output. */
int cli_put(const struct sbx_buf *b, struct sbx_err *err) SBX_MUST_CHECK;
/* Prints one string, or with --json {"name":"value"}. */
int cli_put_value(const struct cli *cli, const char *name, const char *value, struct sbx_err *err) SBX_MUST_CHECK;

typedef int (*cli_fn)(struct cli *cli, struct sbx_err *err);
int cmd_migrate(struct cli *cli, struct sbx_err *err);
int cmd_config(struct cli *cli, struct sbx_err *err);
int cmd_tenant_add(struct cli *cli, struct sbx_err *err);
int cmd_tenant_list(struct cli *cli, struct sbx_err *err);
int cmd_key_add(struct cli *cli, struct sbx_err *err);
int cmd_key_list(struct cli *cli, struct sbx_err *err);
int cmd_key_revoke(struct cli *cli, struct sbx_err *err);
int cmd_box_list(struct cli *cli, struct sbx_err *err);
int cmd_box_stop(struct cli *cli, struct sbx_err *err);
int cmd_host_list(struct cli *cli, struct sbx_err *err);
int cmd_image_add(struct cli *cli, struct sbx_err *err);
int cmd_image_list(struct cli *cli, struct sbx_err *err);

#endif
