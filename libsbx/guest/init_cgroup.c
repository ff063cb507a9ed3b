/*
 * Control groups (version 2): sbx for ourselves, which is never starved; cmd/ID for commands; svc/NAME
 * for services.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "guest/guest.h"
#include "guest/init.h"

#define RESERVED_BYTES (40ull << 20) /* commands leave so much memory to us and the kernel */

int put_file(const char *path, const char *text)
{
	sbx_auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -1 : sbx_fd_write_full(fd, text, strlen(text));
}

static int get_file(const char *path, char *z, size_t cap)
{
	sbx_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : sbx_fd_read_full(fd, z, cap - 1);

	if (n < 0)
		return -1;
	z[n] = '\0';
	return 0;
}

/* A fork bomb, and a command that eats all memory, must leave room for boxd to answer and end them. */
static void limit_commands(void)
{
	char text[32];
	struct sysinfo si;
	int64_t threads = 0;

	if (get_file("/proc/sys/kernel/threads-max", text, sizeof(text)) == 0 &&
		sbx_str_i64(sbx_str_trim(sbx_str_of(text)), 1, INT32_MAX, &threads)) {
		snprintf(text, sizeof(text), "%lld", (long long)(threads / 4 * 3));
		put_file(SBX_CMD_CGROUPS "/pids.max", text);
	}
	if (sysinfo(&si) == 0) {
		unsigned long long total = (unsigned long long)si.totalram * si.mem_unit;

		if (total > 2 * RESERVED_BYTES) {
			snprintf(text, sizeof(text), "%llu", total - RESERVED_BYTES);
			put_file(SBX_CMD_CGROUPS "/memory.max", text);
		}
	}
}

void cgroup_setup(void)
{
	static const char *const controllers[] = { "+cpu", "+memory", "+pids", "+io" };

	for (size_t i = 0; i < SBX_ARRAY_LEN(controllers); i++)
		put_file(SBX_CGROUPS "/cgroup.subtree_control", controllers[i]);
	mkdir(SBX_CGROUPS "/sbx", 0755);
	mkdir(SBX_CMD_CGROUPS, 0755);
	mkdir(SBX_CGROUPS "/svc", 0755);
	put_file(SBX_CGROUPS "/sbx/cpu.weight", "2000");
	put_file(SBX_CGROUPS "/sbx/memory.min", "33554432");
	put_file(SBX_CGROUPS "/svc/cpu.weight", "50");
	limit_commands();
}

int cgroup_open(const char *path)
{
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return -1;
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void cgroup_enter(const char *path)
{
	char file[160];

	mkdir(path, 0755);
	snprintf(file, sizeof(file), "%s/cgroup.procs", path);
	put_file(file, "0");
}

int cgroup_signal(const char *path, int sig)
{
	sbx_auto_buf struct sbx_buf b;
	struct sbx_str rest, line;
	char file[160];
	int count = 0;

	sbx_buf_init(&b, 1u << 20);
	snprintf(file, sizeof(file), "%s/cgroup.procs", path);
	if (sbx_fd_slurp(file, &b, NULL) < 0)
		return 0;
	rest = sbx_buf_str(&b);
	while (sbx_str_split(&rest, '\n', &line)) {
		int64_t pid;

		/* 0 is a process of another pid namespace, and would be all of ours */
		if (!sbx_str_i64(line, 1, INT32_MAX, &pid))
			continue;
		kill((pid_t)pid, sig);
		count++;
	}
	return count;
}

void cgroup_kill(const char *path)
{
	char file[160];

	snprintf(file, sizeof(file), "%s/cgroup.kill", path);
	if (put_file(file, "1") < 0)
		cgroup_signal(path, SIGKILL);
}

bool cgroup_populated(const char *path)
{
	char file[160], text[128];

	snprintf(file, sizeof(file), "%s/cgroup.events", path);
	return get_file(file, text, sizeof(text)) == 0 && strstr(text, "populated 1") != NULL;
}

/* fork(), into a control group at once where the kernel can: moving the child later costs three times as much. */
pid_t clone_into(int cgroup_fd, int *ret_pidfd)
{
	int pidfd = -1;
	struct clone_args args = {
		.flags = CLONE_PIDFD | (cgroup_fd >= 0 ? CLONE_INTO_CGROUP : 0),
		.pidfd = (uint64_t)(uintptr_t)&pidfd,
		.exit_signal = SIGCHLD,
		.cgroup = cgroup_fd >= 0 ? (uint64_t)cgroup_fd : 0,
	};
	pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

	if (pid > 0)
		*ret_pidfd = pidfd;
	return pid;
}

void child_reset_signals(void)
{
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}
