/*
 * The runner: one command. It starts it in a control group of its own, drains what it prints, ends it
 * when its time is over and publishes how it ended.
 *
 * The end is published when the command's own process is gone and every byte that was in the pipes at
 * that moment is on file: all that the process itself printed is among them. What it left running may
 * hold the pipes open; the runner then stays and drains them, and nobody waits for it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/guest.h"
#include "guest/init.h"
#include "sbx/clock.h"
#include "sbx/log.h"

#define SHELL "/bin/bash"
#define ARG_ONE_MAX 131072u /* MAX_ARG_STRLEN: one argument of execve with its NUL */
#define ENV_MAX 8192u
#define CHUNK 65536u
#define UNKILLABLE_MS 5000 /* a process stuck in the kernel: its end is published without it */

struct stream {
	int fd;       /* the pipe; -1 at its end */
	int kept_fd;  /* on tmpfs; -1 when that is full */
	int spill_fd; /* under /work/.sbx */
	bool kept_tried, spill_tried;
	uint64_t kept;
	const char *name;
};

struct run {
	const char *id;
	int dir;
	char cgroup[128];
	struct run_state *state;
	struct stream stream[2];
	/* the request */
	char *cmd;
	const char *cwd;
	char *env[ENV_MAX + 8];
	size_t env_n;
	uint64_t timeout_ms;
	bool background;
	/* how it goes */
	int pidfd;
	pid_t pid;
	bool gone, published, timed_out, killed;
	int64_t deadline_ms, kill_ms;
	uint32_t exit_code;
};

static struct run run;

static void give_up(const char *what)
{
	sbx_log(SBX_LOG_ERROR, "runner.failed", sbx_kv_s("id", run.id), sbx_kv_s("what", what),
		sbx_kv_i("errno", errno));
	_exit(1);
}

static void live_path(const char *suffix, char *path, size_t cap)
{
	snprintf(path, cap, SBX_LIVE_DIR "/%s.%s", run.id, suffix);
}

static void publish(uint32_t flags)
{
	struct run_end end = {
		.magic = RUN_MAGIC,
		.exit_code = run.timed_out ? 124 : run.exit_code,
		.flags = flags | (run.timed_out ? RUN_TIMED_OUT : 0u),
		.end_boot_ms = sbx_boot_ms(),
	};
	char path[128];
	int fd;

	live_path("end", path, sizeof(path));
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	end.duration_ms = (uint64_t)(end.end_boot_ms - run.state->start_boot_ms);
	for (int i = 0; i < 2; i++) {
		end.total[i] = run.state->total[i];
		end.kept[i] = run.stream[i].kept;
	}
	if (fd < 0 || sbx_fd_write_full(fd, &end, sizeof(end)) < 0 || renameat(AT_FDCWD, path, run.dir, "end") < 0)
		give_up("publish");
	close(fd);
	run.published = true;
	for (int i = 0; i < 2; i++) {
		if (run.stream[i].kept_fd >= 0)
			close(run.stream[i].kept_fd);
		run.stream[i].kept_fd = -1;
	}
	live_path("run", path, sizeof(path));
	unlink(path);
	if (strlen(run.cmd) >= ARG_ONE_MAX) {
		live_path("cmd", path, sizeof(path));
		unlink(path);
	}
}

static char *load_request(size_t *ret_n)
{
	static struct sbx_buf b; /* for the life of the process */
	char path[128];

	sbx_buf_init(&b, SBX_EXEC_REQUEST_MAX + 1);
	live_path("req", path, sizeof(path));
	if (sbx_fd_slurp(path, &b, NULL) < 0)
		give_up("request");
	unlink(path);
	*ret_n = b.n;
	return b.p;
}

