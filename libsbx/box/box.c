#include "sbx/box.h"

#include <stdlib.h>
#include <string.h>

#include "db/stmts.h"
#include "sbx/enc.h"

static const char *who(const struct sbx_call *call)
{
	return sbx_arena_printf(call->arena, "key:%s", call->who.key_id);
}

static int no_such_box(struct sbx_err *err)
{
	return SBX_FAIL(err, SBX_E_NOT_FOUND,
		"There is no box with this id. Ids are given by sandbox_start; boxes of the past are forgotten in time.");
}

/* Starting */

static int over_limit(const struct sbx_call *call, const struct sbx_res *running, struct sbx_err *err)
{
	sbx_auto_buf struct sbx_buf ids;

	sbx_buf_init(&ids, 300);
	for (int i = 0; i < sbx_res_rows(running) && ids.n < 250; i++)
		sbx_buf_addf(&ids, "%s%s", i ? ", " : "", sbx_res_z(running, i, 0));
	return SBX_FAIL(err, SBX_E_LIMIT,
		"The plan \"%s\" allows %d boxes at once, and %d run: %s. Stop one with sandbox_stop, then start again.",
		call->who.plan, call->who.max_boxes, sbx_res_rows(running), sbx_buf_z(&ids));
}

static int check_limit(struct sbx_db *db, const struct sbx_call *call, struct sbx_err *err)
{
	sbx_auto_res struct sbx_res *running = NULL;

	if (sbx_db_run(db, NULL, &sbx_stmt_box_running, NULL, &running, err) < 0)
		return -1;
	return sbx_res_rows(running) < call->who.max_boxes ? 0 : over_limit(call, running, err);
}

static int find_unit(struct sbx_db *db, const struct sbx_call *call, const char *environment, const char **ret_unit,
	struct sbx_err *err)
{
	sbx_auto_res struct sbx_res *r = NULL, *all = NULL;
	sbx_auto_buf struct sbx_buf names;

	sbx_buf_init(&names, 200);
	if (sbx_db_run(db, NULL, &sbx_stmt_image_by_name, SBX_PARAMS(sbx_p_z(environment)), &r, err) < 0)
		return -1;
	if (sbx_res_rows(r) == 1) {
		*ret_unit = sbx_arena_dupz(call->arena, sbx_res_z(r, 0, 0));
		return *ret_unit ? 0 : SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	}
	if (sbx_db_run(db, NULL, &sbx_stmt_image_names, NULL, &all, err) < 0)
		return -1;
	for (int i = 0; i < sbx_res_rows(all); i++)
		sbx_buf_addf(&names, "%s%s", i ? ", " : "", sbx_res_z(all, i, 0));
	return SBX_FAIL(err, SBX_E_INVALID, "There is no environment \"%s\". There are: %s (see sandbox_environments).",
		environment, names.n ? sbx_buf_z(&names) : "none yet");
}

/* Gives 1 when the key stands for a box already, and its id. */
static int by_key(struct sbx_db *db, const char *key, char ret_id[SBX_BOX_ID_SIZE], struct sbx_err *err)
{
	sbx_auto_res struct sbx_res *r = NULL;

	if (sbx_db_run(db, NULL, &sbx_stmt_box_forget_key, SBX_PARAMS(sbx_p_z(key)), NULL, err) < 0 ||
		sbx_db_run(db, NULL, &sbx_stmt_box_by_key, SBX_PARAMS(sbx_p_z(key)), &r, err) < 0)
		return -1;
	if (sbx_res_rows(r) == 0)
		return 0;
	return sbx_str_copyz(sbx_str_of(sbx_res_z(r, 0, 0)), ret_id, SBX_BOX_ID_SIZE) ? 1 : -1;
}

static int add_machine(
	struct sbx_db *db, const struct sbx_call *call, const char *unit, const char *machine, struct sbx_err *err)
{
	sbx_auto_res struct sbx_res *r = NULL;

