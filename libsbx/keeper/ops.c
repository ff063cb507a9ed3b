/*
 * The op threads: take, execute, end. Each waits for work until the main thread wakes it (a notification,
 * or the sweep that covers what was lost).
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "db/stmts.h"
#include "keeper/keeper_priv.h"
#include "sbx/clock.h"
#include "sbx/log.h"

#define SWEEP_MS 5000
#define RETRY_MIN_MS 1000
#define RETRY_MAX_MS 15000
#define RETRY_SLACK_MS 50 /* the database counts from a little later */

enum column {
	C_ID,
	C_MACHINE,
	C_VERB,
	C_GENERATION,
	C_ATTEMPTS,
	C_AGE,
	C_SLOT,
	C_UNIT,
	C_VCPU,
	C_MEMORY,
	C_DISK,
	C_EPOCH,
	C_KID,
	C_USER_NETWORK,
};

int keeper_pass(struct sbx_err *err, const struct sbx_err *from)
{
	if (err && err->code == SBX_OK)
		*err = *from;
	return -1;
}

int keeper_run(struct keeper *k, const struct sbx_stmt *stmt, const struct sbx_param *params, struct sbx_res **ret,
	struct sbx_err *err)
{
	sbx_auto_db struct sbx_db *db = sbx_db_take(k->db, KEEPER_DB_WAIT_MS, err);

	return db ? sbx_db_run(db, NULL, stmt, params, ret, err) : -1;
}

void keeper_ops_wake(struct keeper *k)
{
	atomic_fetch_add(&k->news, 1);
	pthread_mutex_lock(&k->lock);
	k->work_seq++;
	pthread_cond_broadcast(&k->work);
	pthread_mutex_unlock(&k->lock);
}

void keeper_active_text(struct keeper *k, struct sbx_buf *out)
{
	const char *before = "";

	sbx_buf_addc(out, '{');
	pthread_mutex_lock(&k->lock);
	for (int i = 0; i < KEEPER_THREADS_MAX; i++) {
		if (!k->active[i])
			continue;
		sbx_buf_addf(out, "%s%" PRId64, before, k->active[i]);
		before = ",";
	}
	pthread_mutex_unlock(&k->lock);
	sbx_buf_addc(out, '}');
}

static void set_active(struct keeper *k, int64_t from, int64_t to)
{
	pthread_mutex_lock(&k->lock);
	for (int i = 0; i < KEEPER_THREADS_MAX; i++)
		if (k->active[i] == from) {
			k->active[i] = to;
			k->active_n += to ? 1 : -1;
			break;
		}
	if (k->active_n == 0)
		pthread_cond_broadcast(&k->idle);
	pthread_mutex_unlock(&k->lock);
}

static int read_op(const struct sbx_res *r, struct op *op, struct sbx_err *err)
{
	op->id = sbx_res_i(r, 0, C_ID);
	op->is_start = sbx_streq(sbx_res_z(r, 0, C_VERB), "start");
	op->generation = sbx_res_i(r, 0, C_GENERATION);
	op->attempts = sbx_res_i(r, 0, C_ATTEMPTS);
	op->age_ms = sbx_res_i(r, 0, C_AGE);
	op->slot_n = sbx_res_i(r, 0, C_SLOT);
	op->vcpu = sbx_res_i(r, 0, C_VCPU);
	op->memory_mib = sbx_res_i(r, 0, C_MEMORY);
	op->disk_gib = sbx_res_i(r, 0, C_DISK);
	op->epoch = sbx_res_i(r, 0, C_EPOCH);
	op->kid = sbx_res_i(r, 0, C_KID);
	op->user_network = sbx_res_bool(r, 0, C_USER_NETWORK);
	op->taken_ms = sbx_mono_ms();
	if (!sbx_str_copyz(sbx_str_of(sbx_res_z(r, 0, C_MACHINE)), op->machine, sizeof(op->machine)) ||
		!sbx_str_copyz(sbx_str_of(sbx_res_z(r, 0, C_UNIT)), op->unit, sizeof(op->unit)))
		return SBX_FAIL(err, SBX_E_INTERNAL, "The database holds a machine with an unreadable name");
	return 0;
}

/*
 * 1 taken, 0 there is none, -1 error. One at a time in this process, so that two threads never take two
 * ops of one machine; the op counts as active before anybody else can take.
 */
static int take(struct keeper *k, struct op *op, struct sbx_err *err)
{
	sbx_auto_res struct sbx_res *r = NULL;
	sbx_auto_buf struct sbx_buf active;
	int rc = -1;

	sbx_buf_init(&active, 4096);
	pthread_mutex_lock(&k->take_lock);
	keeper_active_text(k, &active);
	if (sbx_buf_ok(&active, err) == 0 &&
		keeper_run(k, &sbx_stmt_keeper_take,
			SBX_PARAMS(sbx_p_z(k->host), sbx_p_z(k->id), sbx_p_i(k->conf->op_lease_s),
				sbx_p_s(sbx_buf_str(&active))),
			&r, err) == 0)
		rc = sbx_res_rows(r) == 0 ? 0 : read_op(r, op, err) < 0 ? -1 : 1;
	if (rc == 1)
		set_active(k, 0, op->id);
	pthread_mutex_unlock(&k->take_lock);
	return rc;
}