/* The request was checked by boxd. Each text is shifted over its frame's head, to make room for a NUL. */
static void read_request(char *base, size_t n)
{
	struct sbx_str in = { base, n };
	struct sbx_frame f;

	while (sbx_frame_take(&in, SBX_EXEC_FRAME_MAX, &f) == 1) {
		char *z = base + (f.data.p - base);

		if (f.type == SBX_WIRE_TIMEOUT_MS)
			(void)!sbx_frame_u64(&f, &run.timeout_ms);
		else if (f.type == SBX_WIRE_BACKGROUND)
			run.background = true;
		memmove(z - 1, z, f.data.n);
		z[f.data.n - 1] = '\0';
		if (f.type == SBX_WIRE_CMD)
			run.cmd = z - 1;
		else if (f.type == SBX_WIRE_CWD)
			run.cwd = z - 1;
		else if (f.type == SBX_WIRE_ENV && run.env_n < ENV_MAX)
			run.env[run.env_n++] = z - 1;
	}
	if (!run.cmd)
		give_up("request");
	if (!run.background && run.timeout_ms == 0)
		run.timeout_ms = SBX_EXEC_TIMEOUT_MAX_S * 1000u;
}

static bool env_has(const char *name, size_t n)
{
	for (size_t i = 0; i < run.env_n; i++) {
		if (strncmp(run.env[i], name, n) == 0 && run.env[i][n] == '=')
			return true;
	}
	return false;
}

static void fill_env(void)
{
	static char standard[][80] = {
		"HOME=/root",
		"USER=root",
		"LOGNAME=root",
		"SHELL=" SHELL,
		"LANG=C.UTF-8",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	};

	for (size_t i = 0; i < SBX_ARRAY_LEN(standard); i++) {
		if (!env_has(standard[i], (size_t)(strchr(standard[i], '=') - standard[i])))
			run.env[run.env_n++] = standard[i];
	}
	run.env[run.env_n] = NULL;
}

static void child_say(const char *what, const char *about)
{
	int sys = errno;

	dprintf(STDERR_FILENO, "sbx: %s %s: %s\n", what, about, strerrordesc_np(sys));
	_exit(sys == ENOENT ? 127 : 126);
}

static void child_exec(int out, int err)
{
	char long_cmd[160];
	char *argv[] = { (char[]){ SHELL }, (char[]){ "-c" }, NULL, NULL };
	const char *cwd = run.cwd && *run.cwd ? run.cwd : SBX_WORK;
	int null = open("/dev/null", O_RDONLY);

	argv[2] = run.cmd;
	setsid();
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
		_exit(126);
	close_range(STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC);
	put_file("/proc/self/oom_score_adj", "0");
	signal(SIGPIPE, SIG_DFL); /* the only one that is not */
	umask(022);
	if ((cwd[0] != '/' && chdir(SBX_WORK) < 0) || chdir(cwd) < 0)
		child_say("cannot enter", cwd);
	/*
	 * One argument cannot be longer. bash reads a longer command from the file instead: eval takes the
	 * whole text as -c does, and standard input stays as it is.
	 */
	if (strlen(run.cmd) >= ARG_ONE_MAX) {
		snprintf(long_cmd, sizeof(long_cmd), "eval \"$(<" SBX_LIVE_DIR "/%s.cmd)\"", run.id);
		argv[2] = long_cmd;
	}
	execve(SHELL, argv, run.env);
	child_say("cannot run", SHELL);
}

static int write_long_command(void)
{
	char path[128];
	int fd, rc;

	if (strlen(run.cmd) < ARG_ONE_MAX)
		return 0;
	live_path("cmd", path, sizeof(path));
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -1;
	rc = sbx_fd_write_full(fd, run.cmd, strlen(run.cmd));
	close(fd);
	return rc;
}

static void start(void)
{
	int out[2], err[2], group;

	if (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0 || write_long_command() < 0) {
		run.exit_code = 126;
		publish(RUN_REFUSED);
		_exit(0);
	}
	group = cgroup_open(run.cgroup);
	run.pid = clone_into(group, &run.pidfd);
	if (run.pid == 0)
		child_exec(out[1], err[1]);
	if (run.pid < 0) {
		publish(RUN_REFUSED);
		rmdir(run.cgroup);
		_exit(0);
	}
	close(group);
	close(out[1]);
	close(err[1]);
	run.stream[0].fd = out[0];
	run.stream[1].fd = err[0];
}

