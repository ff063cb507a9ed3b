/*
 * PostgreSQL: connections, prepared statements, rows, transactions, LISTEN.
 *
 * All SQL text stands in libsbx/db/db_<group>.c as constant struct sbx_stmt rows, listed in
 * db/stmts.def so that a test prepares every one against the real schema. A statement is prepared
 * once a connection, and again after a reconnect.
 *
 * Tenant: row-level security shows a worker only the rows of the tenant set for the transaction. A
 * call with a tenant sends set_config(…, true) and the statement in one pipeline: one implicit
 * transaction, one round trip. Without a tenant there are no rows.
 *
 * Threads: a pool is shared, a connection belongs to one thread at a time, results are read-only and
 * may travel. Errors: SBX_E_UNAVAILABLE (no connection, shutting down, deadlock, serialization;
 * retryable), SBX_E_UNCERTAIN (the connection broke after a write was sent), SBX_E_CONFLICT (unique or
 * foreign key), SBX_E_INVALID (check, bad text), SBX_E_NOT_FOUND (raised by a function of ours, with its
 * message), SBX_E_TIMEOUT (a statement runs 10 s at most), SBX_E_INTERNAL; err->sqlstate is set.
 */
#ifndef SBX_DB_H
#define SBX_DB_H

#include "sbx/arena.h"
#include "sbx/err.h"

struct sbx_db;      /* one connection */
struct sbx_db_pool; /* at most n connections, opened when needed, replaced when broken */
struct sbx_res;     /* a result; sbx_res_free(NULL) is fine */

struct sbx_stmt {
	const char *name;    /* "box_get": unique, the name it is prepared under */
	const char *sql;     /* $1, $2, … each with a cast */
	int params;          /* how many */
	const char *columns; /* "id,state,…" as returned, or "" */
};

struct sbx_param {
	enum { SBX_P_NULL, SBX_P_TEXT, SBX_P_INT, SBX_P_BOOL, SBX_P_BYTES } kind;
	struct sbx_str s;
	int64_t i;
};

struct sbx_param sbx_p_null(void);
struct sbx_param sbx_p_z(const char *z); /* NULL gives SQL NULL */
struct sbx_param sbx_p_s(struct sbx_str s);
struct sbx_param sbx_p_i(int64_t i);
struct sbx_param sbx_p_bool(bool v);
struct sbx_param sbx_p_bytes(const void *p, size_t n); /* bytea */
#define SBX_PARAMS(...) ((const struct sbx_param[]){ __VA_ARGS__ })

/*
 * conninfo: host=… dbname=… user=… without secrets (peer authentication on a unix socket), or what a
 * libpq service or password file adds. Opens nothing yet. NULL: out of memory.
 */
struct sbx_db_pool *sbx_db_pool_new(const char *conninfo, const char *application, int max_connections);
void sbx_db_pool_free(struct sbx_db_pool *pool);
/*
 * Takes a connection, waiting at most timeout_ms for a free one; NULL on failure (SBX_E_UNAVAILABLE).
 * Opening one takes at most 3 s; while an attempt that failed is less than a second old, others fail at
 * once. One that died while idle is replaced here.
 */
struct sbx_db *sbx_db_take(struct sbx_db_pool *pool, int timeout_ms, struct sbx_err *err);
/* Gives it back; an open transaction is rolled back, a broken connection is closed. NULL is fine. */
void sbx_db_give(struct sbx_db *db);
void sbx_db_auto(struct sbx_db **db);
#define sbx_auto_db SBX_CLEANUP(sbx_db_auto)
/* In use and open now, for metrics and tests. */
void sbx_db_pool_counts(struct sbx_db_pool *pool, int *ret_in_use, int *ret_open);

/*
 * Runs one statement. tenant: the tenant's uuid or NULL; inside a transaction it must be NULL (the
 * transaction carries it). ret may be NULL when no rows are wanted. A read that fails because the
 * pooled connection went stale is tried once more on a new connection, outside transactions.
 */
int sbx_db_run(struct sbx_db *db, const char *tenant, const struct sbx_stmt *stmt, const struct sbx_param *params,
	struct sbx_res **ret, struct sbx_err *err) SBX_MUST_CHECK;

/* BEGIN and the tenant in one round trip; commit or rollback end it; sbx_db_give() rolls back. */
int sbx_db_begin(struct sbx_db *db, const char *tenant, struct sbx_err *err) SBX_MUST_CHECK;
int sbx_db_commit(struct sbx_db *db, struct sbx_err *err) SBX_MUST_CHECK;
void sbx_db_rollback(struct sbx_db *db);

/* Runs SQL text that is not in the table: migrations and tests only. Several statements may stand in it. */
int sbx_db_script(struct sbx_db *db, const char *sql, struct sbx_err *err) SBX_MUST_CHECK;

int sbx_res_rows(const struct sbx_res *r);
int64_t sbx_res_affected(const struct sbx_res *r); /* of INSERT, UPDATE, DELETE */
bool sbx_res_null(const struct sbx_res *r, int row, int col);
const char *sbx_res_z(const struct sbx_res *r, int row, int col); /* NULL for SQL NULL; lives with r */
int64_t sbx_res_i(const struct sbx_res *r, int row, int col);     /* 0 for SQL NULL */
bool sbx_res_bool(const struct sbx_res *r, int row, int col);     /* false for SQL NULL */
void sbx_res_free(struct sbx_res *r);
void sbx_res_auto(struct sbx_res **r);
#define sbx_auto_res SBX_CLEANUP(sbx_res_auto)

/*
 * One LISTEN connection a process, driven by the caller's poll loop: connect, then for every wake-up
 * read. After each (re)connect `on_connect` runs: whoever waits must check its state again, because
 * what was notified in between is lost.
 */
struct sbx_listener;
typedef void (*sbx_notify_fn)(void *arg, const char *channel, const char *payload);
struct sbx_listener *sbx_listener_new(const char *conninfo, const char *application, const char *const *channels,
	sbx_notify_fn on_notify, void (*on_connect)(void *arg), void *arg);
void sbx_listener_free(struct sbx_listener *l);
/*
 * Does what can be done without blocking and calls the callbacks from this thread. Gives the fd to poll
 * (-1: none now), the poll events wanted (POLLIN, POLLOUT), and when to call again at the latest (ms).
 * Any turn may close the fd and open another, perhaps of the same number: with epoll, register it anew
 * after each turn (EPOLL_CTL_MOD, and EPOLL_CTL_ADD on ENOENT). `channels` ends with NULL and must
 * outlive the listener.
 */
void sbx_listener_turn(struct sbx_listener *l, int *ret_fd, short *ret_events, int *ret_wait_ms);
bool sbx_listener_connected(const struct sbx_listener *l);

/*
 * Applies the files NNNN_name.sql of dir that the database does not have yet, in order, each in one
 * transaction under an advisory lock, recorded in sbx.schema_migrations with its SHA-256; a recorded
 * file whose content changed, or a gap, is an error. Then every run: grants.sql and views.sql.
 * Gives how many were applied.
 */
int sbx_db_migrate(struct sbx_db *db, const char *dir, int *ret_applied, struct sbx_err *err) SBX_MUST_CHECK;
/* The newest migration that this program was built for, and what the database has (0: none). */
#define SBX_SCHEMA_VERSION 1
int sbx_db_schema_version(struct sbx_db *db, int *ret, struct sbx_err *err) SBX_MUST_CHECK;

#endif
