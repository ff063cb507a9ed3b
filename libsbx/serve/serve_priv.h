/* What the server's three files share: connections (conn.c), threads (server.c), the wait loop (loop.c). */
#ifndef SBX_SERVE_PRIV_H
#define SBX_SERVE_PRIV_H

#include <fcgiapp.h>
#include <pthread.h>
#include <stdatomic.h>

#include "sbx/exchange.h"
#include "sbx/serve.h"

struct transfer;

/*
 * One FastCGI connection. It has one owner at a time: the epoll (idle), a thread (serving), the wait
 * loop (parked), or the ready queue; so it needs no lock.
 */
struct conn {
	FCGX_Request fcgi;
	int fd;
	struct sbx_exchange x;
	struct conn *next, *prev;   /* in the loop's list, or next in a queue */
	int64_t parked_ms, wake_ms; /* the loop: since when, and the next look */
	int64_t beat_ms;            /* the loop: when the next sign of life is due */
	struct transfer *transfer;  /* the loop: the request to boxd under way */
};

struct queue {
	struct conn *first, **last;
};

void queue_init(struct queue *q);
void queue_put(struct queue *q, struct conn *c);
struct conn *queue_take(struct queue *q);

struct server {
	const struct sbx_app *app;
	int epoll, listen_fd, ready_fd; /* ready_fd: eventfd, a semaphore that counts the ready queue */
	pthread_mutex_t ready_lock;
	struct queue ready;
	struct loop *loop;
	atomic_int connections, busy; /* busy: exchanges begun and not ended */
	atomic_bool stopping;
};

/* conn.c */
struct conn *conn_new(struct server *s, int fd);
void conn_free(struct server *s, struct conn *c);
bool conn_read(struct server *s, struct conn *c); /* a request into c->x; false: the peer is gone */
void conn_reply(struct conn *c);                  /* sends c->x.out and ends the exchange */
bool conn_stream_head(struct conn *c);            /* begins the stream; false: the peer is gone */
bool conn_stream_beat(struct conn *c);            /* keeps it alive */
void exchange_done(struct sbx_exchange *x);

/* server.c: gives a parked connection back to the threads. */
void server_ready(struct server *s, struct conn *c);

/* loop.c */
struct loop *loop_new(struct server *s, const char *conninfo, struct sbx_err *err);
void loop_free(struct loop *l); /* stops its thread */
void loop_park(struct loop *l, struct conn *c);
void loop_abort_all(struct loop *l); /* hands back everything parked, marked as aborted */

#endif
