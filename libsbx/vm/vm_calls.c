/*
 * The pool whose threads make libvirt's calls, their connections, and the event loop.
 *
 * A connection is used by one thread alone. libvirt's client lets threads share one, but up to 10.3
 * (CVE-2024-4418, in Debian 12 too) whatever wakes a thread that waits for an answer, another thread's
 * call or a keep-alive, leaves a pointer into that thread's stack behind, which is written to later. So
 * each pool thread has a connection of its own without keep-alive, and events come over one more, which
 * has keep-alive and on which no call is made once it is set up.
 *
 * vm->lock is held across no libvirt call.
 */
#include <errno.h>
#include <libvirt/virterror.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sbx/clock.h"
#include "sbx/log.h"
#include "vm/vm_priv.h"

/* On the connection for events: libvirtd that stops answering is noticed after interval × count seconds. */
#define KEEPALIVE_INTERVAL_S 5
#define KEEPALIVE_COUNT 3
#define RECONNECT_MIN_MS 500

struct job {
	struct job *next; /* in the queue, or among those that run */
	vm_call_fn fn;
	struct vm_args *args;
	struct sbx_err err;
	int rc;
	bool is_done, is_abandoned;
};

struct sbx_vm {
	struct sbx_vm_conf conf;
	char *owned[5];
	sbx_vm_stopped_fn on_stopped;
	void *arg;
	pthread_mutex_t lock;
	pthread_cond_t work;    /* a job was queued, or stop */
	pthread_cond_t changed; /* a job is done, or a thread ended */
	struct job *first, **last, *running;
	int threads, idle;
	bool stop;
	virConnectPtr events; /* NULL: none, or being opened */
	bool is_opening, is_dead;
	int64_t retry_at_ms;    /* no thread tries to connect before */
	uint64_t connections;   /* how often events was opened */
	struct sbx_vm *retired; /* see sbx_vm_free() */
};

const struct sbx_vm_conf *vm_conf(const struct sbx_vm *vm)
{
	return &vm->conf;
}

struct vm_args *vm_args_new(const char *id)
{
	struct vm_args *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	atomic_init(&a->refs, 1);
	atomic_init(&a->is_abandoned, false);
	snprintf(a->id, sizeof(a->id), "%s", id ? id : "");
	sbx_buf_init(&a->data, 4u * 1024u * 1024u);
	return a;
}

void vm_args_unref(struct vm_args *a)
{
	if (!a || atomic_fetch_sub(&a->refs, 1) != 1)
		return;
	free(a->text);
	free(a->more);
	free(a->out);
	free(a->domains);
	sbx_buf_done(&a->data);
	free(a);
}

void vm_args_auto(struct vm_args **a)
{
	vm_args_unref(*a);
}

static enum sbx_code code_of(const virError *e)
{
	switch (e->code) {
	case VIR_ERR_NO_DOMAIN:
	case VIR_ERR_NO_STORAGE_VOL:
	case VIR_ERR_NO_STORAGE_POOL:
	case VIR_ERR_NO_DOMAIN_METADATA: return SBX_E_NOT_FOUND;
	case VIR_ERR_OPERATION_TIMEOUT: return SBX_E_TIMEOUT;
	case VIR_ERR_NO_MEMORY: return SBX_E_NOMEM;
	case VIR_ERR_DOM_EXIST:
	case VIR_ERR_STORAGE_VOL_EXIST: return SBX_E_CONFLICT;
	case VIR_ERR_RPC:
	case VIR_ERR_NO_CONNECT:
	case VIR_ERR_INVALID_CONN:
	case VIR_ERR_AUTH_FAILED:
	case VIR_ERR_AUTH_UNAVAILABLE: return SBX_E_UNAVAILABLE;
	default:
		/* The client library reports a daemon that went away in its own domains. */
		if (e->domain == VIR_FROM_RPC || e->domain == VIR_FROM_REMOTE)
			return SBX_E_UNAVAILABLE;
		return SBX_E_INTERNAL;
	}
}

int vm_pass(struct sbx_err *err, const struct sbx_err *from)
{
	if (err && err->code == SBX_OK)
		*err = *from;
	return -1;
}

int vm_fail(struct sbx_err *err, const char *where, const char *what)
{
	const virError *e = virGetLastError();

	sbx_err_set(err, e ? code_of(e) : SBX_E_INTERNAL, where, "libvirt: %s failed", what);
	if (e)
		sbx_err_detail(err, "%s (code %d, domain %d)", e->message ? e->message : "", e->code, e->domain);
	return -1;
}

