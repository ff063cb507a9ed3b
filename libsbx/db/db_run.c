/*
 * Running statements: everything of one call goes out in one pipeline and comes back in one round
 * trip: [prepare, when this connection has not seen it] statement … sync.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "db/db_conn.h"
#include "db/stmts.h"
#include "sbx/clock.h"

#define MAX_PARAMS 32
#define MAX_CALLS 2
#define MAX_PARAM_BYTES (64u << 20)
#define NUMBER_BYTES 24u

const struct sbx_stmt sbx_stmt_tenant_set = {
	.name = "tenant_set",
	.sql = "select set_config('sbx.tenant', $1::text, true)",
	.params = 1,
	.columns = "set_config",
};

/* Not in the table: transaction control can be neither described nor explained. */
static const struct sbx_stmt tx_begin = { .name = "tx_begin", .sql = "begin", .columns = "" };
static const struct sbx_stmt tx_commit = { .name = "tx_commit", .sql = "commit", .columns = "" };
static const struct sbx_stmt tx_rollback = { .name = "tx_rollback", .sql = "rollback", .columns = "" };

struct call {
	const struct sbx_stmt *stmt;
	const struct sbx_param *params;
};

/* How a pipeline ended. */
enum outcome {
	DONE,   /* all statements succeeded */
	FAILED, /* the server refused one; nothing of the pipeline happened */
	UNSENT, /* there was no connection to send it on; nothing happened */
	BROKEN, /* the connection broke, or no answer came; what happened is not known */
};

static size_t slot_of(const struct sbx_db *db, const struct sbx_stmt *stmt)
{
	size_t i = ((uintptr_t)stmt / sizeof(*stmt)) % DB_PREPARED_SLOTS;
	while (db->prepared[i] != NULL && db->prepared[i] != stmt)
		i = (i + 1) % DB_PREPARED_SLOTS;
	return i;
}

static void remember(struct sbx_db *db, const struct sbx_stmt *stmt)
{
	size_t i = slot_of(db, stmt);
	if (db->prepared[i] == NULL) {
		SBX_ASSERT(db->prepared_n < DB_PREPARED_SLOTS / 2);
		db->prepared[i] = stmt;
		db->prepared_n++;
	}
}

/* Space for the texts of a call; -1 when one cannot be sent. Checked before anything is sent. */
static int measure(const struct call *c, size_t *ret_size, struct sbx_err *err)
{
	size_t size = 1;
	SBX_ASSERT(c->stmt->params <= MAX_PARAMS && (c->stmt->params == 0 || c->params != NULL));
	for (int i = 0; i < c->stmt->params; i++) {
		const struct sbx_param *p = &c->params[i];
		if (p->s.n > MAX_PARAM_BYTES)
			return SBX_FAIL(err, SBX_E_TOO_LARGE, "A value is too large for the database.");
		if (p->kind == SBX_P_TEXT && p->s.n > 0 && memchr(p->s.p, 0, p->s.n) != NULL)
			return SBX_FAIL(err, SBX_E_INVALID, "A text has a NUL character in it.");
		size += p->kind == SBX_P_TEXT ? p->s.n + 1 : NUMBER_BYTES;
	}
	*ret_size = size;
	return 0;
}

/* Puts a text or number at `at`, with its NUL; gives what was used. */
static size_t put_value(char *at, const struct sbx_param *p)
{
	switch (p->kind) {
	case SBX_P_TEXT:
		if (p->s.n > 0)
			memcpy(at, p->s.p, p->s.n);
		at[p->s.n] = 0;
		return p->s.n + 1;
	case SBX_P_INT: return (size_t)snprintf(at, NUMBER_BYTES, "%lld", (long long)p->i) + 1;
	case SBX_P_BOOL: memcpy(at, p->i ? "t" : "f", 2); return 2;
	case SBX_P_NULL:
	case SBX_P_BYTES: break;
	}
	return 0;
}

/* Sends one prepared statement. Texts need a NUL, numbers their digits: both are laid out in one
 * block. */
