/*
 * start: volumes, domain, wait for boxd, then one transaction that makes the box ready. What a keeper
 * that died left half done is taken over: a domain of this generation is waited for, anything else of
 * the machine is made anew.
 */
#include <string.h>
#include <time.h>

#include "db/stmts.h"
#include "keeper/keeper_priv.h"
#include "sbx/boxwire.h"
#include "sbx/clock.h"
#include "sbx/log.h"

#define PROBE_BUDGET_MS 250 /* a connection and its answer */
#define PROBE_PAUSE_MS 20
#define CHECK_EVERY_MS 1000 /* whether the op still holds, when no notification asked for it sooner */
#define ARENA_BYTES 65536u

static void pause_ms(int ms)
{
	struct timespec ts = { .tv_nsec = (long)ms * 1000000 };

	nanosleep(&ts, NULL);
}

/* 1: a domain of this op runs already; 0: there is none now; -1: error. */
static int existing(struct keeper *k, const struct op *op, struct sbx_err *err)
{
	struct sbx_err e = SBX_ERR_INIT;
	struct sbx_vm_domain d;

	if (op->attempts <= 1)
		return 0;
	if (sbx_vm_get(k->vm, op->machine, &d, &e) < 0) {
		if (e.code == SBX_E_NOT_FOUND)
			return 0;
		return keeper_pass(err, &e);
	}
	if (d.generation == op->generation && d.is_running)
		return 1;
	return sbx_vm_destroy(k->vm, op->machine, err);
}

static int make(struct keeper *k, const struct op *op, const struct sbx_vm_spec *spec, struct sbx_err *err)
{
	sbx_auto_buf struct sbx_buf config;
	int rc;

	sbx_buf_init(&config, SBX_VM_CONFIG_MAX);
	rc = keeper_config(k, op, spec->slot, &config, err);
	if (rc == 0)
		rc = sbx_vm_volumes_make(k->vm, op->machine, op->disk_gib, spec->root_image, spec->slot->uid, spec->gid,
			sbx_buf_str(&config), err);
	if (config.p)
		explicit_bzero(config.p, config.n);
	return rc;
}

/* 1: boxd answers; 0: the op ends as *ret; -1: it may not go on, err says why. */
static int await(
	struct keeper *k, const struct op *op, const struct sbx_slot *slot, enum op_end *ret, struct sbx_err *err)
{
	int64_t deadline_ms = op->taken_ms + k->conf->op_timeout_s * 1000 - op->age_ms;
	int64_t check_ms = sbx_mono_ms() + CHECK_EVERY_MS;
	unsigned news = atomic_load(&k->news);

	for (;;) {
		if (keeper_probe(slot->control_guest, SBX_BOXD_PORT, PROBE_BUDGET_MS))
			return 1;
		if (atomic_load(&k->stopping)) {
			*ret = OP_RELEASED;
			return 0;
		}
		if (sbx_mono_ms() > deadline_ms)
			return SBX_FAIL(err, SBX_E_TIMEOUT, "The machine did not answer within %lld s",
				(long long)k->conf->op_timeout_s);
		if (atomic_load(&k->news) != news || sbx_mono_ms() > check_ms) {
			struct sbx_err ignored = SBX_ERR_INIT;
			struct sbx_vm_domain d;

			news = atomic_load(&k->news);
			check_ms = sbx_mono_ms() + CHECK_EVERY_MS;
			/* A database that is away for a moment does not end a boot: the lease decides. */
			if (keeper_op_check(k, op, ret, &ignored) == 0)
				return 0;
			sbx_err_clear(&ignored);
			if (sbx_vm_get(k->vm, op->machine, &d, &ignored) < 0 && ignored.code == SBX_E_NOT_FOUND)
				return SBX_FAIL(err, SBX_E_INTERNAL, "The machine ended while it booted");
		}
		pause_ms(PROBE_PAUSE_MS);
	}
}