static void quiet(void *arg, virErrorPtr e)
{
	(void)arg;
	(void)e;
}

static void *event_loop(void *arg)
{
	(void)arg;
	for (;;)
		if (virEventRunDefaultImpl() < 0)
			sbx_log(SBX_LOG_WARN, "libvirt.event_loop", SBX_KV_NONE);
	return NULL;
}

static void tick(int timer, void *arg)
{
	(void)timer;
	(void)arg;
}

static pthread_once_t library_once = PTHREAD_ONCE_INIT;
static bool library_ok;

/* The loop must exist before the first connection and live as long as the process. */
static void library_start(void)
{
	pthread_t thread;

	virSetErrorFunc(NULL, quiet);
	/* With nothing registered the loop would block for ever: a slow timer keeps it turning. */
	if (virInitialize() < 0 || virEventRegisterDefaultImpl() < 0 || virEventAddTimeout(1000, tick, NULL, NULL) < 0)
		return;
	if (pthread_create(&thread, NULL, event_loop, NULL) != 0)
		return;
	pthread_detach(thread);
	library_ok = true;
}

/* Only notes it: no libvirt call is safe in here. */
static void on_close(virConnectPtr conn, int reason, void *arg)
{
	struct sbx_vm *vm = arg;
	bool was_ours;

	pthread_mutex_lock(&vm->lock);
	was_ours = vm->events == conn;
	if (was_ours)
		vm->is_dead = true;
	pthread_mutex_unlock(&vm->lock);
	if (was_ours)
		sbx_log(SBX_LOG_WARN, "libvirt.closed", sbx_kv_i("reason", reason));
}

static int on_lifecycle(virConnectPtr conn, virDomainPtr dom, int event, int detail, void *arg)
{
	struct sbx_vm *vm = arg;
	char id[SBX_UUID_SIZE] = "";
	sbx_vm_stopped_fn fn;

	(void)conn;
	(void)detail;
	pthread_mutex_lock(&vm->lock);
	fn = vm->on_stopped;
	pthread_mutex_unlock(&vm->lock);
	if (fn && event == VIR_DOMAIN_EVENT_STOPPED && virDomainGetUUIDString(dom, id) == 0)
		fn(vm->arg, id);
	return 0;
}

/* In a pool thread. Backs off together with the other threads after a failure. */
static virConnectPtr connect_new(struct sbx_vm *vm, struct sbx_err *err)
{
	virConnectPtr conn = NULL;
	bool is_too_early;

	pthread_mutex_lock(&vm->lock);
	is_too_early = sbx_mono_ms() < vm->retry_at_ms;
	pthread_mutex_unlock(&vm->lock);
	if (!is_too_early)
		conn = virConnectOpen(vm->conf.uri);
	if (conn)
		return conn;
	if (is_too_early)
		SBX_FAIL(err, SBX_E_UNAVAILABLE, "libvirt cannot be reached at %s", vm->conf.uri);
	else
		VM_FAIL(err, "connecting");
	if (err)
		err->code = SBX_E_UNAVAILABLE;
	pthread_mutex_lock(&vm->lock);
	if (!is_too_early)
		vm->retry_at_ms = sbx_mono_ms() + RECONNECT_MIN_MS;
	pthread_mutex_unlock(&vm->lock);
	return NULL;
}

static virConnectPtr events_new(struct sbx_vm *vm, struct sbx_err *err)
{
	virConnectPtr conn = connect_new(vm, err);

	if (!conn)
		return NULL;
	if (virConnectDomainEventRegisterAny(
		    conn, NULL, VIR_DOMAIN_EVENT_ID_LIFECYCLE, VIR_DOMAIN_EVENT_CALLBACK(on_lifecycle), vm, NULL) < 0 ||
		virConnectRegisterCloseCallback(conn, on_close, vm, NULL) < 0) {
		VM_FAIL(err, "registering for events");
		virConnectClose(conn);
		return NULL;
	}
	/* Last: from here on the event loop alone reads and writes this connection. */
	virConnectSetKeepAlive(conn, KEEPALIVE_INTERVAL_S, KEEPALIVE_COUNT);
	return conn;
}

