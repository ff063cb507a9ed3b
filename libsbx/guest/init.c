/*
 * Process 1 of a box: boots it (init_boot.c), then reaps orphans and keeps the spawner, boxd and the
 * services of the image running. It never ends; the host destroys the machine. SIGTERM, SIGUSR1 and
 * SIGUSR2 power it off, SIGINT starts it again.
 */
#include "guest/init.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guest/guest.h"
#include "sbx/clock.h"
#include "sbx/log.h"

#define SERVICES "/etc/sbx/services"
#define TASKS_MAX 20
#define BACKOFF_MIN_MS 100
#define BACKOFF_MAX_MS 5000
#define LIVED_MS 10000 /* a task that lived so long starts again at once */
#define READY_FD 3
#define STOP_GRACE_MS 3000
#define SERVICES_AFTER_MS 700 /* the first command comes with the first answer, and is waited for */

struct task {
	char name[32];
	const char *command; /* a service: for `sh -c`; NULL: one of ours */
	void (*run)(void);
	bool once;
	pid_t pid;
	int64_t started_ms, due_ms;
	int backoff_ms;
};

static struct task task[TASKS_MAX];
static size_t task_n;
static int ready_pipe[2] = { -1, -1 };
static struct sbx_buf services_text; /* commands point into it */

static void exec_boxd(void)
{
	char *argv[] = { (char[]){ SBX_BOXD }, NULL };
	char *env[] = { (char[]){ SBX_READY_ENV "=3" }, (char[]){ "PATH=/usr/sbin:/usr/bin:/sbin:/bin" }, NULL };

	cgroup_enter(SBX_CGROUPS "/sbx");
	if (dup2(ready_pipe[1], READY_FD) == READY_FD)
		close_range(READY_FD + 1, ~0u, CLOSE_RANGE_CLOEXEC);
	execve(SBX_BOXD, argv, env);
	_exit(127);
}

static void exec_service(const struct task *t)
{
	char path[128], line[1200];
	char *argv[] = { (char[]){ "/bin/sh" }, (char[]){ "-c" }, line, NULL };
	char *env[] = { (char[]){ "HOME=/root" }, (char[]){ "LANG=C.UTF-8" },
		(char[]){ "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" }, NULL };
	struct rlimit files = { 1048576, 1048576 };
	int log, null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	snprintf(path, sizeof(path), SBX_CGROUPS "/svc/%s", t->name);
	cgroup_enter(path);
	put_file("/proc/self/oom_score_adj", "-500");
	setrlimit(RLIMIT_NOFILE, &files);
	/* Emptied at each start: bounded by how much one run says. */
	snprintf(path, sizeof(path), "/var/log/%s.log", t->name);
	log = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0640);
	dup2(null, STDIN_FILENO);
	dup2(log >= 0 ? log : null, STDOUT_FILENO);
	dup2(log >= 0 ? log : null, STDERR_FILENO);
	(void)!chdir("/");
	snprintf(line, sizeof(line), "exec %s", t->command);
	execve("/bin/sh", argv, env);
	_exit(127);
}

static void start_task(struct task *t)
{
	pid_t pid = fork();

	if (pid == 0) {
		child_reset_signals();
		setsid();
		if (t->command)
			exec_service(t);
		t->run();
		_exit(127);
	}
	t->started_ms = sbx_mono_ms();
	t->pid = pid;
	if (pid < 0)
		t->due_ms = t->started_ms + BACKOFF_MIN_MS;
}

static struct task *add_task(struct sbx_str name)
{
	struct task *t = &task[task_n];

	if (task_n == TASKS_MAX || !sbx_str_copyz(name, t->name, sizeof(t->name)))
		return NULL;
	task_n++;
	return t;
}

static void task_ended(struct task *t, int status)
{
	int64_t now = sbx_mono_ms();
	bool lived = now - t->started_ms >= LIVED_MS;

	t->pid = 0;
	if (t->once)
		return;
	/* The first start again is at once: whoever kills boxd should not wait for it. */
	t->due_ms = now + (lived ? 0 : t->backoff_ms);
	if (lived)
		t->backoff_ms = 0;
	else
		t->backoff_ms = t->backoff_ms ? t->backoff_ms * 2 : BACKOFF_MIN_MS;
	if (t->backoff_ms > BACKOFF_MAX_MS)
		t->backoff_ms = BACKOFF_MAX_MS;
	sbx_log(SBX_LOG_WARN, "init.ended", sbx_kv_s("task", t->name), sbx_kv_i("status", status));
}

static void reap_all(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (size_t i = 0; i < task_n; i++) {
			if (task[i].pid == pid)
				task_ended(&task[i], status);
		}
	}
}

