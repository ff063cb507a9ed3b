/*
 * The wait loop: one thread that holds every parked call. It runs requests to boxd on libcurl's multi
 * handle, listens to PostgreSQL, keeps streams alive and notices clients that went away. It never waits
 * for one call: all it does to a connection is to write a few bytes.
 *
 * A parked connection is the loop's alone until server_ready() gives it back.
 */
#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "sbx/clock.h"
#include "sbx/log.h"
#include "serve/serve_priv.h"

#define SILENT_S 30L /* boxd says something every 10 s: this long without is a dead transport */
#define CONNECT_MS 3000L
#define CONNECTIONS_KEPT 512L
#define EVENTS 64

struct transfer {
	CURL *curl;
	struct curl_slist *headers;
	struct conn *conn;
};

struct loop {
	struct server *server;
	pthread_t thread;
	int epoll, wake_fd;
	CURLM *multi;
	int64_t curl_due_ms; /* when curl wants to be called; INT64_MAX: not */
	struct sbx_listener *listener;
	int64_t listener_due_ms;
	struct conn *parked;  /* list */
	pthread_mutex_t lock; /* inbox, flags */
	struct queue inbox;
	bool abort, quit;
};

enum { TAG_WAKE, TAG_LISTENER, TAG_CONN, TAG_CURL };

/* epoll's 64 bits tell the kind in the low two; pointers are aligned to more than that. */
static struct epoll_event event_of(uint32_t events, uint64_t value, unsigned tag)
{
	return (struct epoll_event){ .events = events, .data = { .u64 = value << 2 | tag } };
}

/* The parked list */

static void link_in(struct loop *l, struct conn *c)
{
	c->prev = NULL;
	c->next = l->parked;
	if (l->parked)
		l->parked->prev = c;
	l->parked = c;
}

static void unlink_conn(struct loop *l, struct conn *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		l->parked = c->next;
	if (c->next)
		c->next->prev = c->prev;
	c->next = c->prev = NULL;
}

static void transfer_end(struct loop *l, struct conn *c)
{
	struct transfer *t = c->transfer;

	if (!t)
		return;
	c->transfer = NULL;
	curl_multi_remove_handle(l->multi, t->curl);
	curl_easy_cleanup(t->curl);
	curl_slist_free_all(t->headers);
	free(t);
}

static void leave(struct loop *l, struct conn *c)
{
	transfer_end(l, c);
	unlink_conn(l, c);
	epoll_ctl(l->epoll, EPOLL_CTL_DEL, c->fd, NULL);
}

static void hand_back(struct loop *l, struct conn *c)
{
	leave(l, c);
	server_ready(l->server, c);
}

/*
 * The client is gone. Where that cancels the call, it is resumed to undo what it began; otherwise that
 * goes on: a command in its box, a machine that starts.
 */
static void drop(struct loop *l, struct conn *c)
{
	if (c->x.cancel_when_gone && c->x.call.cancel && !c->x.call.cancelled) {
		c->x.call.cancelled = true;
		hand_back(l, c);
		return;
	}
	sbx_log(SBX_LOG_INFO, "client.gone", sbx_kv_s("req", c->x.in.request_id),
		sbx_kv_i("after_ms", sbx_mono_ms() - c->parked_ms));
	leave(l, c);
	exchange_done(&c->x);
	conn_free(l->server, c);
	atomic_fetch_sub(&l->server->busy, 1);
}

/* Requests to boxd */

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
	struct transfer *t = arg;
	struct sbx_box_request *r = t->conn->x.call.wait.request;
	long status = 0;

	curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
	return r->sink(r->arg, status, (struct sbx_str){ p, size * n }) < 0 ? 0 : size * n;
}

