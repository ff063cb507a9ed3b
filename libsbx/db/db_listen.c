/*
 * The LISTEN connection: a state machine that never blocks, apart from name resolution by libpq.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "db/db_conn.h"
#include "sbx/buf.h"
#include "sbx/clock.h"

#define RETRY_FIRST_MS 100
#define RETRY_MAX_MS 5000
#define IDLE_TURN_MS 30000

enum listen_state {
	DOWN,       /* until retry_at_ms */
	CONNECTING, /* PQconnectPoll */
	ASKING,     /* LISTEN was sent, the answer is awaited */
	UP,
};

struct sbx_listener {
	char *conninfo, *application;
	const char *const *channels; /* NULL-terminated, owned by the caller */
	sbx_notify_fn on_notify;
	void (*on_connect)(void *arg);
	void *arg;
	PGconn *pg;
	enum listen_state state;
	PostgresPollingStatusType polling;
	int64_t deadline_ms; /* of connecting and asking */
	int64_t retry_at_ms;
	int retry_ms;
};

struct sbx_listener *sbx_listener_new(const char *conninfo, const char *application, const char *const *channels,
	sbx_notify_fn on_notify, void (*on_connect)(void *arg), void *arg)
{
	struct sbx_listener *l = calloc(1, sizeof(*l));
	if (l == NULL)
		return NULL;
	*l = (struct sbx_listener){
		.conninfo = strdup(conninfo),
		.application = strdup(application),
		.channels = channels,
		.on_notify = on_notify,
		.on_connect = on_connect,
		.arg = arg,
		.retry_ms = RETRY_FIRST_MS,
	};
	if (l->conninfo == NULL || l->application == NULL) {
		sbx_listener_free(l);
		return NULL;
	}
	return l;
}

void sbx_listener_free(struct sbx_listener *l)
{
	if (l == NULL)
		return;
	PQfinish(l->pg);
	free(l->conninfo);
	free(l->application);
	free(l);
}

bool sbx_listener_connected(const struct sbx_listener *l)
{
	return l->state == UP;
}

/* Waits longer each time, by a length that differs from process to process. */
static void go_down(struct sbx_listener *l)
{
	PQfinish(l->pg);
	l->pg = NULL;
	l->state = DOWN;
	l->retry_at_ms = sbx_mono_ms() + l->retry_ms + sbx_mono_us() % l->retry_ms;
	l->retry_ms = l->retry_ms * 2 < RETRY_MAX_MS ? l->retry_ms * 2 : RETRY_MAX_MS;
}

static void start_connecting(struct sbx_listener *l)
{
	l->pg = db_connect_start(l->conninfo, l->application);
	l->state = CONNECTING;
	l->polling = PGRES_POLLING_WRITING;
	l->deadline_ms = sbx_mono_ms() + DB_CONNECT_MS;
	if (l->pg == NULL || PQstatus(l->pg) == CONNECTION_BAD)
		go_down(l);
}

static int ask(struct sbx_listener *l)
{
	sbx_auto_buf struct sbx_buf sql;
	sbx_buf_init(&sql, 4096);
	for (const char *const *c = l->channels; *c != NULL; c++) {
		char *name = PQescapeIdentifier(l->pg, *c, strlen(*c));
		if (name == NULL)
			return -1;
		sbx_buf_addf(&sql, "listen %s;", name);
		PQfreemem(name);
	}
	if (PQsetnonblocking(l->pg, 1) != 0 || sbx_buf_ok(&sql, NULL) < 0)
		return -1;
	return PQsendQuery(l->pg, sbx_buf_z(&sql)) == 1 ? 0 : -1;
}

static void go_on_connecting(struct sbx_listener *l)
{
	if (sbx_mono_ms() >= l->deadline_ms) {
		go_down(l);
		return;
	}
	/* PQconnectPoll would block on a socket that is not ready. */
	if (db_wait(l->pg, l->polling == PGRES_POLLING_READING ? POLLIN : POLLOUT, 0) == 0)
		return;
	l->polling = PQconnectPoll(l->pg);
	if (l->polling == PGRES_POLLING_OK && ask(l) == 0)
		l->state = ASKING;
	else if (l->polling == PGRES_POLLING_OK || l->polling == PGRES_POLLING_FAILED)
		go_down(l);
}

/* The answer to LISTEN: when all of it is there and good, the listener is up. */
static void read_answer(struct sbx_listener *l)
{
	bool is_good = true;
	if (sbx_mono_ms() >= l->deadline_ms || PQflush(l->pg) < 0 || PQconsumeInput(l->pg) == 0) {
		go_down(l);
		return;
	}
	while (PQisBusy(l->pg) == 0) {
		PGresult *r = PQgetResult(l->pg);
		if (r == NULL) {
			if (!is_good) {
				go_down(l);
				return;
			}
			l->state = UP;
			l->retry_ms = RETRY_FIRST_MS;
			l->on_connect(l->arg);
			return;
		}
		if (PQresultStatus(r) != PGRES_COMMAND_OK) {
			is_good = false;
			l->deadline_ms = 0;
		}
		PQclear(r);
	}
}

static void read_notifications(struct sbx_listener *l)
{
	bool is_alive = PQconsumeInput(l->pg) == 1;
	for (PGnotify *n = PQnotifies(l->pg); n != NULL; n = PQnotifies(l->pg)) {
		l->on_notify(l->arg, n->relname, n->extra);
		PQfreemem(n);
	}
	if (!is_alive || PQstatus(l->pg) == CONNECTION_BAD)
		go_down(l);
}

void sbx_listener_turn(struct sbx_listener *l, int *ret_fd, short *ret_events, int *ret_wait_ms)
{
	if (l->state == DOWN && sbx_mono_ms() >= l->retry_at_ms)
		start_connecting(l);
	if (l->state == CONNECTING)
		go_on_connecting(l);
	if (l->state == ASKING)
		read_answer(l);
	if (l->state == UP)
		read_notifications(l);

	*ret_fd = l->pg != NULL ? PQsocket(l->pg) : -1;
	*ret_events = POLLIN;
	*ret_wait_ms = IDLE_TURN_MS;
	if (l->state == CONNECTING && l->polling != PGRES_POLLING_READING)
		*ret_events = POLLOUT;
	if (l->state == ASKING && PQflush(l->pg) > 0)
		*ret_events |= POLLOUT;
	if (l->state == DOWN)
		*ret_wait_ms = sbx_ms_left(l->retry_at_ms);
	else if (l->state != UP)
		*ret_wait_ms = sbx_ms_left(l->deadline_ms);
}
