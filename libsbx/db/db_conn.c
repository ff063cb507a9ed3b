#include "db/db_conn.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "sbx/buf.h"
#include "sbx/clock.h"

static void ignore_notice(void *arg, const PGresult *r)
{
	(void)arg;
	(void)r;
}

/*
 * Our options, then those of the conninfo, which may add to them. So times and text formats do not
 * depend on the server's configuration or on the role's settings.
 */
static int build_options(const char *conninfo, struct sbx_buf *out)
{
	PQconninfoOption *all = PQconninfoParse(conninfo, NULL);
	sbx_buf_addf(out, "-c statement_timeout=%d -c lock_timeout=%d", DB_STATEMENT_MS, DB_LOCK_MS);
	sbx_buf_addf(out, " -c idle_in_transaction_session_timeout=%d", DB_IDLE_TX_MS);
	sbx_buf_addz(out, " -c search_path=sbx -c default_transaction_isolation=read\\ committed");
	sbx_buf_addz(out, " -c timezone=UTC -c datestyle=ISO -c intervalstyle=iso_8601");
	sbx_buf_addz(out, " -c standard_conforming_strings=on -c client_min_messages=warning");
	for (PQconninfoOption *o = all; o != NULL && o->keyword != NULL; o++) {
		if (strcmp(o->keyword, "options") == 0 && o->val != NULL) {
			sbx_buf_addc(out, ' ');
			sbx_buf_addz(out, o->val);
		}
	}
	PQconninfoFree(all);
	return sbx_buf_ok(out, NULL);
}

PGconn *db_connect_start(const char *conninfo, const char *application)
{
	sbx_auto_buf struct sbx_buf options;
	sbx_buf_init(&options, 16384);
	if (build_options(conninfo, &options) < 0)
		return NULL;
	/* What stands before dbname is a default, what stands after it is ours in any case. */
	const char *const keys[] = { "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count",
		"tcp_user_timeout", "fallback_application_name", "dbname", "client_encoding", "options", NULL };
	const char *const values[] = { "1", "30", "10", "3", "20000", application, conninfo, "UTF8",
		sbx_buf_z(&options), NULL };
	PGconn *pg = PQconnectStartParams(keys, values, 1);
	if (pg != NULL)
		PQsetNoticeReceiver(pg, ignore_notice, NULL);
	return pg;
}

int db_wait(PGconn *pg, short events, int64_t deadline_ms)
{
	struct pollfd p = { .fd = PQsocket(pg), .events = events };
	if (p.fd < 0) {
		errno = ENOTCONN;
		return -1;
	}
	for (;;) {
		int n = poll(&p, 1, sbx_ms_left(deadline_ms));
		if (n >= 0)
			return n > 0;
		if (errno != EINTR)
			return -1;
	}
}

PGconn *db_connect(const char *conninfo, const char *application, struct sbx_err *err)
{
	int64_t deadline = sbx_mono_ms() + DB_CONNECT_MS;
	PGconn *pg = db_connect_start(conninfo, application);
	if (pg == NULL) {
		SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
		return NULL;
	}
	const char *why = NULL;
	PostgresPollingStatusType s = PGRES_POLLING_WRITING;
	while (PQstatus(pg) != CONNECTION_BAD && s != PGRES_POLLING_OK && s != PGRES_POLLING_FAILED) {
		int n = db_wait(pg, s == PGRES_POLLING_READING ? POLLIN : POLLOUT, deadline);
		if (n <= 0) {
			why = n == 0 ? "no answer in time" : "poll failed";
			break;
		}
		s = PQconnectPoll(pg);
	}
	if (PQstatus(pg) == CONNECTION_OK && s == PGRES_POLLING_OK && PQsetnonblocking(pg, 1) == 0)
		return pg;
	db_fail_broken(err, SBX_E_UNAVAILABLE, why ? why : PQerrorMessage(pg), "connecting");
	PQfinish(pg);
	return NULL;
}

/* A connection at rest has nothing to read; if it has, the server is saying good-bye. */
static bool is_alive(PGconn *pg)
{
	if (PQstatus(pg) != CONNECTION_OK)
		return false;
	if (db_wait(pg, POLLIN, 0) == 0)
		return true;
	return PQconsumeInput(pg) == 1 && PQstatus(pg) == CONNECTION_OK && db_wait(pg, POLLIN, 0) == 0;
}