static bool transfer_setup(struct transfer *t, const struct sbx_box_request *r)
{
	CURL *h = t->curl;
	bool ok = true;

	if (r->authorization)
		t->headers = curl_slist_append(t->headers, r->authorization);
	t->headers = curl_slist_append(t->headers, "Content-Type: application/x-sbx-frames");
	t->headers = curl_slist_append(t->headers, "Expect:");
	ok &= t->headers != NULL;
	ok &= curl_easy_setopt(h, CURLOPT_URL, r->url) == CURLE_OK;
	ok &= curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http") == CURLE_OK;
	ok &= curl_easy_setopt(h, CURLOPT_PROXY, "") == CURLE_OK;
	ok &= curl_easy_setopt(h, CURLOPT_HTTPHEADER, t->headers) == CURLE_OK;
	ok &= curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L) == CURLE_OK;
	ok &= curl_easy_setopt(h, CURLOPT_TCP_NODELAY, 1L) == CURLE_OK;
	ok &= curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS) == CURLE_OK;
	ok &= curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)r->timeout_ms) == CURLE_OK;
	ok &= curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L) == CURLE_OK;
	ok &= curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, SILENT_S) == CURLE_OK;
	ok &= curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK;
	ok &= curl_easy_setopt(h, CURLOPT_WRITEDATA, t) == CURLE_OK;
	ok &= curl_easy_setopt(h, CURLOPT_PRIVATE, t) == CURLE_OK;
	if (r->post) {
		ok &= curl_easy_setopt(h, CURLOPT_POST, 1L) == CURLE_OK;
		ok &= curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body.n) == CURLE_OK;
		ok &= curl_easy_setopt(h, CURLOPT_POSTFIELDS, r->body.p) == CURLE_OK;
	}
	return ok;
}

static bool transfer_start(struct loop *l, struct conn *c)
{
	struct transfer *t = calloc(1, sizeof(*t));

	if (!t)
		return false;
	*t = (struct transfer){ .curl = curl_easy_init(), .conn = c };
	c->transfer = t;
	if (t->curl && transfer_setup(t, c->x.call.wait.request) &&
		curl_multi_add_handle(l->multi, t->curl) == CURLM_OK)
		return true;
	transfer_end(l, c);
	return false;
}

static void transfer_over(struct loop *l, struct transfer *t, CURLcode rc)
{
	struct sbx_box_request *r = t->conn->x.call.wait.request;
	curl_off_t pretransfer_us = 0;

	curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &r->status);
	curl_easy_getinfo(t->curl, CURLINFO_PRETRANSFER_TIME_T, &pretransfer_us);
	r->connected = pretransfer_us > 0;
	r->whole = rc == CURLE_OK;
	if (rc != CURLE_OK)
		snprintf(r->why, sizeof(r->why), "%s", curl_easy_strerror(rc));
	hand_back(l, t->conn);
}

static void transfers_reap(struct loop *l)
{
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(l->multi, &left)) != NULL) {
		struct transfer *t = NULL;

		if (m->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &t);
		transfer_over(l, t, m->data.result);
	}
}

static int on_socket(CURL *h, curl_socket_t fd, int what, void *arg, void *known)
{
	struct loop *l = arg;
	struct epoll_event e = event_of(
		(what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u), (uint64_t)fd, TAG_CURL);

	(void)h;
	if (what == CURL_POLL_REMOVE) {
		epoll_ctl(l->epoll, EPOLL_CTL_DEL, fd, NULL);
		return 0;
	}
	if (epoll_ctl(l->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &e) < 0 && errno == EEXIST)
		epoll_ctl(l->epoll, EPOLL_CTL_MOD, fd, &e);
	curl_multi_assign(l->multi, fd, l);
	return 0;
}

static int on_timer(CURLM *m, long timeout_ms, void *arg)
{
	struct loop *l = arg;

	(void)m;
	l->curl_due_ms = timeout_ms < 0 ? INT64_MAX : sbx_mono_ms() + timeout_ms;
	return 0;
}

/* Notifications */

static void on_notify(void *arg, const char *channel, const char *payload)
{
	struct loop *l = arg;
	struct conn *next;

	(void)channel;
	for (struct conn *c = l->parked; c; c = next) {
		next = c->next;
		if (c->x.call.wait.kind == SBX_WAIT_BOX && strcmp(c->x.call.wait.box_id, payload) == 0)
			hand_back(l, c);
	}
}

