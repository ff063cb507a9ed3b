/*
 * stop: leave nothing of the machine on the host, then say so in one transaction. Every step may be
 * done again.
 */
#include "db/stmts.h"
#include "keeper/keeper_priv.h"

/* 0 recorded, 1 the op may not be ended by us any more, -1 error. */
static int record(struct keeper *k, const struct op *op, struct sbx_err *err)
{
	sbx_auto_db struct sbx_db *db = sbx_db_take(k->db, KEEPER_DB_WAIT_MS, err);
	sbx_auto_res struct sbx_res *machine = NULL, *end = NULL;

	if (!db || sbx_db_begin(db, NULL, err) < 0 ||
		sbx_db_run(db, NULL, &sbx_stmt_keeper_box_terminated, SBX_PARAMS(sbx_p_z(op->machine)), NULL, err) <
			0 ||
		sbx_db_run(db, NULL, &sbx_stmt_keeper_machine_gone,
			SBX_PARAMS(sbx_p_z(op->machine), sbx_p_i(op->generation)), &machine, err) < 0 ||
		sbx_db_run(db, NULL, &sbx_stmt_keeper_op_end,
			SBX_PARAMS(sbx_p_i(op->id), sbx_p_z(k->id), sbx_p_z("done"), sbx_p_null(), sbx_p_null()), &end,
			err) < 0)
		return -1;
	if (sbx_res_affected(machine) != 1 || sbx_res_affected(end) != 1) {
		sbx_db_rollback(db);
		return 1;
	}
	return sbx_db_commit(db, err);
}

enum op_end keeper_stop(struct keeper *k, const struct op *op, struct sbx_err *err)
{
	enum op_end end = OP_RETRY;
	int rc = keeper_op_check(k, op, &end, err);

	if (rc <= 0)
		return rc < 0 ? OP_RETRY : end;
	if (sbx_vm_destroy(k->vm, op->machine, err) < 0)
		return OP_RETRY;
	rc = keeper_op_check(k, op, &end, err);
	if (rc <= 0)
		return rc < 0 ? OP_RETRY : end;
	if (sbx_vm_files_drop(k->vm, op->machine, err) < 0)
		return OP_RETRY;
	rc = record(k, op, err);
	if (rc <= 0)
		return rc < 0 ? OP_RETRY : OP_DONE;
	rc = keeper_op_check(k, op, &end, err);
	return rc == 0 ? end : OP_RETRY;
}
