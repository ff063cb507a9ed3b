/*
 * A process that adopts and reaps the orphans below it.
 */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sbx/keeper.h"
#include "sbx/log.h"

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

/* Descendants that outlive argv go on being reaped until there are none: they are what this is for. */
static void reap_rest(const sigset_t *waited)
{
	for (;;) {
		int signal_number;

		if (waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD)
			return;
		if (sigwait(waited, &signal_number) == 0 && signal_number != SIGCHLD)
			return;
	}
}

int sbx_reap_run(char *const argv[])
{
	sigset_t waited, before;
	int status = 0, rc;
	pid_t child;

	sigemptyset(&waited);
	sigaddset(&waited, SIGCHLD);
	sigaddset(&waited, SIGTERM);
	sigaddset(&waited, SIGINT);
	sigprocmask(SIG_BLOCK, &waited, &before);
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	rc = spawn(argv, &before, &child);
	if (rc != 0) {
		struct sbx_err err = SBX_ERR_INIT;

		sbx_err_sys(&err, SBX_E_INVALID, rc, __func__, "Cannot run %s", argv[0]);
		sbx_log_err(SBX_LOG_ERROR, "reap.spawn", &err, SBX_KV_NONE);
		return 127;
	}
	while (!reap(child, &status)) {
		int signal_number;

		if (sigwait(&waited, &signal_number) == 0 && signal_number != SIGCHLD)
			kill(child, signal_number);
	}
	reap_rest(&waited);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