static bool send_call(PGconn *pg, const struct call *c)
{
	const int n = c->stmt->params;
	const char *values[MAX_PARAMS];
	int lengths[MAX_PARAMS], formats[MAX_PARAMS];
	size_t size = 0;
	if (measure(c, &size, NULL) < 0)
		return false;
	sbx_auto_free char *block = malloc(size);
	if (block == NULL)
		return false;
	char *at = block;
	for (int i = 0; i < n; i++) {
		const struct sbx_param *p = &c->params[i];
		bool is_bytes = p->kind == SBX_P_BYTES;
		values[i] = p->kind == SBX_P_NULL ? NULL : is_bytes ? p->s.p : at;
		if (is_bytes && p->s.p == NULL)
			values[i] = "";
		lengths[i] = is_bytes ? (int)p->s.n : 0;
		formats[i] = is_bytes;
		at += put_value(at, p);
	}
	return PQsendQueryPrepared(pg, c->stmt->name, n, values, lengths, formats, 0) == 1;
}

/* Flushes what is to be sent and reads until a result can be taken; false: no answer in time. */
static bool wait_result(PGconn *pg, int64_t deadline_ms)
{
	for (;;) {
		int left = PQflush(pg);
		if (left < 0 || PQstatus(pg) == CONNECTION_BAD || PQisBusy(pg) == 0)
			return true;
		int n = db_wait(pg, left > 0 ? POLLIN | POLLOUT : POLLIN, deadline_ms);
		if (n <= 0)
			return false;
		/* A failure shows as an error result. */
		if (PQconsumeInput(pg) == 0)
			return true;
	}
}

/*
 * What was sent, in order (results come back in this order, each followed by NULL), and what came.
 */
struct exchange {
	size_t n;
	const struct sbx_stmt *prepare[2 * MAX_CALLS]; /* NULL: the statement itself */
	PGresult *last;                                /* of the last statement that succeeded */
	bool is_complete;                              /* the last statement of all succeeded */
	enum outcome out;
};

static void take_result(struct sbx_db *db, struct exchange *x, size_t i, PGresult *r, struct sbx_err *err)
{
	ExecStatusType s = PQresultStatus(r);
	if ((s == PGRES_COMMAND_OK || s == PGRES_TUPLES_OK) && i < x->n) {
		x->is_complete = i + 1 == x->n;
		if (x->prepare[i] != NULL) {
			remember(db, x->prepare[i]);
		} else {
			PQclear(x->last);
			x->last = r;
			return;
		}
	} else if (s != PGRES_PIPELINE_ABORTED) {
		const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
		/* A plan that does not fit the schema any more, or a prepared name that is gone. */
		if (state != NULL && (strcmp(state, "0A000") == 0 || strcmp(state, "26000") == 0))
			db->is_used_up = true;
		/* Without a code it is libpq that speaks, of the connection. */
		if (state != NULL || PQstatus(db->pg) == CONNECTION_OK) {
			x->out = FAILED;
			db_fail_result(err, r, "statement");
		}
	}
	PQclear(r);
}

/* Reads up to the sync. */
static void collect(struct sbx_db *db, struct exchange *x, struct sbx_err *err)
{
	const int64_t deadline = sbx_mono_ms() + DB_ANSWER_MS;
	const size_t most = 4 * (x->n + 1);
	size_t i = 0;
	for (size_t turn = 0; turn < most && wait_result(db->pg, deadline); turn++) {
		PGresult *r = PQgetResult(db->pg);
		if (r == NULL) {
			i++;
		} else if (PQresultStatus(r) == PGRES_PIPELINE_SYNC) {
			PQclear(r);
			return;
		} else {
			take_result(db, x, i, r, err);
		}
	}
	/* A refusal that came before the connection ended says what happened: nothing. */
	if (x->out != FAILED || x->is_complete)
		x->out = BROKEN;
	db->is_used_up = true;
}

/* *ret is the result of the last call, given only when all went well. */
static enum outcome pipeline(struct sbx_db *db, const struct call *calls, size_t n, PGresult **ret, struct sbx_err *err)
{
	struct exchange x = { .out = DONE };
	bool is_sent = PQenterPipelineMode(db->pg) == 1;
	for (size_t i = 0; i < n && is_sent; i++) {
		const struct sbx_stmt *stmt = calls[i].stmt;
		if (db->prepared[slot_of(db, stmt)] == NULL) {
			is_sent = PQsendPrepare(db->pg, stmt->name, stmt->sql, 0, NULL) == 1;
			x.prepare[x.n++] = stmt;
		}
		is_sent = is_sent && send_call(db->pg, &calls[i]);
		x.prepare[x.n++] = NULL;
	}
	if (!is_sent)
		return UNSENT;
	if (PQpipelineSync(db->pg) != 1)
		return BROKEN;
	collect(db, &x, err);
	if (x.out == DONE)
		*ret = x.last;
	else
		PQclear(x.last);
	return x.out;
}

