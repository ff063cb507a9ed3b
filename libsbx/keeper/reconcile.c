/*
 * What runs on the host against what the database says.
 *
 * Order matters. The rows are read before the domains are listed: a machine that was running then and
 * whose domain is not in the list has lost it. A domain that the rows do not have is looked up again one
 * by one, because its row may be newer than the reading.
 *
 * A domain without any row is somebody's whom a wrong or old database forgot: it is paused and reported,
 * and ended only after unknown_keep_s. When many are unknown at once, nothing at all is touched.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db/stmts.h"
#include "keeper/keeper_priv.h"
#include "sbx/clock.h"
#include "sbx/log.h"

#define MANY_UNKNOWN 5u
#define IDS_MAX_BYTES (4u * 1024u * 1024u)

enum column { C_ID, C_GENERATION, C_STATE, C_SLOT, C_HAS_OP };
enum standing { UNKNOWN, LIVE, IN_WORK, GONE };

struct scene {
	struct sbx_res *rows; /* machines of this host that are not gone, by id */
	struct sbx_vm_domain *domains;
	enum standing *standing; /* of each domain */
	size_t domains_n;
};

static void scene_done(struct scene *s)
{
	sbx_res_free(s->rows);
	free(s->domains);
	free(s->standing);
}

static int row_of(const struct scene *s, const char *id)
{
	int low = 0, high = sbx_res_rows(s->rows);

	while (low < high) {
		int mid = low + (high - low) / 2;
		int order = strcmp(sbx_res_z(s->rows, mid, C_ID), id);

		if (order == 0)
			return mid;
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return -1;
}

static const struct sbx_vm_domain *domain_of(const struct scene *s, const char *id)
{
	for (size_t i = 0; i < s->domains_n; i++)
		if (strcmp(s->domains[i].id, id) == 0)
			return &s->domains[i];
	return NULL;
}

static int ask_standing(struct keeper *k, const char *id, enum standing *ret, struct sbx_err *err)
{
	sbx_auto_res struct sbx_res *r = NULL;

	if (keeper_run(k, &sbx_stmt_keeper_machine, SBX_PARAMS(sbx_p_z(id), sbx_p_z(k->host)), &r, err) < 0)
		return -1;
	if (sbx_res_rows(r) == 0)
		*ret = UNKNOWN;
	else if (sbx_res_bool(r, 0, 2))
		*ret = IN_WORK;
	else
		*ret = sbx_streq(sbx_res_z(r, 0, 1), "gone") ? GONE : LIVE;
	return 0;
}

static int look(struct keeper *k, struct scene *s, struct sbx_err *err)
{
	if (keeper_run(k, &sbx_stmt_keeper_machines, SBX_PARAMS(sbx_p_z(k->host)), &s->rows, err) < 0 ||
		sbx_vm_list(k->vm, &s->domains, &s->domains_n, err) < 0)
		return -1;
	s->standing = calloc(s->domains_n + 1, sizeof(*s->standing));
	if (!s->standing)
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	for (size_t i = 0; i < s->domains_n; i++) {
		int row = row_of(s, s->domains[i].id);

		if (row >= 0)
			s->standing[i] = sbx_res_bool(s->rows, row, C_HAS_OP) ? IN_WORK : LIVE;
		else if (ask_standing(k, s->domains[i].id, &s->standing[i], err) < 0)
			return -1;
	}
	return 0;
}

/* Whether so many domains are unknown that the database is more likely wrong than they are. */
static bool too_many_unknown(struct keeper *k, const struct scene *s)
{
	size_t unknown = 0;
	char text[200];

	for (size_t i = 0; i < s->domains_n; i++)
		unknown += s->standing[i] == UNKNOWN;
	if (unknown >= MANY_UNKNOWN && unknown * 2 > s->domains_n) {
		snprintf(text, sizeof(text),
			"%zu of %zu running machines are not in this database: nothing is touched; is it the right one?",
			unknown, s->domains_n);
		keeper_health(k, false, text);
		sbx_log(SBX_LOG_ERROR, "reconcile.wrong_database", sbx_kv_i("unknown", (int64_t)unknown),
			sbx_kv_i("domains", (int64_t)s->domains_n));
		return true;
	}
	text[0] = 0;
	if (unknown)
		snprintf(text, sizeof(text), "%zu running machine(s) are not in this database: paused", unknown);
	keeper_health(k, false, text);
	return false;
}

static int meet_unknown(struct keeper *k, const struct sbx_vm_domain *d, struct sbx_err *err)
{
	int64_t now_us = sbx_wall_us();

	if (!d->unknown_since_us || d->is_running) {
		sbx_log(SBX_LOG_WARN, "reconcile.unknown", sbx_kv_s("machine", d->id));
		return sbx_vm_mark_unknown(k->vm, d->id, d->unknown_since_us ? d->unknown_since_us : now_us, err);
	}
	if (now_us - d->unknown_since_us < k->conf->unknown_keep_s * 1000000)
		return 0;
	sbx_log(SBX_LOG_WARN, "reconcile.unknown_ended", sbx_kv_s("machine", d->id));
	return sbx_vm_destroy(k->vm, d->id, err);
}

static int meet(struct keeper *k, const struct sbx_vm_domain *d, enum standing standing, struct sbx_err *err)
{
	switch (standing) {
	case UNKNOWN: return meet_unknown(k, d, err);
	case LIVE:
		/* The database came back to its senses. */
		if (!d->unknown_since_us)
			return 0;
		sbx_log(SBX_LOG_WARN, "reconcile.known_again", sbx_kv_s("machine", d->id));
		return sbx_vm_mark_known(k->vm, d->id, err);
	case GONE:
		sbx_log(SBX_LOG_WARN, "reconcile.stray", sbx_kv_s("machine", d->id));
		return sbx_vm_destroy(k->vm, d->id, err) < 0 ? -1 : sbx_vm_files_drop(k->vm, d->id, err);
	case IN_WORK: return 0;
	}
	return 0;
}

/* 1 recorded, 0 it is not lost after all (an op is about it, or it changed), -1 error. */
static int record_lost(struct keeper *k, const char *machine, int64_t generation, struct sbx_err *err)
{
	sbx_auto_db struct sbx_db *db = sbx_db_take(k->db, KEEPER_DB_WAIT_MS, err);
	sbx_auto_res struct sbx_res *r = NULL;

	if (!db || sbx_db_begin(db, NULL, err) < 0 ||
		sbx_db_run(db, NULL, &sbx_stmt_keeper_box_interrupted,
			SBX_PARAMS(sbx_p_z(machine), sbx_p_z("machine_lost"),
				sbx_p_z("The machine under the box ended unexpectedly, and its disk with it.")),
			NULL, err) < 0 ||
		sbx_db_run(db, NULL, &sbx_stmt_keeper_machine_lost, SBX_PARAMS(sbx_p_z(machine), sbx_p_i(generation)),
			&r, err) < 0)
		return -1;
	if (sbx_res_affected(r) != 1) {
		sbx_db_rollback(db);
		return 0;
	}
	return sbx_db_commit(db, err) < 0 ? -1 : 1;
}

/* A machine that the database calls running, and whose domain was not found. */
static int meet_lost(struct keeper *k, const char *machine, int64_t generation, struct sbx_err *err)
{
	int rc = record_lost(k, machine, generation, err);

	if (rc <= 0)
		return rc;
	sbx_log(SBX_LOG_WARN, "machine.lost", sbx_kv_s("machine", machine));
	return sbx_vm_files_drop(k->vm, machine, err);
}

static int meet_rows(struct keeper *k, const struct scene *s, struct sbx_err *err)
{
	sbx_auto_buf struct sbx_buf alive;

	sbx_buf_init(&alive, IDS_MAX_BYTES);
	sbx_buf_addc(&alive, '{');
	for (int row = 0; row < sbx_res_rows(s->rows); row++) {
		const char *id = sbx_res_z(s->rows, row, C_ID);
		const struct sbx_vm_domain *d = domain_of(s, id);
		bool is_running = sbx_streq(sbx_res_z(s->rows, row, C_STATE), "running");

		if (d && d->is_running)
			sbx_buf_addf(&alive, "%s%s", alive.n > 1 ? "," : "", id);
		if (!d && is_running && !sbx_res_bool(s->rows, row, C_HAS_OP) &&
			meet_lost(k, id, sbx_res_i(s->rows, row, C_GENERATION), err) < 0)
			return -1;
	}
	sbx_buf_addc(&alive, '}');
	if (sbx_buf_ok(&alive, err) < 0)
		return -1;
	return keeper_run(k, &sbx_stmt_keeper_alive, SBX_PARAMS(sbx_p_s(sbx_buf_str(&alive))), NULL, err);
}

/* Files of machines that the database knows as gone. Those of machines it does not know are left. */
static int sweep_files(struct keeper *k, const struct scene *s, struct sbx_err *err)
{
	sbx_auto_free char(*ids)[SBX_UUID_SIZE] = NULL;
	sbx_auto_res struct sbx_res *r = NULL;
	sbx_auto_buf struct sbx_buf list;
	size_t n = 0;

	if (sbx_vm_files_list(k->vm, &ids, &n, err) < 0)
		return -1;
	sbx_buf_init(&list, IDS_MAX_BYTES);
	sbx_buf_addc(&list, '{');
	for (size_t i = 0; i < n; i++)
		if (row_of(s, ids[i]) < 0 && !domain_of(s, ids[i]))
			sbx_buf_addf(&list, "%s%s", list.n > 1 ? "," : "", ids[i]);
	sbx_buf_addc(&list, '}');
	if (list.n == 2)
		return 0;
	if (sbx_buf_ok(&list, err) < 0 ||
		keeper_run(k, &sbx_stmt_keeper_gone, SBX_PARAMS(sbx_p_s(sbx_buf_str(&list)), sbx_p_z(k->host)), &r,
			err) < 0)
		return -1;
	for (int i = 0; i < sbx_res_rows(r); i++) {
		sbx_log(SBX_LOG_WARN, "reconcile.orphan_files", sbx_kv_s("machine", sbx_res_z(r, i, 0)));
		if (sbx_vm_files_drop(k->vm, sbx_res_z(r, i, 0), err) < 0)
			return -1;
	}
	return 0;
}

int keeper_reconcile(struct keeper *k, struct sbx_err *err)
{
	SBX_CLEANUP(scene_done) struct scene s = { 0 };
	int rc = 0;

	if (look(k, &s, err) < 0)
		return -1;
	if (too_many_unknown(k, &s))
		return 0;
	/* One domain that resists must not keep the rest from being seen to: the first error is kept. */
	for (size_t i = 0; i < s.domains_n; i++) {
		struct sbx_err e = SBX_ERR_INIT;

		if (meet(k, &s.domains[i], s.standing[i], &e) < 0 && e.code != SBX_E_NOT_FOUND)
			rc = keeper_pass(err, &e);
	}
	if (meet_rows(k, &s, err) < 0 || sweep_files(k, &s, err) < 0)
		rc = -1;
	return rc;
}

int keeper_check_stopped(struct keeper *k, const char *machine, struct sbx_err *err)
{
	sbx_auto_res struct sbx_res *r = NULL;
	struct sbx_err e = SBX_ERR_INIT;
	struct sbx_vm_domain d;

	if (keeper_run(k, &sbx_stmt_keeper_machine, SBX_PARAMS(sbx_p_z(machine), sbx_p_z(k->host)), &r, err) < 0)
		return -1;
	if (sbx_res_rows(r) == 0 || !sbx_streq(sbx_res_z(r, 0, 1), "running") || sbx_res_bool(r, 0, 2))
		return 0;
	if (sbx_vm_get(k->vm, machine, &d, &e) == 0)
		return 0;
	if (e.code != SBX_E_NOT_FOUND)
		return keeper_pass(err, &e);
	return meet_lost(k, machine, sbx_res_i(r, 0, 0), err);
}
