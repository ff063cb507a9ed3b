/*
 * The spawner: forks a runner for each command that boxd asks for. Small and with one thread, so the
 * fork costs little; apart from boxd, so commands outlive it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "guest/guest.h"
#include "guest/init.h"
#include "sbx/clock.h"
#include "sbx/log.h"

#define PEERS 4 /* boxd, and the one it replaces */

void cmd_cgroup_path(const char *id, char *path, size_t cap)
{
	snprintf(path, cap, SBX_CMD_CGROUPS "/%s", id);
}

static int listen_here(void)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX, .sun_path = SBX_SPAWN_SOCKET };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	unlink(SBX_SPAWN_SOCKET);
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, PEERS) < 0)
		return -1;
	return fd;
}

/* No process can be made: said as the command's end, which is where its caller looks. */
static void refuse(const char *id)
{
	struct run_end end = { .magic = RUN_MAGIC, .exit_code = 126, .flags = RUN_REFUSED };
	char path[128];

	end.end_boot_ms = sbx_boot_ms();
	snprintf(path, sizeof(path), SBX_EXEC_DIR "/%s/end", id);
	(void)!sbx_fd_replace(path, (struct sbx_str){ (const char *)&end, sizeof(end) }, 0600, false, NULL);
}

/* A datagram; the NUL of the last frame's text goes behind it. */
static struct {
	struct spawn_msg m;
	char request[SPAWN_INLINE_MAX + 1];
} in;

static void serve(size_t request_n)
{
	const struct spawn_msg *m = &in.m;
	pid_t pid;

	if (!sbx_exec_id_ok(sbx_str_of(m->id)) || (m->verb != SPAWN_RUN && m->verb != SPAWN_KILL))
		return;
	pid = fork();
	if (pid < 0 && m->verb == SPAWN_RUN)
		refuse(m->id);
	if (pid != 0)
		return;
	close_range(STDERR_FILENO + 1, ~0u, 0);
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	if (m->verb == SPAWN_KILL)
		killer_main(m->id);
	runner_main(m->id, in.request, request_n);
}

static bool receive(int fd)
{
	ssize_t n = recv(fd, &in, sizeof(in) - 1, MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n >= (ssize_t)sizeof(in.m) && in.m.id[SBX_EXEC_ID_LEN] == '\0')
		serve((size_t)n - sizeof(in.m));
	return n > 0;
}

void spawner_main(void)
{
	struct pollfd p[1 + PEERS];
	nfds_t n = 1;

	prctl(PR_SET_NAME, "sbx-spawner");
	cgroup_enter(SBX_CGROUPS "/sbx");
	signal(SIGCHLD, SIG_IGN); /* runners are reaped by the kernel */
	setsid();
	p[0] = (struct pollfd){ .fd = listen_here(), .events = POLLIN };
	if (p[0].fd < 0) {
		sbx_log(SBX_LOG_ERROR, "spawner.listen", sbx_kv_i("errno", errno));
		_exit(1);
	}
	for (;;) {
		if (poll(p, n, -1) < 0)
			continue;
		for (nfds_t i = n; i-- > 1;) {
			if (p[i].revents && !receive(p[i].fd)) {
				close(p[i].fd);
				p[i] = p[--n];
			}
		}
		if (p[0].revents) {
			int fd = accept4(p[0].fd, NULL, NULL, SOCK_CLOEXEC);

			if (fd < 0)
				continue;
			if (n == SBX_ARRAY_LEN(p)) {
				close(p[1].fd);
				memmove(&p[1], &p[2], (n - 2) * sizeof(p[0]));
				n--;
			}
			p[n++] = (struct pollfd){ .fd = fd, .events = POLLIN };
		}
	}
}

/* Ends all of a command: TERM, and KILL for what is left after the grace. */
void killer_main(const char *id)
{
	char path[128];
	int64_t deadline = sbx_mono_ms() + SBX_GRACE_MS;
	bool told = false;

	prctl(PR_SET_NAME, "sbx-killer");
	cmd_cgroup_path(id, path, sizeof(path));
	/* A command asked for a moment ago may still be on its way into its group. */
	while (sbx_ms_left(deadline) > 0) {
		if (!told)
			told = cgroup_signal(path, SIGTERM) > 0;
		else if (!cgroup_populated(path))
			_exit(0);
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	}
	cgroup_kill(path);
	_exit(0);
}