	if (sbx_db_run(db, NULL, &sbx_stmt_machine_lock_slots, NULL, NULL, err) < 0 ||
		sbx_db_run(db, NULL, &sbx_stmt_machine_add,
			SBX_PARAMS(sbx_p_z(unit), sbx_p_i(call->app->conf->keeper_seen_s), sbx_p_z(machine),
				sbx_p_i(sbx_keyring_current_kid(call->app->keys))),
			&r, err) < 0)
		return -1;
	if (sbx_res_rows(r) == 1)
		return 0;
	return SBX_FAIL(err, SBX_E_UNAVAILABLE,
		"No host has room for another box now, or none is alive. Nothing was started; try again in a while.");
}

static int add_box(struct sbx_db *db, const struct sbx_call *call, const struct sbx_box_order *o, const char *id,
	const char *machine, struct sbx_err *err)
{
	const char *by = who(call);

	if (sbx_db_run(db, NULL, &sbx_stmt_box_add,
		    SBX_PARAMS(sbx_p_z(id), sbx_p_z(machine), sbx_p_z(o->environment), sbx_p_z(o->services),
			    sbx_p_z(o->external_base_url),
			    o->idle_timeout_min ? sbx_p_i(o->idle_timeout_min) : sbx_p_null(),
			    sbx_p_z(o->idempotency_key), sbx_p_z(call->who.key_id), sbx_p_z(o->client)),
		    NULL, err) < 0)
		return -1;
	if (sbx_db_run(db, NULL, &sbx_stmt_op_start, SBX_PARAMS(sbx_p_z(machine), sbx_p_z(by)), NULL, err) < 0)
		return -1;
	return sbx_db_run(db, NULL, &sbx_stmt_box_event,
		SBX_PARAMS(sbx_p_z(id), sbx_p_z("start_asked"), sbx_p_z("claimed"), sbx_p_z(by)), NULL, err);
}

int sbx_box_create(struct sbx_db *db, const struct sbx_call *call, const struct sbx_box_order *o,
	char ret_id[SBX_BOX_ID_SIZE], struct sbx_err *err)
{
	const char *unit = NULL;
	char machine[SBX_UUID_SIZE];
	int known = 0;

	if (sbx_uuid_new(machine, err) < 0 || sbx_db_begin(db, call->who.tenant_id, err) < 0)
		return -1;
	if (sbx_db_run(db, NULL, &sbx_stmt_box_lock_tenant, NULL, NULL, err) < 0)
		goto failed;
	if (o->idempotency_key)
		known = by_key(db, o->idempotency_key, ret_id, err);
	if (known < 0)
		goto failed;
	if (known == 0) {
		if (check_limit(db, call, err) < 0 || find_unit(db, call, o->environment, &unit, err) < 0 ||
			add_machine(db, call, unit, machine, err) < 0 || sbx_box_id_new(ret_id, err) < 0 ||
			add_box(db, call, o, ret_id, machine, err) < 0)
			goto failed;
	}
	return sbx_db_commit(db, err);
failed:
	sbx_db_rollback(db);
	return -1;
}

/* Finding */

enum column {
	C_ID,
	C_STATE,
	C_OP,
	C_ENVIRONMENT,
	C_SERVICES,
	C_EXTERNAL,
	C_STARTED_FROM,
	C_NOTE,
	C_REASON_CODE,
	C_REASON,
	C_CREATED,
	C_READY,
	C_ENDED,
	C_USED,
	C_IDLE,
	C_VCPU,
	C_MEMORY,
	C_DISK,
	C_CONTROL,
	C_MACHINE,
	C_EPOCH,
	C_KID,
};