/* 0 recorded, 1 the op may not be ended by us any more, -1 error. */
static int record_ready(struct keeper *k, const struct op *op, struct sbx_err *err)
{
	sbx_auto_db struct sbx_db *db = sbx_db_take(k->db, KEEPER_DB_WAIT_MS, err);
	sbx_auto_res struct sbx_res *machine = NULL, *end = NULL;

	if (!db || sbx_db_begin(db, NULL, err) < 0 ||
		sbx_db_run(db, NULL, &sbx_stmt_keeper_box_ready, SBX_PARAMS(sbx_p_z(op->machine), sbx_p_z("")), NULL,
			err) < 0 ||
		sbx_db_run(db, NULL, &sbx_stmt_keeper_machine_running,
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

static int record_failed(struct keeper *k, const struct op *op, const struct sbx_err *why, struct sbx_err *err)
{
	sbx_auto_db struct sbx_db *db = sbx_db_take(k->db, KEEPER_DB_WAIT_MS, err);
	sbx_auto_res struct sbx_res *machine = NULL, *end = NULL;
	sbx_auto_buf struct sbx_buf reason;

	sbx_buf_init(&reason, 1024);
	sbx_buf_addf(&reason,
		"The box could not be started (%s). Start another; if that fails too, the operator "
		"finds the cause in the keeper's log.",
		why->msg);
	if (!db || sbx_db_begin(db, NULL, err) < 0 ||
		sbx_db_run(db, NULL, &sbx_stmt_keeper_box_interrupted,
			SBX_PARAMS(sbx_p_z(op->machine), sbx_p_z("start_failed"), sbx_p_z(sbx_buf_z(&reason))), NULL,
			err) < 0 ||
		sbx_db_run(db, NULL, &sbx_stmt_keeper_machine_gone,
			SBX_PARAMS(sbx_p_z(op->machine), sbx_p_i(op->generation)), &machine, err) < 0 ||
		sbx_db_run(db, NULL, &sbx_stmt_keeper_op_end,
			SBX_PARAMS(sbx_p_i(op->id), sbx_p_z(k->id), sbx_p_z("failed"),
				sbx_p_z(sbx_code_wire(why->code)), sbx_p_z(why->msg)),
			&end, err) < 0)
		return -1;
	if (sbx_res_affected(machine) != 1 || sbx_res_affected(end) != 1) {
		sbx_db_rollback(db);
		return 1;
	}
	return sbx_db_commit(db, err);
}

/* Leaves nothing behind, then records; what cannot be cleaned now is tried again later. */
static enum op_end fail(struct keeper *k, const struct op *op, const struct sbx_err *why)
{
	struct sbx_err err = SBX_ERR_INIT;
	enum op_end end = OP_RETRY;
	int rc = keeper_op_check(k, op, &end, &err);

	if (rc == 0)
		return end;
	if (rc < 0 || sbx_vm_destroy(k->vm, op->machine, &err) < 0 || sbx_vm_files_drop(k->vm, op->machine, &err) < 0)
		return OP_RETRY;
	rc = record_failed(k, op, why, &err);
	if (rc == 0)
		return OP_FAILED;
	return rc > 0 && keeper_op_check(k, op, &end, &err) == 0 ? end : OP_RETRY;
}

/* Volumes and domain. 1 made, 0 the op ends as *ret, -1 error. */
static int build(
	struct keeper *k, const struct op *op, const struct sbx_vm_spec *spec, enum op_end *ret, struct sbx_err *err)
{
	int rc = existing(k, op, err);

	if (rc != 0)
		return rc;
	if (make(k, op, spec, err) < 0)
		return -1;
	rc = keeper_op_check(k, op, ret, err);
	if (rc <= 0)
		return rc;
	if (sbx_vm_create(k->vm, spec, err) < 0)
		return -1;
	return keeper_op_check(k, op, ret, err);
}

static enum op_end attempt(struct keeper *k, const struct op *op, struct sbx_err *err)
{
	struct sbx_arena *a = sbx_arena_new(ARENA_BYTES);
	struct sbx_vm_profile profile;
	struct sbx_vm_spec spec;
	struct sbx_slot slot;
	enum op_end end = OP_RETRY;
	int64_t made_ms;
	int rc = -1;

	if (!a) {
		SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
		return OP_RETRY;
	}
	if (keeper_spec(k, op, &slot, &profile, a, &spec, err) == 0)
		rc = build(k, op, &spec, &end, err);
	sbx_arena_free(a);
	made_ms = sbx_mono_ms();
	if (rc > 0)
		rc = await(k, op, &slot, &end, err);
	if (rc <= 0)
		return rc < 0 ? OP_RETRY : end;
	sbx_log(SBX_LOG_INFO, "machine.answers", sbx_kv_s("machine", op->machine), sbx_kv_i("op", op->id),
		sbx_kv_i("made_ms", made_ms - op->taken_ms), sbx_kv_i("boot_ms", sbx_mono_ms() - made_ms));
	rc = record_ready(k, op, err);
	if (rc <= 0)
		return rc < 0 ? OP_RETRY : OP_DONE;
	return keeper_op_check(k, op, &end, err) == 0 ? end : OP_RETRY;
}

/* Conflict: a call that was given up happened after all, and what it made is in the way until seen. */
static bool may_pass(enum sbx_code code)
{
	return code == SBX_E_UNAVAILABLE || code == SBX_E_TIMEOUT || code == SBX_E_NOMEM || code == SBX_E_CONFLICT;
}

enum op_end keeper_start(struct keeper *k, const struct op *op, struct sbx_err *err)
{
	enum op_end end = OP_RETRY;
	int rc = keeper_op_check(k, op, &end, err);
	bool is_late;

	if (rc <= 0)
		return rc < 0 ? OP_RETRY : end;
	if (op->age_ms > k->conf->op_timeout_s * 1000) {
		SBX_FAIL(
			err, SBX_E_TIMEOUT, "No machine could be made within %lld s", (long long)k->conf->op_timeout_s);
		return fail(k, op, err);
	}
	end = attempt(k, op, err);
	if (end != OP_RETRY)
		return end;
	/* Nobody waits for ever: what may pass by itself is tried again for as long as a start may take. */
	is_late = op->age_ms + (sbx_mono_ms() - op->taken_ms) > k->conf->op_timeout_s * 1000;
	if (!is_late && may_pass(err->code))
		return OP_RETRY;
	return fail(k, op, err);
}
