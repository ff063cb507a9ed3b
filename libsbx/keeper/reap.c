/*
 * A process that adopts and reaps the orphans below it, and keeps one command running. The orphans (QEMU
 * of libvirt) outlive the command: were this process to end with it, nobody would reap them in time.
 */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sbx/clock.h"
#include "sbx/keeper.h"
#include "sbx/log.h"

#define RESTART_MS 1000

extern char **environ;

/* Reaps whatever has ended; true when child was among it, its wait status in *status. */
static bool reap(pid_t child, int *status)
{
	bool is_over = false;
	int st;
	pid_t pid;

	while ((pid = waitpid(-1, &st, WNOHANG)) > 0 || (pid < 0 && errno == EINTR))
		if (pid == child) {
			*status = st;
			is_over = true;
		}
	return is_over;
}

static int spawn(char *const argv[], const sigset_t *mask, pid_t *ret)
{
	posix_spawnattr_t attr;
	sigset_t defaults;
	int rc;

	sigemptyset(&defaults);
	sigaddset(&defaults, SIGPIPE);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, mask);
	posix_spawnattr_setsigdefault(&attr, &defaults);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	rc = posix_spawnp(ret, argv[0], NULL, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	return rc;
}

/*
 * Waits for child, reaping whatever else ends; signals to end are passed on to it and remembered. Gives
 * its wait status.
 */
static int attend(pid_t child, const sigset_t *waited, bool *stopping)
{
	int status = 0, signal_number;

	while (!reap(child, &status)) {
		if (sigwait(waited, &signal_number) != 0 || signal_number == SIGCHLD)
			continue;
		*stopping = true;
		kill(child, signal_number);
	}
	return status;
}

/* The pause before argv runs again; orphans are reaped in it too. True when it is to stop instead. */
static bool pause_stopped(const sigset_t *waited)
{
	const int64_t end = sbx_mono_ms() + RESTART_MS;

	for (int left; (left = sbx_ms_left(end)) > 0;) {
		struct timespec t = { .tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000L };
		int signal_number = sigtimedwait(waited, NULL, &t);
		int ignored;

		reap(-1, &ignored);
		if (signal_number == SIGTERM || signal_number == SIGINT)
			return true;
	}
	return false;
}

int sbx_reap_run(char *const argv[])
{
	sigset_t waited, before;
	bool stopping = false;
	int status = 0, rc;
	pid_t child;

	sigemptyset(&waited);
	sigaddset(&waited, SIGCHLD);
	sigaddset(&waited, SIGTERM);
	sigaddset(&waited, SIGINT);
	sigprocmask(SIG_BLOCK, &waited, &before);
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	while (!stopping) {
		rc = spawn(argv, &before, &child);
		if (rc != 0) {
			struct sbx_err err = SBX_ERR_INIT;

			sbx_err_sys(&err, SBX_E_INVALID, rc, __func__, "Cannot run %s", argv[0]);
			sbx_log_err(SBX_LOG_ERROR, "reap.spawn", &err, SBX_KV_NONE);
			return 127;
		}
		status = attend(child, &waited, &stopping);
		if (!stopping) {
			sbx_log(SBX_LOG_WARN, "reap.ended", sbx_kv_s("command", argv[0]), sbx_kv_i("status", status));
			stopping = pause_stopped(&waited);
		}
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