/* What was notified while there was no connection is lost: everybody looks again. */
static void on_connect(void *arg)
{
	struct loop *l = arg;
	struct conn *next;

	for (struct conn *c = l->parked; c; c = next) {
		next = c->next;
		if (c->x.call.wait.kind == SBX_WAIT_BOX)
			hand_back(l, c);
	}
}

static void listener_turn(struct loop *l)
{
	int fd, wait_ms;
	short events;
	struct epoll_event e;

	sbx_listener_turn(l->listener, &fd, &events, &wait_ms);
	l->listener_due_ms = sbx_mono_ms() + wait_ms;
	/* A closed socket has left the epoll by itself, and the same number may be another socket now. */
	e = event_of((events & POLLIN ? EPOLLIN : 0u) | (events & POLLOUT ? EPOLLOUT : 0u), 0, TAG_LISTENER);
	if (fd >= 0 && epoll_ctl(l->epoll, EPOLL_CTL_MOD, fd, &e) < 0)
		epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &e);
}

/* Parked calls */

static void begin_wait(struct loop *l, struct conn *c)
{
	struct epoll_event e = event_of(EPOLLRDHUP, (uint64_t)(uintptr_t)c >> 2, TAG_CONN);
	int64_t now = sbx_mono_ms();

	link_in(l, c);
	if (!c->x.call.cancelled)
		epoll_ctl(l->epoll, EPOLL_CTL_ADD, c->fd, &e);
	if (!c->parked_ms) {
		c->parked_ms = now;
		c->beat_ms = now + l->server->app->conf->stream_after_ms;
	}
	c->wake_ms = now + c->x.call.wait.delay_ms;
}

/* Times of one call; true when it was handed back or dropped. */
static bool look_at(struct loop *l, struct conn *c, int64_t now)
{
	if (now >= c->beat_ms && c->x.stream != SBX_STREAM_NEVER && !c->x.call.cancelled) {
		c->beat_ms = now + l->server->app->conf->keepalive_ms;
		if (!(c->x.streaming ? conn_stream_beat(c) : conn_stream_head(c))) {
			drop(l, c);
			return true;
		}
	}
	if (now < c->wake_ms)
		return false;
	c->wake_ms = INT64_MAX;
	if (c->x.call.wait.kind == SBX_WAIT_REQUEST && transfer_start(l, c))
		return false;
	hand_back(l, c);
	return true;
}

/* Looks at all of them, and gives when the next look is due. */
static int64_t look_at_all(struct loop *l)
{
	int64_t now = sbx_mono_ms(), due = now + 60000;
	struct conn *next;

	for (struct conn *c = l->parked; c; c = next) {
		next = c->next;
		if (look_at(l, c, now))
			continue;
		if (c->wake_ms < due)
			due = c->wake_ms;
		if (c->x.stream != SBX_STREAM_NEVER && !c->x.call.cancelled && c->beat_ms < due)
			due = c->beat_ms;
	}
	return due;
}

static void abort_parked(struct loop *l)
{
	while (l->parked) {
		struct conn *c = l->parked;

		leave(l, c);
		c->x.abort(&c->x);
		conn_reply(c);
		conn_free(l->server, c);
		atomic_fetch_sub(&l->server->busy, 1);
	}
}

/* What other threads asked for; false when the loop is to end. */
static bool take_inbox(struct loop *l)
{
	struct queue q;
	struct conn *c;
	bool abort, quit;

	pthread_mutex_lock(&l->lock);
	q = l->inbox;
	if (!q.first)
		q.last = &q.first;
	queue_init(&l->inbox);
	abort = l->abort;
	quit = l->quit;
	pthread_mutex_unlock(&l->lock);
	while ((c = queue_take(&q)) != NULL)
		begin_wait(l, c);
	if (abort)
		abort_parked(l);
	return !quit;
}

