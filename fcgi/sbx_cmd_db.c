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

static void put_setting(void *arg, const char *key, const char *value, const char *help)
{
	sbx_buf_addf(arg, "# %s\n%s=%s\n", help, key, value);
}

int cmd_config(struct cli *cli, struct sbx_err *err)
{
	sbx_auto_buf struct sbx_buf out;
	sbx_buf_init(&out, 1 << 20);
	sbx_conf_each(cli->conf, put_setting, &out);
	return cli_put(&out, err);
}
