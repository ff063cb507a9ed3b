/*
 * sbx-worker: answers the internet, behind nginx. The parent binds the FastCGI socket and keeps N
 * processes alive; each serves with M threads and holds no state, so any may be killed at any time.
 * SIGTERM drains: no new calls, those under way get time to end.
 */
#include <curl/curl.h>
#include <errno.h>
#include <fcgiapp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sbx/clock.h"
#include "sbx/exchange.h"
#include "sbx/log.h"
#include "sbx/serve.h"

#define RESPAWN_MS 1000 /* a process that dies sooner than that is started again only after it */

static int open_socket(const char *path, struct sbx_err *err)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || !sbx_str_copyz(sbx_str_of(path), a.sun_path, sizeof(a.sun_path)))
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot make the socket %s", path);
	/* A new worker takes over the name; an old one that drains still serves what it has accepted. */
	unlink(path);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || chmod(path, 0660) < 0 || listen(fd, 1024) < 0) {
		SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot listen on %s", path);
		close(fd);
		return -1;
	}
	return fd;
}

/* The database connection string with the worker's role. */
static char *conninfo_of(const struct sbx_conf *conf)
{
	struct sbx_buf b;

	sbx_buf_init(&b, 2000);
	sbx_buf_addf(&b, "%s user=sbx_worker", conf->db);
	return b.p;
}

static int serve(const struct sbx_conf *conf, int listen_fd, int stop_fd, struct sbx_err *err)
{
	struct sbx_app app = { .conf = conf };
	char *conninfo = conninfo_of(conf);
	int rc = -1;

	curl_global_init(CURL_GLOBAL_DEFAULT);
	FCGX_Init();
	signal(SIGPIPE, SIG_IGN); /* FCGX_Init() set handlers of its own */
	app.keys = sbx_keyring_open(conf->master_key_file, err);
	app.pool = conninfo ? sbx_db_pool_new(conninfo, "sbx-worker", (int)conf->db_connections) : NULL;
	if (app.keys && !app.pool)
		SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	if (app.keys && app.pool && sbx_route_init(conf, err) == 0)
		rc = sbx_serve(&app, conninfo, listen_fd, stop_fd, err);
	sbx_db_pool_free(app.pool);
	sbx_keyring_free(app.keys);
	free(conninfo);
	curl_global_cleanup();
	return rc;
}

static int child_main(const struct sbx_conf *conf, int listen_fd)
{
	struct sbx_err err = SBX_ERR_INIT;
	sigset_t stop;
	int fd;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	sigemptyset(&stop);
	sigaddset(&stop, SIGTERM);
	sigaddset(&stop, SIGINT);
	fd = signalfd(-1, &stop, SFD_CLOEXEC); /* both are blocked since before the fork */
	if (fd >= 0 && serve(conf, listen_fd, fd, &err) == 0)
		return 0;
	sbx_log_err(SBX_LOG_ERROR, "worker.failed", &err, SBX_KV_NONE);
	return 1;
}

struct child {
	pid_t pid;
	int64_t started_ms;
};

static void start(struct child *c, const struct sbx_conf *conf, int listen_fd)
{
	c->started_ms = sbx_mono_ms();
	c->pid = fork();
	if (c->pid == 0)
		exit(child_main(conf, listen_fd));
	if (c->pid < 0)
		sbx_log(SBX_LOG_ERROR, "fork.failed", sbx_kv_i("errno", errno));
}

/* Waits for dead children; those that die at once are started again after a pause, not in a spin. */
static void reap(struct child *children, int64_t n)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (int64_t i = 0; i < n; i++)
			if (children[i].pid == pid) {
				sbx_log(SBX_LOG_WARN, "process.ended", sbx_kv_i("pid", pid),
					sbx_kv_i("status", status));
				children[i].pid = 0;
			}
}

static void supervise(const struct sbx_conf *conf, int listen_fd, const sigset_t *signals)
{
	const int64_t n = conf->worker_processes;
	struct child *children = calloc((size_t)n, sizeof(*children));
	struct timespec pause = { .tv_nsec = 200 * 1000 * 1000 };
	int got = 0;

	while (children && got != SIGTERM && got != SIGINT) {
		reap(children, n);
		for (int64_t i = 0; i < n; i++)
			if (children[i].pid <= 0 &&
				(!children[i].started_ms || sbx_mono_ms() - children[i].started_ms > RESPAWN_MS))
				start(&children[i], conf, listen_fd);
		got = sigtimedwait(signals, NULL, &pause);
	}
	for (int64_t i = 0; children && i < n; i++)
		if (children[i].pid > 0)
			kill(children[i].pid, SIGTERM);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		continue;
	free(children);
}

int main(void)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_conf *conf;
	sigset_t signals;
	int fd;

	sbx_log_open("sbx-worker");
	conf = sbx_conf_load(&err);
	fd = conf ? open_socket(conf->worker_socket, &err) : -1;
	if (fd < 0) {
		sbx_log_err(SBX_LOG_ERROR, "start.failed", &err, SBX_KV_NONE);
		return 1;
	}
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGCHLD);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	sbx_log(SBX_LOG_INFO, "started", sbx_kv_s("socket", conf->worker_socket),
		sbx_kv_i("processes", conf->worker_processes), sbx_kv_i("threads", conf->worker_threads));
	supervise(conf, fd, &signals);
	close(fd);
	sbx_conf_free(conf);
	return 0;
}