static void on_event(struct loop *l, const struct epoll_event *e)
{
	uint64_t value = e->data.u64 >> 2, count;
	int running, mask;

	switch (e->data.u64 & 3) {
	case TAG_WAKE: (void)!read(l->wake_fd, &count, sizeof(count)); break;
	case TAG_LISTENER: l->listener_due_ms = 0; break;
	case TAG_CONN: drop(l, (struct conn *)(uintptr_t)(value << 2)); break;
	case TAG_CURL:
		mask = (e->events & EPOLLIN ? CURL_CSELECT_IN : 0) | (e->events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
			(e->events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
		curl_multi_socket_action(l->multi, (curl_socket_t)value, mask, &running);
		break;
	}
}

static int wait_ms(const struct loop *l, int64_t due)
{
	if (l->curl_due_ms < due)
		due = l->curl_due_ms;
	if (l->listener_due_ms < due)
		due = l->listener_due_ms;
	return sbx_ms_left(due);
}

static void *loop_main(void *arg)
{
	struct loop *l = arg;
	int running;

	while (take_inbox(l)) {
		struct epoll_event events[EVENTS];
		int64_t due, now = sbx_mono_ms();
		int n;

		if (now >= l->listener_due_ms)
			listener_turn(l);
		if (now >= l->curl_due_ms) {
			l->curl_due_ms = INT64_MAX;
			curl_multi_socket_action(l->multi, CURL_SOCKET_TIMEOUT, 0, &running);
		}
		transfers_reap(l);
		due = look_at_all(l);
		n = epoll_wait(l->epoll, events, EVENTS, wait_ms(l, due));
		for (int i = 0; i < n; i++)
			on_event(l, &events[i]);
		transfers_reap(l);
	}
	return NULL;
}

/* From other threads */

static void poke(struct loop *l)
{
	uint64_t one = 1;

	(void)!write(l->wake_fd, &one, sizeof(one));
}

void loop_park(struct loop *l, struct conn *c)
{
	pthread_mutex_lock(&l->lock);
	queue_put(&l->inbox, c);
	pthread_mutex_unlock(&l->lock);
	poke(l);
}

void loop_abort_all(struct loop *l)
{
	pthread_mutex_lock(&l->lock);
	l->abort = true;
	pthread_mutex_unlock(&l->lock);
	poke(l);
}

static bool loop_open(struct loop *l, const char *conninfo)
{
	static const char *const channels[] = { "sbx_box", NULL };
	struct epoll_event e = event_of(EPOLLIN, 0, TAG_WAKE);

	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	l->multi = curl_multi_init();
	l->listener = sbx_listener_new(conninfo, "sbx-worker listen", channels, on_notify, on_connect, l);
	if (l->epoll < 0 || l->wake_fd < 0 || !l->multi || !l->listener ||
		epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->wake_fd, &e) < 0)
		return false;
	curl_multi_setopt(l->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(l->multi, CURLMOPT_SOCKETDATA, l);
	curl_multi_setopt(l->multi, CURLMOPT_TIMERFUNCTION, on_timer);
	curl_multi_setopt(l->multi, CURLMOPT_TIMERDATA, l);
	curl_multi_setopt(l->multi, CURLMOPT_MAXCONNECTS, CONNECTIONS_KEPT);
	return true;
}

struct loop *loop_new(struct server *s, const char *conninfo, struct sbx_err *err)
{
	struct loop *l = calloc(1, sizeof(*l));

	if (!l) {
		SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
		return NULL;
	}
	l->server = s;
	l->epoll = l->wake_fd = -1;
	l->curl_due_ms = INT64_MAX;
	pthread_mutex_init(&l->lock, NULL);
	queue_init(&l->inbox);
	if (!loop_open(l, conninfo) || pthread_create(&l->thread, NULL, loop_main, l) != 0) {
		SBX_FAIL(err, SBX_E_INTERNAL, "Cannot start the wait loop");
		return NULL;
	}
	return l;
}

void loop_free(struct loop *l)
{
	pthread_mutex_lock(&l->lock);
	l->quit = true;
	pthread_mutex_unlock(&l->lock);
	poke(l);
	pthread_join(l->thread, NULL);
	sbx_listener_free(l->listener);
	curl_multi_cleanup(l->multi);
	close(l->epoll);
	close(l->wake_fd);
	pthread_mutex_destroy(&l->lock);
	free(l);
}