/* Starts what is due; gives the milliseconds until the next. */
static int start_due(void)
{
	int wait = -1;

	for (size_t i = 0; i < task_n; i++) {
		struct task *t = &task[i];
		int left;

		if (t->pid > 0 || (t->once && t->started_ms))
			continue;
		left = sbx_ms_left(t->due_ms);
		if (left == 0)
			start_task(t);
		if (t->pid <= 0 && (wait < 0 || left < wait))
			wait = left ? left : BACKOFF_MIN_MS;
	}
	return wait;
}

/* Lines of SERVICES: NAME COMMAND; a "-" before the name: once only. */
static void add_services(void)
{
	struct sbx_str rest, line;

	sbx_buf_init(&services_text, 65536);
	if (sbx_fd_slurp(SERVICES, &services_text, NULL) < 0)
		return;
	rest = sbx_buf_str(&services_text);
	while (sbx_str_split(&rest, '\n', &line)) {
		struct sbx_str name;
		struct task *t;
		bool once;

		line = sbx_str_trim(line);
		if (line.n == 0 || line.p[0] == '#')
			continue;
		once = line.p[0] == '-';
		if (once)
			line = sbx_str_trim((struct sbx_str){ line.p + 1, line.n - 1 });
		if (!sbx_str_split(&line, ' ', &name) || line.n == 0 || !(t = add_task(name)))
			continue;
		services_text.p[line.p + line.n - services_text.p] = '\0';
		t->command = line.p;
		t->once = once;
		t->due_ms = sbx_mono_ms() + SERVICES_AFTER_MS;
	}
}

/* The rest of what a system has, once boxd answers: nobody waits for these. */
static void on_ready(void)
{
	struct task *t = add_task(SBX_STR("modules"));

	close(ready_pipe[0]);
	ready_pipe[0] = -1;
	if (t) {
		t->command = "modprobe -qab virtio_rng virtio_balloon";
		t->once = true;
		t->due_ms = sbx_mono_ms() + SERVICES_AFTER_MS;
	}
	add_services();
}

static void stop_all(int how)
{
	int64_t deadline = sbx_mono_ms() + STOP_GRACE_MS;

	sbx_log(SBX_LOG_INFO, "init.stop", SBX_KV_NONE);
	kill(-1, SIGTERM);
	while (sbx_ms_left(deadline) > 0 && (waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD))
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	kill(-1, SIGKILL);
	sync();
	mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL);
	reboot(how);
}

static void loop_up(void)
{
	sbx_auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = { .ifr_name = "lo" };

	if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &r) < 0)
		return;
	r.ifr_flags = (short)(r.ifr_flags | IFF_UP);
	ioctl(fd, SIOCSIFFLAGS, &r);
}

static int open_signals(void)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	return signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void on_signals(int fd)
{
	struct signalfd_siginfo si;

	while (read(fd, &si, sizeof(si)) == sizeof(si)) {
		if (si.ssi_signo == SIGINT)
			stop_all(RB_AUTOBOOT);
		else if (si.ssi_signo == SIGTERM || si.ssi_signo == SIGUSR1 || si.ssi_signo == SIGUSR2)
			stop_all(RB_POWER_OFF);
	}
}

static void supervise(int signals)
{
	for (;;) {
		struct pollfd p[2] = {
			{ .fd = signals, .events = POLLIN },
			{ .fd = ready_pipe[0], .events = POLLIN },
		};

		if (poll(p, SBX_ARRAY_LEN(p), start_due()) > 0 && p[1].revents)
			on_ready();
		if (p[0].revents)
			on_signals(signals);
		reap_all();
	}
}

int main(void)
{
	struct task *t;
	int signals;

	if (getpid() != 1) {
		dprintf(STDERR_FILENO, "init: only as process 1 of a box\n");
		return 2;
	}
	umask(022);
	sbx_log_open("init");
	signals = open_signals();
	init_boot();
	reboot(RB_DISABLE_CAD);
	put_file("/proc/self/oom_score_adj", "-1000");
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 1024, 1048576 });
	setrlimit(RLIMIT_NPROC, &(struct rlimit){ RLIM_INFINITY, RLIM_INFINITY });
	cgroup_setup();
	loop_up();
	if (signals < 0 || pipe2(ready_pipe, O_CLOEXEC) < 0)
		init_fatal("pipe");
	t = add_task(SBX_STR("spawner"));
	if (t)
		t->run = spawner_main;
	t = add_task(SBX_STR("boxd"));
	if (t)
		t->run = exec_boxd;
	supervise(signals);
}