static bool is_read(const struct sbx_stmt *stmt)
{
	return strncasecmp(stmt->sql, "select", 6) == 0;
}

/* One attempt. The connection is closed when it is of no use any more. */
static enum outcome attempt(struct sbx_db *db, const struct call *calls, size_t n, PGresult **ret, struct sbx_err *err)
{
	if (!db->in_tx && db_ensure_open(db, err) < 0)
		return UNSENT;
	if (db->pg == NULL) {
		db_fail_broken(
			err, SBX_E_UNAVAILABLE, "the connection broke in this transaction", calls[n - 1].stmt->name);
		return UNSENT;
	}
	enum outcome out = pipeline(db, calls, n, ret, err);
	if (out == UNSENT || out == BROKEN || PQstatus(db->pg) == CONNECTION_BAD)
		db_close(db);
	return out;
}

/* may_repeat: nothing is harmed when the calls happen twice. */
static int run_calls(
	struct sbx_db *db, const struct call *calls, size_t n, bool may_repeat, PGresult **ret, struct sbx_err *err)
{
	struct sbx_err own = SBX_ERR_INIT;
	const struct sbx_stmt *stmt = calls[n - 1].stmt;
	size_t size = 0;
	for (size_t i = 0; i < n; i++)
		if (measure(&calls[i], &size, err) < 0)
			return -1;
	for (int left = db->in_tx ? 0 : 1;; left--) {
		sbx_err_clear(&own);
		bool was_open = db->pg != NULL;
		enum outcome out = attempt(db, calls, n, ret, &own);
		if (out == DONE)
			return 0;
		if (out == BROKEN) {
			/* The server rolls an open transaction back, unless it was the commit that
			 * got lost. */
			bool is_harmless = may_repeat || (db->in_tx && stmt != &tx_commit);
			sbx_err_clear(&own);
			db_fail_broken(&own, is_harmless ? SBX_E_UNAVAILABLE : SBX_E_UNCERTAIN, "the connection broke",
				stmt->name);
		} else if (out == UNSENT) {
			db_fail_broken(&own, SBX_E_UNAVAILABLE, "nothing could be sent", stmt->name);
		}
		bool is_lost = was_open && db->pg == NULL;
		if (left <= 0 || !is_lost || (!may_repeat && out != UNSENT))
			break;
	}
	if (err != NULL && err->code == SBX_OK)
		*err = own;
	return -1;
}

static int give_result(PGresult *pg, struct sbx_res **ret, struct sbx_err *err)
{
	if (ret == NULL) {
		PQclear(pg);
		return 0;
	}
	struct sbx_res *r = malloc(sizeof(*r));
	if (r == NULL) {
		PQclear(pg);
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	}
	r->pg = pg;
	*ret = r;
	return 0;
}

int sbx_db_run(struct sbx_db *db, const char *tenant, const struct sbx_stmt *stmt, const struct sbx_param *params,
	struct sbx_res **ret, struct sbx_err *err)
{
	SBX_ASSERT(tenant == NULL || !db->in_tx);
	const struct sbx_param who = sbx_p_z(tenant);
	const struct call calls[MAX_CALLS] = { { &sbx_stmt_tenant_set, &who }, { stmt, params } };
	const size_t skip = tenant == NULL;
	PGresult *pg = NULL;
	if (run_calls(db, calls + skip, MAX_CALLS - skip, !db->in_tx && is_read(stmt), &pg, err) < 0)
		return -1;
	return give_result(pg, ret, err);
}