/*
 * The whole output of a command that prints much, where the next command can read it. The user owns
 * that place: a link, a FIFO or a full disk there must cost the command nothing.
 */
static int open_spill(const char *name)
{
	char file[SBX_EXEC_ID_LEN + 8];
	sbx_auto_close int work = open(SBX_WORK, O_PATH | O_DIRECTORY | O_CLOEXEC);
	sbx_auto_close int dir = -1;

	if (work < 0)
		return -1;
	mkdirat(work, SBX_LOG_DIR, 0755);
	dir = openat(work, SBX_LOG_DIR, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0)
		return -1;
	snprintf(file, sizeof(file), "%s.%s", run.id, name);
	unlinkat(dir, file, 0);
	return openat(dir, file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND | O_CLOEXEC, 0644);
}

static void spill(struct stream *s, const char *p, size_t n)
{
	if (s->spill_fd >= 0 && sbx_fd_write_full(s->spill_fd, p, n) < 0) {
		close(s->spill_fd);
		s->spill_fd = -1;
	}
}

static void begin_spill(struct stream *s)
{
	static char chunk[CHUNK];
	uint64_t at = 0;

	s->spill_tried = true;
	s->spill_fd = open_spill(s->name);
	while (s->spill_fd >= 0 && at < s->kept) {
		ssize_t n = pread(s->kept_fd, chunk, sizeof(chunk), (off_t)at);

		if (n <= 0)
			break;
		spill(s, chunk, (size_t)n);
		at += (uint64_t)n;
	}
}

