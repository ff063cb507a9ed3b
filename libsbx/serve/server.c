/* The threads of a worker process and the epoll they share. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sbx/clock.h"
#include "sbx/fd.h"
#include "sbx/log.h"
#include "serve/serve_priv.h"

#define THREAD_STACK (512u * 1024u)
#define TURN_MS 200 /* how often a waiting thread looks whether it is to stop */

static int watch(struct server *s, int op, int fd, uint32_t events, void *ptr)
{
	struct epoll_event e = { .events = events, .data = { .ptr = ptr } };

	return epoll_ctl(s->epoll, op, fd, &e);
}

/* Back to the epoll for its next request, or closed when libfcgi has closed it. */
static void idle(struct server *s, struct conn *c)
{
	if (c->fcgi.ipcFd < 0 || atomic_load(&s->stopping) ||
		watch(s, EPOLL_CTL_MOD, c->fd, EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, c) < 0)
		conn_free(s, c);
}

static void finish(struct server *s, struct conn *c)
{
	conn_reply(c);
	atomic_fetch_sub(&s->busy, 1);
	idle(s, c);
}

static void carry_on(struct server *s, struct conn *c, enum sbx_step step)
{
	if (step == SBX_WAITING)
		loop_park(s->loop, c);
	else
		finish(s, c);
}

static void serve(struct server *s, struct conn *c)
{
	if (!conn_read(s, c)) {
		exchange_done(&c->x);
		conn_free(s, c);
		return;
	}
	atomic_fetch_add(&s->busy, 1);
	/* A status stands already when the request could not be read. */
	carry_on(s, c, c->x.out.status ? SBX_DONE : sbx_route(&c->x));
}

/* One at a time, so that the processes and threads that wait share a burst. */
static void accept_one(struct server *s)
{
	int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	struct conn *c;

	if (fd < 0)
		return;
	if (atomic_load(&s->connections) >= s->app->conf->connections_max) {
		sbx_log(SBX_LOG_WARN, "connections.full", sbx_kv_i("max", s->app->conf->connections_max));
		close(fd);
		return;
	}
	c = conn_new(s, fd);
	if (c && watch(s, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, c) < 0)
		conn_free(s, c);
}

void server_ready(struct server *s, struct conn *c)
{
	uint64_t one = 1;

	pthread_mutex_lock(&s->ready_lock);
	queue_put(&s->ready, c);
	pthread_mutex_unlock(&s->ready_lock);
	if (write(s->ready_fd, &one, sizeof(one)) != sizeof(one))
		SBX_UNREACHABLE();
}

static void resume_one(struct server *s)
{
	struct conn *c;
	uint64_t one;

	if (read(s->ready_fd, &one, sizeof(one)) != sizeof(one))
		return; /* another thread was faster */
	pthread_mutex_lock(&s->ready_lock);
	c = queue_take(&s->ready);
	pthread_mutex_unlock(&s->ready_lock);
	if (c)
		carry_on(s, c, c->x.resume(&c->x));
}

static void *thread_main(void *arg)
{
	struct server *s = arg;

	for (;;) {
		struct epoll_event e;
		int n = epoll_wait(s->epoll, &e, 1, TURN_MS);

		if (n <= 0) {
			if (atomic_load(&s->stopping) && atomic_load(&s->busy) == 0)
				return NULL;
			continue;
		}
		if (e.data.ptr == &s->listen_fd)
			accept_one(s);
		else if (e.data.ptr == &s->ready_fd)
			resume_one(s);
		else
			serve(s, e.data.ptr);
	}
}

static int open_all(struct server *s, const char *conninfo, struct sbx_err *err)
{
	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	s->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	if (s->epoll < 0 || s->ready_fd < 0 || sbx_fd_nonblock(s->listen_fd) < 0 ||
		watch(s, EPOLL_CTL_ADD, s->listen_fd, EPOLLIN | EPOLLEXCLUSIVE, &s->listen_fd) < 0 ||
		watch(s, EPOLL_CTL_ADD, s->ready_fd, EPOLLIN | EPOLLEXCLUSIVE, &s->ready_fd) < 0)
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot set up the event loop");
	s->loop = loop_new(s, conninfo, err);
	return s->loop ? 0 : -1;
}

/* Calls get drain_s to end by themselves; what is parked still is then answered. */
static void drain(struct server *s)
{
	int64_t deadline = sbx_mono_ms() + s->app->conf->drain_s * 1000;

	watch(s, EPOLL_CTL_DEL, s->listen_fd, 0, NULL);
	while (atomic_load(&s->busy) > 0 && sbx_ms_left(deadline) > 0)
		poll(NULL, 0, 50);
	loop_abort_all(s->loop);
	atomic_store(&s->stopping, true);
}

int sbx_serve(const struct sbx_app *app, const char *conninfo, int listen_fd, int stop_fd, struct sbx_err *err)
{
	struct server s = {
		.app = app, .epoll = -1, .listen_fd = listen_fd, .ready_fd = -1, .ready_lock = PTHREAD_MUTEX_INITIALIZER
	};
	struct pollfd stop = { .fd = stop_fd, .events = POLLIN };
	int64_t n = 0;
	pthread_attr_t attr;
	pthread_t *threads = calloc((size_t)app->conf->worker_threads, sizeof(*threads));

	queue_init(&s.ready);
	if (!threads)
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	if (open_all(&s, conninfo, err) < 0) {
		free(threads);
		return -1;
	}
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, THREAD_STACK);
	while (n < app->conf->worker_threads && pthread_create(&threads[n], &attr, thread_main, &s) == 0)
		n++;
	pthread_attr_destroy(&attr);
	if (n > 0)
		while (poll(&stop, 1, -1) < 0 && errno == EINTR)
			continue;
	drain(&s);
	for (int64_t i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	free(threads);
	loop_free(s.loop);
	close(s.epoll);
	close(s.ready_fd);
	return n > 0 ? 0 : SBX_FAIL(err, SBX_E_INTERNAL, "Cannot start a thread");
}