void db_close(struct sbx_db *db)
{
	PQfinish(db->pg);
	db->pg = NULL;
	db->is_used_up = false;
	db->prepared_n = 0;
	memset(db->prepared, 0, sizeof(db->prepared));
}

int db_ensure_open(struct sbx_db *db, struct sbx_err *err)
{
	if (db->pg != NULL && (db->is_used_up || !is_alive(db->pg)))
		db_close(db);
	if (db->pg == NULL)
		db->pg = db_pool_connect(db->pool, err);
	return db->pg != NULL ? 0 : -1;
}

static bool is_class(const char *sqlstate, const char *class)
{
	return strncmp(sqlstate, class, 2) == 0;
}

static bool is_one_of(const char *sqlstate, const char *const *states, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(sqlstate, states[i]) == 0)
			return true;
	return false;
}

enum sbx_code db_code(const char *sqlstate)
{
	/* Shutdown, crash, starting up, serialization, deadlock, lock time-out, idle time-outs. */
	static const char *const again[] = { "57P01", "57P02", "57P03", "57P05", "40001", "40P01", "55P03", "25P03" };
	/* Unique, foreign key, exclusion. */
	static const char *const conflict[] = { "23505", "23503", "23P01", "23001" };

	if (is_one_of(sqlstate, again, SBX_ARRAY_LEN(again)) || is_class(sqlstate, "08") || is_class(sqlstate, "53"))
		return SBX_E_UNAVAILABLE;
	if (is_one_of(sqlstate, conflict, SBX_ARRAY_LEN(conflict)))
		return SBX_E_CONFLICT;
	if (strcmp(sqlstate, "57014") == 0)
		return SBX_E_TIMEOUT;
	if (strcmp(sqlstate, "P0002") == 0)
		return SBX_E_NOT_FOUND;
	if (is_class(sqlstate, "23") || is_class(sqlstate, "22") || strcmp(sqlstate, "P0001") == 0)
		return SBX_E_INVALID;
	return SBX_E_INTERNAL;
}

static const char *code_text(enum sbx_code code)
{
	switch (code) {
	case SBX_E_UNAVAILABLE: return "The database is busy or restarting. Try again.";
	case SBX_E_CONFLICT: return "This conflicts with what exists already.";
	case SBX_E_TIMEOUT: return "The database took too long. Try again.";
	case SBX_E_INVALID: return "The database refused a value.";
	default: return "The database reported an error.";
	}
}

int db_fail_result(struct sbx_err *err, const PGresult *r, const char *what)
{
	const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
	const char *text = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
	const char *constraint = PQresultErrorField(r, PG_DIAG_CONSTRAINT_NAME);
	if (state == NULL)
		return db_fail_broken(err, SBX_E_UNAVAILABLE, PQresultErrorMessage(r), what);
	if (err == NULL || err->code != SBX_OK)
		return -1;
	enum sbx_code code = db_code(state);
	/*
	 * P0001 and P0002 are raised by functions of ours, whose messages are written for people.
	 */
	bool is_ours = strncmp(state, "P000", 4) == 0;
	SBX_FAIL(err, code, "%s", is_ours && text ? text : code_text(code));
	memcpy(err->sqlstate, state, sizeof(err->sqlstate) - 1);
	if (!is_ours)
		sbx_err_detail(err, "%s: %s%s%s", what, constraint ? constraint : "", constraint ? ": " : "",
			text ? text : "");
	return -1;
}

static const char broken_text[] = "The database cannot be reached. Try again shortly.";
static const char uncertain_text[] = "The connection to the database broke; whether the change was made is not known.";

int db_fail_broken(struct sbx_err *err, enum sbx_code code, const char *detail, const char *what)
{
	struct sbx_str d = sbx_str_trim(sbx_str_of(detail));
	if (err == NULL || err->code != SBX_OK)
		return -1;
	SBX_FAIL(err, code, "%s", code == SBX_E_UNCERTAIN ? uncertain_text : broken_text);
	sbx_err_detail(err, "%s: %.*s", what, (int)(d.n < 200 ? d.n : 200), d.n > 0 ? d.p : "");
	return -1;
}