static void open_kept(struct stream *s)
{
	s->kept_tried = true;
	s->kept_fd = openat(run.dir, s->name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

static void take(struct stream *s, uint64_t *total, const char *p, size_t n)
{
	size_t keep = 0;

	*total += n;
	if (!s->kept_tried)
		open_kept(s);
	if (s->kept_fd >= 0 && s->kept < SBX_EXEC_STREAM_MAX) {
		keep = SBX_EXEC_STREAM_MAX - s->kept < n ? (size_t)(SBX_EXEC_STREAM_MAX - s->kept) : n;
		/* At an offset, so that bytes of a failed write are not kept and counted twice. */
		if (pwrite(s->kept_fd, p, keep, (off_t)s->kept) != (ssize_t)keep)
			keep = 0;
	}
	if (keep < n && !s->spill_tried)
		begin_spill(s);
	s->kept += keep;
	/* A hole would make later bytes look like earlier ones. */
	if (keep < n && s->kept < SBX_EXEC_STREAM_MAX && s->kept_fd >= 0 && !run.published) {
		(void)!ftruncate(s->kept_fd, (off_t)s->kept);
		close(s->kept_fd);
		s->kept_fd = -1;
	}
	spill(s, p, n);
}

/* Reads once, at most max bytes; gives how many. */
static size_t drain(int i, size_t max)
{
	static char chunk[CHUNK];
	struct stream *s = &run.stream[i];
	ssize_t n = read(s->fd, chunk, max < sizeof(chunk) ? max : sizeof(chunk));

	if (n > 0) {
		if (!run.published)
			take(s, &run.state->total[i], chunk, (size_t)n);
		else if (run.background)
			spill(s, chunk, (size_t)n);
		return (size_t)n;
	}
	if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		close(s->fd);
		s->fd = -1;
	}
	return 0;
}

/* The process is gone: what lies in the pipes now is the last that it printed. */
static void finish(void)
{
	for (int i = 0; i < 2; i++) {
		int left = 0;

		if (run.stream[i].fd < 0 || ioctl(run.stream[i].fd, FIONREAD, &left) < 0)
			continue;
		while (left > 0 && run.stream[i].fd >= 0) {
			size_t n = drain(i, (size_t)left);

			if (n == 0)
				break;
			left -= (int)n;
		}
	}
	publish(0);
}

static void reap(void)
{
	int status;

	if (run.gone || waitpid(run.pid, &status, WNOHANG) != run.pid)
		return;
	run.gone = true;
	run.exit_code = WIFEXITED(status) ? (uint32_t)WEXITSTATUS(status) : 128u + (uint32_t)WTERMSIG(status);
	close(run.pidfd);
	run.pidfd = -1;
}

/* Time-out: TERM, the grace, KILL. Gives the milliseconds until something is due. */
static int mind_time(void)
{
	int64_t now = sbx_mono_ms();

	if (run.published)
		return -1;
	if (!run.timed_out) {
		if (run.gone || run.deadline_ms < 0)
			return -1;
		if (now < run.deadline_ms)
			return sbx_ms_left(run.deadline_ms);
		run.timed_out = true;
		run.kill_ms = now + SBX_GRACE_MS;
		cgroup_signal(run.cgroup, SIGTERM);
	}
	if (!run.killed && now >= run.kill_ms) {
		run.killed = true;
		cgroup_kill(run.cgroup);
	}
	return 50;
}

static bool is_over(void)
{
	if (run.published)
		return false;
	if (!run.timed_out)
		return run.gone;
	if (run.gone && !cgroup_populated(run.cgroup))
		return true;
	return run.killed && sbx_mono_ms() > run.kill_ms + UNKILLABLE_MS;
}

static void loop(void)
{
	while (!run.published || run.stream[0].fd >= 0 || run.stream[1].fd >= 0) {
		struct pollfd p[3] = {
			{ .fd = run.stream[0].fd, .events = POLLIN },
			{ .fd = run.stream[1].fd, .events = POLLIN },
			{ .fd = run.pidfd, .events = POLLIN },
		};
		int n = poll(p, SBX_ARRAY_LEN(p), mind_time());

		if (n > 0) {
			for (int i = 0; i < 2; i++) {
				if (p[i].revents)
					drain(i, CHUNK);
			}
		}
		reap();
		if (is_over())
			finish();
	}
}

static void open_state(void)
{
	char path[128];
	int fd;

	live_path("run", path, sizeof(path));
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	/* The lock stays with the descriptor, which stays open: its loss tells boxd that we are gone. */
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || ftruncate(fd, sizeof(*run.state)) < 0)
		give_up("state");
	run.state = mmap(NULL, sizeof(*run.state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (run.state == MAP_FAILED)
		give_up("state");
	*run.state = (struct run_state){
		.magic = RUN_MAGIC,
		.background = run.background,
		.start_boot_ms = sbx_boot_ms(),
	};
	for (int i = 0; i < 2; i++) {
		run.stream[i] = (struct stream){
			.name = i ? "err" : "out",
			.fd = -1,
			.kept_fd = -1,
			.spill_fd = -1,
		};
	}
}

void runner_main(const char *id, char *request, size_t n)
{
	char path[128];

	prctl(PR_SET_NAME, "sbx-runner");
	run.id = id;
	run.pidfd = -1;
	snprintf(path, sizeof(path), SBX_EXEC_DIR "/%s", id);
	run.dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (run.dir < 0)
		give_up("directory");
	cmd_cgroup_path(id, run.cgroup, sizeof(run.cgroup));
	if (n == 0)
		request = load_request(&n);
	read_request(request, n);
	fill_env();
	open_state();
	start();
	run.deadline_ms = run.timeout_ms ? sbx_mono_ms() + (int64_t)run.timeout_ms : -1;
	for (int i = 0; i < 2; i++) {
		(void)!sbx_fd_nonblock(run.stream[i].fd);
		if (run.background) {
			open_kept(&run.stream[i]); /* which tells boxd that it has started */
			begin_spill(&run.stream[i]);
		}
	}
	loop();
	rmdir(run.cgroup);
	_exit(0);
}