/* Sees to it that events come; another thread that does so already is left to it. */
static int events_open(struct sbx_vm *vm, struct sbx_err *err)
{
	virConnectPtr dead, conn;

	pthread_mutex_lock(&vm->lock);
	if (vm->is_opening || (vm->events && !vm->is_dead)) {
		pthread_mutex_unlock(&vm->lock);
		return 0;
	}
	dead = vm->events;
	vm->events = NULL;
	vm->is_dead = false;
	vm->is_opening = true;
	pthread_mutex_unlock(&vm->lock);
	if (dead)
		virConnectClose(dead);
	conn = events_new(vm, err);
	pthread_mutex_lock(&vm->lock);
	vm->is_opening = false;
	vm->events = conn;
	/* It may have closed before it was known here, so that on_close() did not take it for ours. */
	vm->is_dead = conn && virConnectIsAlive(conn) != 1;
	vm->connections += conn != NULL;
	pthread_mutex_unlock(&vm->lock);
	return conn ? 0 : -1;
}

static int ping_call(struct sbx_vm *vm, virConnectPtr conn, struct vm_args *a, struct sbx_err *err)
{
	unsigned long version;

	(void)a;
	if (virConnectGetLibVersion(conn, &version) < 0)
		return VM_FAIL(err, "asking for the version");
	return events_open(vm, err);
}

int sbx_vm_ping(struct sbx_vm *vm, struct sbx_err *err)
{
	vm_auto_args struct vm_args *a = vm_args_new(NULL);

	return vm_call(vm, ping_call, a, SBX_VM_CALL_MS, err);
}

/* *conn is this thread's own: opened when there is none, given up when it broke. */
static void run(struct sbx_vm *vm, virConnectPtr *conn, struct job *j)
{
	/* libvirtd went away since the last call: noticed here, so that this one need not fail. */
	if (*conn && virConnectIsAlive(*conn) != 1) {
		virConnectClose(*conn);
		*conn = NULL;
	}
	if (!*conn)
		*conn = connect_new(vm, &j->err);
	if (!*conn) {
		j->rc = -1;
		return;
	}
	virResetLastError();
	j->rc = j->fn(vm, *conn, j->args, &j->err);
}

static void job_free(struct job *j)
{
	vm_args_unref(j->args);
	free(j);
}

static void take_off(struct job **list, const struct job *j)
{
	while (*list != j)
		list = &(*list)->next;
	*list = j->next;
}

/*
 * With the lock held: whether a call about this machine was given up and may still happen. Nothing else is
 * done to the machine before it has: it could undo, or be done on top of, what comes now.
 */
static bool hangs_about(const struct sbx_vm *vm, const char *id)
{
	for (const struct job *j = vm->running; id[0] && j; j = j->next)
		if (j->is_abandoned && strcmp(j->args->id, id) == 0)
			return true;
	return false;
}

static void *pool_thread(void *arg)
{
	struct sbx_vm *vm = arg;
	virConnectPtr conn = NULL;

	pthread_mutex_lock(&vm->lock);
	for (;;) {
		struct job *j = vm->first;
		bool is_wanted;

		if (!j && vm->stop)
			break;
		if (!j) {
			vm->idle++;
			pthread_cond_wait(&vm->work, &vm->lock);
			vm->idle--;
			continue;
		}
		vm->first = j->next;
		if (!vm->first)
			vm->last = &vm->first;
		is_wanted = !j->is_abandoned;
		j->next = vm->running;
		vm->running = j;
		pthread_mutex_unlock(&vm->lock);
		if (is_wanted)
			run(vm, &conn, j);
		pthread_mutex_lock(&vm->lock);
		take_off(&vm->running, j);
		j->is_done = true;
		if (j->is_abandoned)
			job_free(j);
		else
			pthread_cond_broadcast(&vm->changed);
	}
	pthread_mutex_unlock(&vm->lock);
	if (conn)
		virConnectClose(conn);
	pthread_mutex_lock(&vm->lock);
	vm->threads--;
	pthread_cond_broadcast(&vm->changed);
	pthread_mutex_unlock(&vm->lock);
	return NULL;
}

/* With the lock held: there is a thread for the job just queued, as far as the limit allows. */
static void pool_grow(struct sbx_vm *vm)
{
	pthread_t thread;

	if (vm->idle == 0 && vm->threads < vm->conf.threads && pthread_create(&thread, NULL, pool_thread, vm) == 0) {
		pthread_detach(thread);
		vm->threads++;
	}
	pthread_cond_signal(&vm->work);
}

static void deadline_in(struct timespec *ts, int ms)
{
	clock_gettime(CLOCK_MONOTONIC, ts);
	ts->tv_sec += ms / 1000;
	ts->tv_nsec += (long)(ms % 1000) * 1000000;
	if (ts->tv_nsec >= 1000000000) {
		ts->tv_sec++;
		ts->tv_nsec -= 1000000000;
	}
}