int keeper_op_check(struct keeper *k, const struct op *op, enum op_end *ret, struct sbx_err *err)
{
	sbx_auto_res struct sbx_res *r = NULL;

	if (keeper_run(k, &sbx_stmt_keeper_check, SBX_PARAMS(sbx_p_i(op->id), sbx_p_z(k->id)), &r, err) < 0)
		return -1;
	if (sbx_res_rows(r) != 1 || !sbx_res_bool(r, 0, 0)) {
		*ret = OP_LOST;
		return 0;
	}
	if (!sbx_res_bool(r, 0, 1)) {
		*ret = OP_STALE;
		return 0;
	}
	return 1;
}

static int64_t retry_ms(struct keeper *k, const struct op *op)
{
	int64_t ms = RETRY_MIN_MS * op->attempts;
	int64_t at_ms;

	ms = ms < RETRY_MAX_MS ? ms : RETRY_MAX_MS;
	at_ms = sbx_mono_ms() + ms + RETRY_SLACK_MS;
	pthread_mutex_lock(&k->lock);
	if (k->retry_ms <= sbx_mono_ms() || at_ms < k->retry_ms)
		k->retry_ms = at_ms;
	pthread_mutex_unlock(&k->lock);
	return ms;
}

/* With the lock held: how long a thread without work sleeps. */
static int sleep_ms(struct keeper *k)
{
	int64_t ms = SWEEP_MS;

	if (k->retry_ms) {
		ms = k->retry_ms - sbx_mono_ms();
		if (ms <= 0) {
			k->retry_ms = 0;
			ms = 1;
		}
	}
	return ms < SWEEP_MS ? (int)ms : SWEEP_MS;
}

/* What could not be recorded is left to the lease: it runs out, and the op is done again. */
static void end_op(struct keeper *k, const struct op *op, enum op_end end, const struct sbx_err *why)
{
	struct sbx_err err = SBX_ERR_INIT;
	int rc = 0;

	switch (end) {
	case OP_DONE:
	case OP_FAILED:
	case OP_LOST: return;
	case OP_STALE:
		rc = keeper_run(k, &sbx_stmt_keeper_op_end,
			SBX_PARAMS(sbx_p_i(op->id), sbx_p_z(k->id), sbx_p_z("stale"), sbx_p_null(), sbx_p_null()), NULL,
			&err);
		break;
	case OP_RELEASED:
	case OP_RETRY:
		rc = keeper_run(k, &sbx_stmt_keeper_op_retry,
			SBX_PARAMS(sbx_p_i(op->id), sbx_p_z(k->id), sbx_p_i(end == OP_RETRY ? retry_ms(k, op) : 0),
				why->code ? sbx_p_z(sbx_code_wire(why->code)) : sbx_p_null(),
				why->code ? sbx_p_z(why->msg) : sbx_p_null()),
			NULL, &err);
		break;
	}
	if (rc < 0)
		sbx_log_err(SBX_LOG_WARN, "op.not_ended", &err, sbx_kv_i("op", op->id));
}

static void work_on(struct keeper *k, const struct op *op)
{
	static const char *const names[] = {
		[OP_DONE] = "op.done",
		[OP_STALE] = "op.stale",
		[OP_LOST] = "op.lost",
		[OP_RELEASED] = "op.released",
		[OP_RETRY] = "op.retry",
		[OP_FAILED] = "op.failed",
	};
	struct sbx_err err = SBX_ERR_INIT;
	enum op_end end = op->is_start ? keeper_start(k, op, &err) : keeper_stop(k, op, &err);
	const struct sbx_kv kv[] = {
		sbx_kv_i("op", op->id),
		sbx_kv_s("verb", op->is_start ? "start" : "stop"),
		sbx_kv_s("machine", op->machine),
		sbx_kv_i("attempt", op->attempts),
		sbx_kv_i("waited_ms", op->age_ms),
		sbx_kv_i("dur_ms", sbx_mono_ms() - op->taken_ms),
	};

	end_op(k, op, end, &err);
	set_active(k, op->id, 0);
	if (end == OP_RETRY || end == OP_FAILED)
		sbx_log_err_write(SBX_LOG_WARN, names[end], &err, kv, SBX_ARRAY_LEN(kv));
	else
		sbx_log_write(SBX_LOG_INFO, names[end], kv, SBX_ARRAY_LEN(kv));
	/* Another op may have waited for this machine. */
	keeper_ops_wake(k);
}

void *keeper_op_thread(void *arg)
{
	struct keeper *k = arg;
	bool was_down = false;
	uint64_t seen = 0;

	while (!atomic_load(&k->stopping)) {
		struct sbx_err err = SBX_ERR_INIT;
		struct op op = { 0 };
		int rc;

		pthread_mutex_lock(&k->lock);
		seen = k->work_seq;
		pthread_mutex_unlock(&k->lock);
		rc = take(k, &op, &err);
		if (rc < 0 && !was_down)
			sbx_log_err(SBX_LOG_WARN, "op.take", &err, SBX_KV_NONE);
		was_down = rc < 0;
		if (rc > 0) {
			work_on(k, &op);
			continue;
		}
		pthread_mutex_lock(&k->lock);
		if (k->work_seq == seen)
			keeper_sleep(k, &k->work, rc < 0 ? RETRY_MIN_MS : sleep_ms(k));
		pthread_mutex_unlock(&k->lock);
	}
	return NULL;
}