static int read_box(struct sbx_arena *a, const struct sbx_res *r, struct sbx_box *ret, struct sbx_err *err)
{
	const struct {
		enum column col;
		const char **to;
	} texts[] = {
		{ C_ID, &ret->id },
		{ C_STATE, &ret->state },
		{ C_OP, &ret->op },
		{ C_ENVIRONMENT, &ret->environment },
		{ C_SERVICES, &ret->services },
		{ C_EXTERNAL, &ret->external_base_url },
		{ C_STARTED_FROM, &ret->started_from },
		{ C_NOTE, &ret->note },
		{ C_REASON_CODE, &ret->reason_code },
		{ C_REASON, &ret->reason },
		{ C_CREATED, &ret->created_at },
		{ C_READY, &ret->ready_at },
		{ C_ENDED, &ret->ended_at },
		{ C_USED, &ret->last_used_at },
		{ C_CONTROL, &ret->control_address },
	};

	for (size_t i = 0; i < SBX_ARRAY_LEN(texts); i++) {
		*texts[i].to = sbx_arena_dupz(a, sbx_res_z(r, 0, (int)texts[i].col));
		if (!*texts[i].to && !sbx_res_null(r, 0, (int)texts[i].col))
			return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	}
	ret->idle_timeout_min = sbx_res_i(r, 0, C_IDLE);
	ret->vcpu = sbx_res_i(r, 0, C_VCPU);
	ret->memory_mib = sbx_res_i(r, 0, C_MEMORY);
	ret->disk_gib = sbx_res_i(r, 0, C_DISK);
	ret->epoch = (uint32_t)sbx_res_i(r, 0, C_EPOCH);
	ret->kid = (int)sbx_res_i(r, 0, C_KID);
	if (ret->control_address &&
		!sbx_hex_decode(sbx_str_of(sbx_res_z(r, 0, C_MACHINE)), ret->machine, sizeof(ret->machine)))
		return SBX_FAIL(err, SBX_E_INTERNAL, "The database holds an unreadable machine id");
	return 0;
}

int sbx_box_find(struct sbx_db *db, const struct sbx_call *call, const char *id, bool use, const char *note,
	struct sbx_box *ret, struct sbx_err *err)
{
	sbx_auto_res struct sbx_res *r = NULL;
	int rc = use ? sbx_db_run(db, call->who.tenant_id, &sbx_stmt_box_use, SBX_PARAMS(sbx_p_z(id), sbx_p_z(note)),
			       &r, err)
		     : sbx_db_run(db, call->who.tenant_id, &sbx_stmt_box_get, SBX_PARAMS(sbx_p_z(id)), &r, err);

	if (rc < 0)
		return -1;
	if (sbx_res_rows(r) == 0)
		return no_such_box(err);
	return read_box(call->arena, r, ret, err);
}

int sbx_box_usable(const struct sbx_box *box, struct sbx_err *err)
{
	if (sbx_streq(box->state, "ready"))
		return 0;
	if (sbx_streq(box->state, "claimed"))
		return SBX_FAIL(err, SBX_E_BUSY,
			"The box is still starting. Wait for sandbox_start to return, or until sandbox_status says "
			"\"ready\", then retry.");
	if (sbx_streq(box->state, "takeover"))
		return SBX_FAIL(err, SBX_E_LOCKED, "A person is connected to the box. Wait and retry.");
	if (sbx_streq(box->state, "interrupted"))
		return SBX_FAIL(err, SBX_E_INTERRUPTED,
			"The box was interrupted: %s Nothing on it remains; start a new one with sandbox_start.",
			box->reason ? box->reason : "the machine under it went away.");
	if (sbx_streq(box->state, "frozen"))
		return SBX_FAIL(err, SBX_E_UNAVAILABLE, "The box is frozen. Try again in a few seconds.");
	return SBX_FAIL(
		err, SBX_E_GONE, "The box was stopped; nothing on it remains. Start a new one with sandbox_start.");
}

int sbx_box_stop(struct sbx_db *db, const struct sbx_call *call, const char *id, struct sbx_err *err)
{
	sbx_auto_res struct sbx_res *r = NULL;

	if (sbx_db_run(db, call->who.tenant_id, &sbx_stmt_box_stop,
		    SBX_PARAMS(sbx_p_z(id), sbx_p_z(who(call)), sbx_p_z("Stopped with sandbox_stop.")), &r, err) < 0)
		return -1;
	return sbx_res_null(r, 0, 0) ? no_such_box(err) : 0;
}