int vm_call(struct sbx_vm *vm, vm_call_fn fn, struct vm_args *a, int timeout_ms, struct sbx_err *err)
{
	struct job *j = a ? calloc(1, sizeof(*j)) : NULL;
	struct timespec until;
	int rc;

	if (!j)
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	deadline_in(&until, timeout_ms);
	j->fn = fn;
	j->args = a;
	pthread_mutex_lock(&vm->lock);
	if (hangs_about(vm, a->id)) {
		pthread_mutex_unlock(&vm->lock);
		free(j);
		return SBX_FAIL(
			err, SBX_E_UNAVAILABLE, "libvirt has not answered an earlier call about this machine yet");
	}
	atomic_fetch_add(&a->refs, 1);
	*vm->last = j;
	vm->last = &j->next;
	pool_grow(vm);
	while (!j->is_done && pthread_cond_timedwait(&vm->changed, &vm->lock, &until) != ETIMEDOUT)
		;
	if (!j->is_done) {
		j->is_abandoned = true;
		atomic_store(&a->is_abandoned, true);
		pthread_mutex_unlock(&vm->lock);
		return SBX_FAIL(err, SBX_E_TIMEOUT, "libvirt did not answer within %d s", timeout_ms / 1000);
	}
	pthread_mutex_unlock(&vm->lock);
	rc = j->rc;
	if (rc < 0)
		vm_pass(err, &j->err);
	job_free(j);
	return rc;
}

uint64_t sbx_vm_connections(struct sbx_vm *vm)
{
	uint64_t n;

	pthread_mutex_lock(&vm->lock);
	n = vm->connections;
	pthread_mutex_unlock(&vm->lock);
	return n;
}

static bool own_conf(struct sbx_vm *vm)
{
	const char **at[] = { &vm->conf.uri, &vm->conf.instance, &vm->conf.instance_id, &vm->conf.volume_dir,
		&vm->conf.log_dir };

	for (size_t i = 0; i < SBX_ARRAY_LEN(at); i++) {
		vm->owned[i] = strdup(*at[i]);
		if (!vm->owned[i])
			return false;
		*at[i] = vm->owned[i];
	}
	return true;
}

/* gcc 12 loses what a loop stored in an array, and calls it a leak. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
struct sbx_vm *sbx_vm_new(const struct sbx_vm_conf *conf, sbx_vm_stopped_fn on_stopped, void *arg, struct sbx_err *err)
{
	struct sbx_vm *vm = calloc(1, sizeof(*vm));
	pthread_condattr_t monotonic;

	pthread_once(&library_once, library_start);
	if (vm)
		vm->conf = *conf;
	if (!vm || !own_conf(vm) || !library_ok) {
		for (size_t i = 0; vm && i < SBX_ARRAY_LEN(vm->owned); i++)
			free(vm->owned[i]);
		free(vm);
		SBX_FAIL(err, SBX_E_INTERNAL, "libvirt's client library could not be started");
		return NULL;
	}
	vm->on_stopped = on_stopped;
	vm->arg = arg;
	vm->last = &vm->first;
	pthread_mutex_init(&vm->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&vm->work, NULL);
	pthread_cond_init(&vm->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	return vm;
}
#pragma GCC diagnostic pop

static pthread_mutex_t retired_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sbx_vm *retired_first;

/*
 * Ends the pool. When a call hangs, its thread and what it uses are left to the process's end: there is
 * no safe way to take them away. The event loop may call back for a connection that is being closed,
 * so the object itself is kept too.
 */
void sbx_vm_free(struct sbx_vm *vm)
{
	struct timespec until;
	virConnectPtr conn;

	if (!vm)
		return;
	deadline_in(&until, 2000);
	pthread_mutex_lock(&vm->lock);
	vm->on_stopped = NULL;
	vm->stop = true;
	pthread_cond_broadcast(&vm->work);
	while (vm->threads > 0 && pthread_cond_timedwait(&vm->changed, &vm->lock, &until) != ETIMEDOUT)
		;
	conn = vm->events;
	vm->events = NULL;
	pthread_mutex_unlock(&vm->lock);
	if (conn) {
		virConnectUnregisterCloseCallback(conn, on_close);
		virConnectClose(conn);
	}
	pthread_mutex_lock(&retired_lock);
	vm->retired = retired_first;
	retired_first = vm;
	pthread_mutex_unlock(&retired_lock);
}
