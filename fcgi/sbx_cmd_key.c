/*
 * sbx tenant add|list, key add|list|revoke.
 */
#include <openssl/crypto.h>
#include <stdio.h>

#include "sbx/auth.h"
#include "sbx_cli.h"

#define EXPIRES_MAX_DAYS 36500

int cmd_tenant_add(struct cli *cli, struct sbx_err *err)
{
	sbx_auto_res struct sbx_res *r = NULL;
	struct sbx_err own = SBX_ERR_INIT;
	const char *name = cli->arg[0], *plan = cli->opt[OPT_PLAN] != NULL ? cli->opt[OPT_PLAN] : "free";
	if (cli_connect(cli, "sbx_owner", err) < 0)
		return -1;
	if (sbx_db_run(cli->db, NULL, &sbx_stmt_tenant_add, SBX_PARAMS(sbx_p_z(name), sbx_p_z(plan)), &r, &own) == 0)
		return cli_put_value(cli, "id", sbx_res_z(r, 0, 0), err);
	if (sbx_streq(own.sqlstate, "23505"))
		return SBX_FAIL(err, SBX_E_CONFLICT, "There is a tenant %s already.", name);
	if (sbx_streq(own.sqlstate, "23503"))
		return SBX_FAIL(err, SBX_E_NOT_FOUND, "There is no plan %s: free, pro or max.", plan);
	if (sbx_streq(own.sqlstate, "23514"))
		return SBX_FAIL(err, SBX_E_INVALID,
			"A tenant's name has 1 to 63 small letters, digits, dots, dashes or "
			"underscores and begins with a letter or digit.");
	*err = own;
	return -1;
}

int cmd_tenant_list(struct cli *cli, struct sbx_err *err)
{
	static const struct cli_column columns[] = {
		{ "id", NULL, CLI_TEXT },
		{ "name", "TENANT", CLI_TEXT },
		{ "plan", "PLAN", CLI_TEXT },
		{ "maxBoxes", "MAX", CLI_INT },
		{ "liveBoxes", "BOXES", CLI_INT },
		{ "validKeys", "KEYS", CLI_INT },
		{ "suspendedAt", "SUSPENDED", CLI_TIME },
		{ "createdAt", "CREATED", CLI_TIME },
	};
	sbx_auto_res struct sbx_res *r = NULL;
	if (cli_connect(cli, "sbx_admin", err) < 0 ||
		sbx_db_run(cli->db, NULL, &sbx_stmt_tenant_list, NULL, &r, err) < 0)
		return -1;
	return cli_print(cli, r, columns, SBX_ARRAY_LEN(columns), err);
}

static int add_key(struct cli *cli, const char *scope, struct sbx_param days, struct sbx_err *err)
{
	sbx_auto_res struct sbx_res *r = NULL;
	char key[SBX_KEY_TEXT + 1];
	uint8_t hash[SBX_SHA256_SIZE];
	const char *tenant = cli->arg[0], *name = cli->opt[OPT_NAME] != NULL ? cli->opt[OPT_NAME] : "";
	if (sbx_auth_make_key(key, hash, err) < 0)
		return -1;
	int rc = sbx_db_run(cli->db, NULL, &sbx_stmt_key_add,
		SBX_PARAMS(sbx_p_z(tenant), sbx_p_z(name), sbx_p_s((struct sbx_str){ key, SBX_KEY_PREFIX }),
			sbx_p_bytes(hash, sizeof(hash)), sbx_p_z(scope), days),
		&r, err);
	if (rc == 0 && sbx_res_rows(r) == 0)
		rc = SBX_FAIL(err, SBX_E_NOT_FOUND, "There is no tenant %s.", tenant);
	/* The key alone on standard output, so that it can be taken by a script. */
	if (rc == 0)
		rc = cli_put_value(cli, "key", key, err);
	if (rc == 0 && cli->opt[OPT_JSON] == NULL)
		fprintf(stderr, "sbx: key %s of tenant %s; it is not shown again\n", sbx_res_z(r, 0, 0), tenant);
	OPENSSL_cleanse(key, sizeof(key));
	return rc;
}

int cmd_key_add(struct cli *cli, struct sbx_err *err)
{
	const char *scope = cli->opt[OPT_SCOPE] != NULL ? cli->opt[OPT_SCOPE] : "full";
	struct sbx_param expires = sbx_p_null();
	enum sbx_scope parsed;
	int64_t days = 0;
	if (!sbx_scope_parse(scope, &parsed))
		return SBX_FAIL(err, SBX_E_INVALID, "The scope is full, agent or read, not %s.", scope);
	if (cli->opt[OPT_EXPIRES] != NULL) {
		if (!sbx_str_i64(sbx_str_of(cli->opt[OPT_EXPIRES]), 1, EXPIRES_MAX_DAYS, &days))
			return SBX_FAIL(
				err, SBX_E_INVALID, "--expires takes a number of days from 1 to %d.", EXPIRES_MAX_DAYS);
		expires = sbx_p_i(days);
	}
	if (cli_connect(cli, "sbx_owner", err) < 0)
		return -1;
	return add_key(cli, scope, expires, err);
}

int cmd_key_list(struct cli *cli, struct sbx_err *err)
{
	static const struct cli_column columns[] = {
		{ "id", "ID", CLI_TEXT },
		{ "tenant", "TENANT", CLI_TEXT },
		{ "name", "NAME", CLI_TEXT },
		{ "prefix", "PREFIX", CLI_TEXT },
		{ "scope", "SCOPE", CLI_TEXT },
		{ "state", "STATE", CLI_TEXT },
		{ "createdAt", "CREATED", CLI_TIME },
		{ "expiresAt", "EXPIRES", CLI_TIME },
		{ "lastUsedAt", "LAST USED", CLI_TIME },
		{ "revokedAt", NULL, CLI_TIME },
	};
	sbx_auto_res struct sbx_res *r = NULL;
	if (cli_connect(cli, "sbx_admin", err) < 0 ||
		sbx_db_run(cli->db, NULL, &sbx_stmt_key_list, SBX_PARAMS(sbx_p_z(cli->arg[0])), &r, err) < 0)
		return -1;
	return cli_print(cli, r, columns, SBX_ARRAY_LEN(columns), err);
}

/* The one key that an id or prefix means. */
static int find_key(struct cli *cli, struct sbx_res **ret, struct sbx_err *err)
{
	const char *which = cli->arg[0];
	if (cli_connect(cli, "sbx_admin", err) < 0 ||
		sbx_db_run(cli->db, NULL, &sbx_stmt_key_find, SBX_PARAMS(sbx_p_z(which)), ret, err) < 0)
		return -1;
	if (sbx_res_rows(*ret) == 0)
		return SBX_FAIL(
			err, SBX_E_NOT_FOUND, "There is no key %s; `sbx key list` shows ids and prefixes.", which);
	if (sbx_res_rows(*ret) > 1)
		return SBX_FAIL(
			err, SBX_E_CONFLICT, "%d keys begin with %s: name one by its id.", sbx_res_rows(*ret), which);
	return 0;
}

int cmd_key_revoke(struct cli *cli, struct sbx_err *err)
{
	sbx_auto_res struct sbx_res *found = NULL, *r = NULL;
	if (find_key(cli, &found, err) < 0 || cli_connect(cli, "sbx_owner", err) < 0)
		return -1;
	const char *id = sbx_res_z(found, 0, 0);
	if (sbx_db_run(cli->db, NULL, &sbx_stmt_key_revoke, SBX_PARAMS(sbx_p_z(id)), &r, err) < 0)
		return -1;
	return cli_put_value(cli, "revoked", id, err);
}
