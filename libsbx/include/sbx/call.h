/*
 * One call: what a handler sees of it, and how it waits.
 *
 * A handler runs on a thread of the pool and never waits there. It either ends the call (SBX_DONE,
 * SBX_FAILED) or fills call->wait, sets call->resume and gives SBX_WAITING: the call is then parked in
 * the process's wait loop, which holds neither a thread nor a database connection for it, and resume
 * runs on some thread of the pool when what it waits for has happened. One thread at a time.
 */
#ifndef SBX_CALL_H
#define SBX_CALL_H

#include "sbx/arena.h"
#include "sbx/auth.h"
#include "sbx/conf.h"
#include "sbx/db.h"
#include "sbx/json.h"

/* What is made once and shared by all calls of a process. */
struct sbx_app {
	const struct sbx_conf *conf;
	struct sbx_db_pool *pool;
	struct sbx_keyring *keys;
};

enum sbx_step { SBX_DONE, SBX_FAILED, SBX_WAITING };

/* A request to boxd, run by the wait loop with libcurl over kept connections. */
struct sbx_box_request {
	const char *url;
	const char *authorization; /* header line, or NULL */
	bool post;
	struct sbx_str body; /* lives until the answer */
	int64_t timeout_ms;
	/* Takes pieces of the answer's body, on the loop's thread; -1 breaks the transfer off. */
	int (*sink)(void *arg, long status, struct sbx_str piece);
	void *arg;
	/* The outcome: */
	bool connected; /* a connection stood, so the request may have arrived */
	bool whole;     /* the answer came to its end */
	long status;    /* HTTP, 0 when there was none */
	char why[160];  /* what broke, for the log */
};

enum sbx_wait_kind { SBX_WAIT_REQUEST, SBX_WAIT_BOX };

struct sbx_wait {
	enum sbx_wait_kind kind;
	struct sbx_box_request *request; /* REQUEST */
	int64_t delay_ms;                /* REQUEST: begin so much later */
	/*
	 * BOX: until the box with this id changes its state, or delay_ms have passed. A hint to look
	 * again, never the news itself.
	 */
	char box_id[32];
};

struct sbx_call {
	struct sbx_arena *arena;
	const struct sbx_app *app;
	struct sbx_principal who;
	const char *client; /* what the caller says it is; shown, never trusted */
	enum sbx_step (*resume)(struct sbx_call *call, struct sbx_jw *out, struct sbx_err *err);
	/*
	 * Undoes what was begun, like resume: set by a handler that parks something that can be undone. It
	 * is called when the caller gave the call up; cancelled is true from then on.
	 */
	enum sbx_step (*cancel)(struct sbx_call *call, struct sbx_jw *out, struct sbx_err *err);
	bool cancelled;
	void *state; /* the handler's, in the arena */
	struct sbx_wait wait;
};

#endif
