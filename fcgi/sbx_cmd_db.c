/*
 * sbx migrate, config.
 */
#include <stdio.h>

#include "sbx_cli.h"

int cmd_migrate(struct cli *cli, struct sbx_err *err)
{
	const char *dir = cli->opt[OPT_DIR] != NULL ? cli->opt[OPT_DIR] : SBX_SQL_DIR;
	int applied = 0, version = 0;
	if (cli_connect(cli, "sbx_owner", err) < 0 || sbx_db_migrate(cli->db, dir, &applied, err) < 0 ||
		sbx_db_schema_version(cli->db, &version, err) < 0)
		return -1;
	sbx_auto_buf struct sbx_buf out;
	sbx_buf_init(&out, 200);
	sbx_buf_addf(&out, "%d migration%s applied, version %04d\n", applied, applied == 1 ? "" : "s", version);
	return cli_put(&out, err);
}

struct settings {
	struct sbx_buf out;
	const char *only; /* the key asked for, or NULL for all */
};

static void put_setting(void *arg, const char *key, const char *value, const char *help)
{
	struct settings *s = arg;

	if (s->only == NULL)
		sbx_buf_addf(&s->out, "# %s\n%s=%s\n", help, key, value);
	else if (sbx_streq(s->only, key))
		sbx_buf_addf(&s->out, "%s\n", value);
}

int cmd_config(struct cli *cli, struct sbx_err *err)
{
	struct settings s = { .only = cli->arg[0] };
	int rc;

	sbx_buf_init(&s.out, 1 << 20);
	sbx_conf_each(cli->conf, put_setting, &s);
	rc = s.out.n > 0 ? cli_put(&s.out, err)
			 : SBX_FAIL(err, SBX_E_NOT_FOUND, "There is no setting %s; `sbx config` lists them.", s.only);
	sbx_buf_done(&s.out);
	return rc;
}
