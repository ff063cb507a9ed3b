/*
 * sbx box list|stop, host list.
 */
#include "sbx_cli.h"

int cmd_box_list(struct cli *cli, struct sbx_err *err)
{
	static const struct cli_column columns[] = {
		{ "id", "BOX", CLI_TEXT },
		{ "tenant", "TENANT", CLI_TEXT },
		{ "state", "STATE", CLI_TEXT },
		{ "op", "OP", CLI_TEXT },
		{ "environment", "ENVIRONMENT", CLI_TEXT },
		{ "host", "HOST", CLI_TEXT },
		{ "keyPrefix", "KEY", CLI_TEXT },
		{ "client", NULL, CLI_TEXT },
		{ "note", NULL, CLI_TEXT },
		{ "reason", NULL, CLI_TEXT },
		{ "createdAt", "CREATED", CLI_TIME },
		{ "readyAt", NULL, CLI_TIME },
		{ "lastUsedAt", "LAST USED", CLI_TIME },
		{ "endedAt", NULL, CLI_TIME },
	};
	sbx_auto_res struct sbx_res *r = NULL;
	bool wants_all = cli->opt[OPT_ALL] != NULL;
	if (cli_connect(cli, "sbx_admin", err) < 0 ||
		sbx_db_run(cli->db, NULL, &sbx_stmt_admin_box_list, SBX_PARAMS(sbx_p_bool(wants_all)), &r, err) < 0)
		return -1;
	return cli_print(cli, r, columns, SBX_ARRAY_LEN(columns), err);
}

int cmd_box_stop(struct cli *cli, struct sbx_err *err)
{
	sbx_auto_res struct sbx_res *r = NULL;
	if (cli_connect(cli, "sbx_admin", err) < 0 ||
		sbx_db_run(cli->db, NULL, &sbx_stmt_admin_box_stop, SBX_PARAMS(sbx_p_z(cli->arg[0])), &r, err) < 0)
		return -1;
	return cli_put_value(cli, "state", sbx_res_z(r, 0, 0), err);
}

int cmd_host_list(struct cli *cli, struct sbx_err *err)
{
	static const struct cli_column columns[] = {
		{ "name", "HOST", CLI_TEXT },
		{ "state", "STATE", CLI_TEXT },
		{ "isAlive", "ALIVE", CLI_BOOL },
		{ "accel", "ACCEL", CLI_TEXT },
		{ "cpus", "CPUS", CLI_INT },
		{ "memoryMib", "MEMORY", CLI_INT },
		{ "usedMemoryMib", "USED", CLI_INT },
		{ "machines", "MACHINES", CLI_INT },
		{ "boxCidr", "ADDRESSES", CLI_TEXT },
		{ "version", "VERSION", CLI_TEXT },
		{ "lastSeenAt", "LAST SEEN", CLI_TIME },
		{ "health", "HEALTH", CLI_TEXT },
	};
	sbx_auto_res struct sbx_res *r = NULL;
	if (cli_connect(cli, "sbx_admin", err) < 0 ||
		sbx_db_run(cli->db, NULL, &sbx_stmt_admin_host_list, NULL, &r, err) < 0)
		return -1;
	return cli_print(cli, r, columns, SBX_ARRAY_LEN(columns), err);
}
