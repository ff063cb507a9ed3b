/*
 * Inside the database layer: one connection, and what pool, statements and listener share of libpq.
 */
#ifndef SBX_DB_CONN_H
#define SBX_DB_CONN_H

#include <libpq-fe.h>

#include "sbx/db.h"

/* Prepared statements a connection remembers; stmts.def has far fewer. */
#define DB_PREPARED_SLOTS 512u
#define DB_CONNECT_MS 3000
/* Server-side limits, set at connect; the client waits DB_ANSWER_MS, longer than any of them. */
#define DB_STATEMENT_MS 10000
#define DB_LOCK_MS 5000
#define DB_IDLE_TX_MS 15000
#define DB_ANSWER_MS 15000
#define DB_SCRIPT_MS 600000

struct sbx_db {
	PGconn *pg; /* NULL: not open now */
	struct sbx_db_pool *pool;
	struct sbx_db *next; /* in the pool's list of idle ones */
	bool in_tx;          /* between begin and its end, even when the connection was lost meanwhile */
	bool is_used_up;     /* replace it before its next use */
	size_t prepared_n;
	const struct sbx_stmt *prepared[DB_PREPARED_SLOTS]; /* hash table by address */
};

struct sbx_res {
	PGresult *pg;
};

/*
 * Starts connecting with all settings of this layer; PQconnectPoll() goes on. NULL: out of memory.
 */
PGconn *db_connect_start(const char *conninfo, const char *application);
/* Connects, or fails with SBX_E_UNAVAILABLE within DB_CONNECT_MS. */
PGconn *db_connect(const char *conninfo, const char *application, struct sbx_err *err);
/* Waits for the socket: 1 ready, 0 deadline passed, -1 with errno. */
int db_wait(PGconn *pg, short events, int64_t deadline_ms);

/*
 * Makes db->pg usable: looks whether it is still alive, else opens a new one. Not in a transaction.
 */
int db_ensure_open(struct sbx_db *db, struct sbx_err *err);
void db_close(struct sbx_db *db);

/* The code of an SQLSTATE. */
enum sbx_code db_code(const char *sqlstate);
/* Sets err from a failed result; gives -1. */
int db_fail_result(struct sbx_err *err, const PGresult *r, const char *what);
/* Sets err for a connection that broke or did not answer; gives -1. */
int db_fail_broken(struct sbx_err *err, enum sbx_code code, const char *detail, const char *what);

/* The pool's side of opening: refuses at once while a failed attempt is recent. */
PGconn *db_pool_connect(struct sbx_db_pool *pool, struct sbx_err *err);

#endif
