#include "api/api.h"
#include "db/stmts.h"

#define DB_TAKE_MS 2000

/* Columns of hosts_seen. */
enum { C_SEEN, C_HOSTS, C_SILENT, C_ILL };

static int look(struct sbx_exchange *x, struct sbx_res **ret, struct sbx_err *err)
{
	sbx_auto_db struct sbx_db *db = sbx_db_take(x->call.app->pool, DB_TAKE_MS, err);

	if (!db)
		return -1;
	return sbx_db_run(
		db, NULL, &sbx_stmt_hosts_seen, SBX_PARAMS(sbx_p_i(x->call.app->conf->keeper_seen_s)), ret, err);
}

/* Ready: the database answers, there is a host, and every host's keeper was seen lately. */
enum sbx_step sbx_readyz(struct sbx_exchange *x)
{
	sbx_auto_res struct sbx_res *r = NULL;
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_jw w;

	if (look(x, &r, &err) == 0) {
		if (sbx_res_i(r, 0, C_HOSTS) == 0)
			SBX_FAIL(&err, SBX_E_UNAVAILABLE, "No keeper has ever reported: start sbx-keeper on a host.");
		else if (sbx_res_i(r, 0, C_SEEN) < sbx_res_i(r, 0, C_HOSTS))
			SBX_FAIL(&err, SBX_E_UNAVAILABLE, "The keeper of %s has been silent for more than %lld s.",
				sbx_res_z(r, 0, C_SILENT), (long long)x->call.app->conf->keeper_seen_s);
		else if (sbx_res_z(r, 0, C_ILL)[0])
			SBX_FAIL(&err, SBX_E_UNAVAILABLE, "%s", sbx_res_z(r, 0, C_ILL));
	}
	if (err.code != SBX_OK)
		return sbx_reply_problem(x, &err);
	sbx_jw_init(&w, &x->out.body);
	sbx_jw_obj(&w, NULL);
	sbx_jw_bool(&w, "ok", true);
	sbx_jw_i(&w, "hosts", sbx_res_i(r, 0, C_HOSTS));
	sbx_jw_end(&w);
	x->out.status = 200;
	x->out.type = "application/json";
	return SBX_DONE;
}