int sbx_db_begin(struct sbx_db *db, const char *tenant, struct sbx_err *err)
{
	SBX_ASSERT(!db->in_tx);
	const struct sbx_param who = sbx_p_z(tenant);
	const struct call calls[MAX_CALLS] = { { &tx_begin, NULL }, { &sbx_stmt_tenant_set, &who } };
	PGresult *pg = NULL;
	if (run_calls(db, calls, tenant != NULL ? 2 : 1, true, &pg, err) < 0) {
		/* The tenant was refused after begin went through: do not leave it open. */
		if (db->pg != NULL && PQtransactionStatus(db->pg) != PQTRANS_IDLE)
			sbx_db_rollback(db);
		return -1;
	}
	PQclear(pg);
	db->in_tx = true;
	return 0;
}

int sbx_db_commit(struct sbx_db *db, struct sbx_err *err)
{
	SBX_ASSERT(db->in_tx);
	const struct call call = { &tx_commit, NULL };
	PGresult *pg = NULL;
	int rc = run_calls(db, &call, 1, false, &pg, err);
	db->in_tx = false;
	/* The server answers COMMIT of a failed transaction with ROLLBACK, and calls that a
	 * success. */
	if (rc == 0 && strcmp(PQcmdStatus(pg), "COMMIT") != 0)
		rc = SBX_FAIL(err, SBX_E_INTERNAL, "The transaction had failed and was rolled back.");
	PQclear(pg);
	return rc;
}

void sbx_db_rollback(struct sbx_db *db)
{
	const struct call call = { &tx_rollback, NULL };
	PGresult *pg = NULL;
	struct sbx_err err = SBX_ERR_INIT;
	db->in_tx = true; /* never on a new connection: there the transaction is gone already */
	if (db->pg != NULL && run_calls(db, &call, 1, false, &pg, &err) < 0)
		db_close(db);
	PQclear(pg);
	db->in_tx = false;
}

/* The line of sql in which the error is, or 0. */
static int line_of(const char *sql, const PGresult *r)
{
	int64_t at = 0;
	int line = 1;
	const char *position = PQresultErrorField(r, PG_DIAG_STATEMENT_POSITION);
	if (!sbx_str_i64(sbx_str_of(position), 1, INT64_MAX, &at))
		return 0;
	for (const char *p = sql; *p != 0 && at > 1; p++) {
		line += *p == '\n';
		/* Positions count characters, not bytes. */
		at -= (*p & 0xC0) != 0x80;
	}
	return line;
}

static void fail_script(struct sbx_err *err, const PGresult *r, const char *sql)
{
	struct sbx_err own = SBX_ERR_INIT;
	const char *text = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
	int line = line_of(sql, r);
	db_fail_result(&own, r, "script");
	if (own.code == SBX_E_INTERNAL && line > 0)
		snprintf(own.msg, sizeof(own.msg), "line %d: %s", line, text ? text : "?");
	else if (own.code == SBX_E_INTERNAL)
		snprintf(own.msg, sizeof(own.msg), "%s", text ? text : "?");
	if (err != NULL && err->code == SBX_OK)
		*err = own;
}

int sbx_db_script(struct sbx_db *db, const char *sql, struct sbx_err *err)
{
	int64_t deadline = sbx_mono_ms() + DB_SCRIPT_MS;
	int rc = 0;
	if (!db->in_tx && db_ensure_open(db, err) < 0)
		return -1;
	/*
	 * Several statements in one text need the simple protocol, which a pipeline does not have.
	 */
	if (db->pg == NULL || PQexitPipelineMode(db->pg) != 1 || PQsendQuery(db->pg, sql) != 1) {
		db->is_used_up = true;
		return db_fail_broken(err, SBX_E_UNAVAILABLE, db->pg ? PQerrorMessage(db->pg) : "", "script");
	}
	for (;;) {
		if (!wait_result(db->pg, deadline)) {
			db_close(db);
			return db_fail_broken(err, SBX_E_UNCERTAIN, "no answer in time", "script");
		}
		PGresult *r = PQgetResult(db->pg);
		if (r == NULL)
			break;
		ExecStatusType s = PQresultStatus(r);
		if (s != PGRES_COMMAND_OK && s != PGRES_TUPLES_OK && s != PGRES_EMPTY_QUERY) {
			rc = -1;
			fail_script(err, r, sql);
		}
		PQclear(r);
		if (s == PGRES_COPY_IN || s == PGRES_COPY_OUT) {
			db_close(db);
			break;
		}
	}
	return rc;
}
