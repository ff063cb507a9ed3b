/*
 * Commands as boxd sees them: directories under SBX_EXEC_DIR (guest.h says what is in them). All state
 * is there; what this file holds in memory is an index for dropping the old ones.
 */
#include "guest/boxd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "sbx/clock.h"
#include "sbx/fd.h"
#include "sbx/log.h"

#define KEPT_MAX 10000u
#define BYTES_PER_KEPT (128u << 10) /* memory of the box for each result that may be kept */
#define UNSTARTED_MS 10000          /* the spawner died before it made a runner */
#define LOST_MS 3000
#define CGROUPS_MS 60000
#define ENV_ONE_MAX 131072u /* MAX_ARG_STRLEN */
#define ENV_ALL_MAX (1536u * 1024u)
#define ENV_COUNT_MAX 4096u
#define FILL_CHUNK 32768u

struct entry {
	char id[SBX_EXEC_ID_LEN + 1];
	bool ended;
	int64_t boot_ms; /* of its end; of its start while it runs */
};

static struct entry *entry;
static size_t entry_n, entry_cap;
static int watch_fd = -1, spawn_fd = -1, root_fd = -1, live_fd = -1;
static size_t kept_max;
static int64_t lost_due_ms, cgroups_due_ms;

static int open_dir(const char *id)
{
	return openat(root_fd, id, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static int read_struct(int dir, const char *name, void *p, size_t n)
{
	sbx_auto_close int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);

	return fd >= 0 && sbx_fd_read_full(fd, p, n) == (ssize_t)n ? 0 : -1;
}

/* A file of SBX_LIVE_DIR. */
static int open_live(const char *id, const char *suffix, int flags)
{
	char name[SBX_EXEC_ID_LEN + 8];

	snprintf(name, sizeof(name), "%s.%s", id, suffix);
	return openat(live_fd, name, flags | O_CLOEXEC, 0600);
}

static bool read_state(const char *id, struct run_state *state)
{
	sbx_auto_close int fd = open_live(id, "run", O_RDONLY);

	return fd >= 0 && sbx_fd_read_full(fd, state, sizeof(*state)) == sizeof(*state);
}

static bool read_end(int dir, struct run_end *end)
{
	return read_struct(dir, "end", end, sizeof(*end)) == 0 && end->magic == RUN_MAGIC;
}

/* ---- the index ---- */

static int index_add(const char *id, bool ended, int64_t boot_ms)
{
	struct entry *e;

	if (entry_n == entry_cap) {
		size_t cap = entry_cap ? 2 * entry_cap : 256, bytes;
		struct entry *p = NULL;

		if (!__builtin_mul_overflow(cap, sizeof(*p), &bytes))
			p = realloc(entry, bytes);
		if (!p)
			return -1;
		entry = p;
		entry_cap = cap;
	}
	e = &entry[entry_n++];
	*e = (struct entry){ .ended = ended, .boot_ms = boot_ms };
	memcpy(e->id, id, sizeof(e->id) - 1);
	return 0;
}

static void remove_files(const char *id)
{
	static const char *const name[] = { "out", "err", "end" };
	static const char *const live[] = { "req", "run", "cmd", "end" };
	char cgroup[128], file[SBX_EXEC_ID_LEN + 8];
	int dir = open_dir(id);

	for (size_t i = 0; dir >= 0 && i < SBX_ARRAY_LEN(name); i++)
		unlinkat(dir, name[i], 0);
	for (size_t i = 0; i < SBX_ARRAY_LEN(live); i++) {
		snprintf(file, sizeof(file), "%s.%s", id, live[i]);
		unlinkat(live_fd, file, 0);
	}
	if (dir >= 0)
		close(dir);
	unlinkat(root_fd, id, AT_REMOVEDIR);
	snprintf(cgroup, sizeof(cgroup), SBX_CMD_CGROUPS "/%s", id);
	rmdir(cgroup);
}

static void index_drop(const char *id)
{
	for (size_t i = 0; i < entry_n; i++) {
		if (strcmp(entry[i].id, id) == 0) {
			memmove(&entry[i], &entry[i + 1], (entry_n - i - 1) * sizeof(*entry));
			entry_n--;
			break;
		}
	}
	remove_files(id);
}

static void note_ends(void)
{
	for (size_t i = 0; i < entry_n; i++) {
		struct run_end end;
		sbx_auto_close int dir = -1;

		if (entry[i].ended)
			continue;
		dir = open_dir(entry[i].id);
		if (dir >= 0 && read_end(dir, &end)) {
			entry[i].ended = true;
			entry[i].boot_ms = end.end_boot_ms;
		}
	}
}

size_t exec_running(void)
{
	size_t n = 0;

	note_ends();
	for (size_t i = 0; i < entry_n; i++)
		n += !entry[i].ended;
	return n;
}

/* Drops the result that ended first; false when there is none. */
static bool drop_oldest(void)
{
	const struct entry *oldest = NULL;
	char id[SBX_EXEC_ID_LEN + 1];

	for (size_t i = 0; i < entry_n; i++) {
		if (entry[i].ended && (!oldest || entry[i].boot_ms < oldest->boot_ms))
			oldest = &entry[i];
	}
	if (!oldest)
		return false;
	memcpy(id, oldest->id, sizeof(id));
	index_drop(id);
	return true;
}

static void set_kept_max(void)
{
	struct sysinfo si;

	kept_max = KEPT_MAX;
	if (sysinfo(&si) == 0 && (uint64_t)si.totalram * si.mem_unit / BYTES_PER_KEPT < kept_max)
		kept_max = (size_t)((uint64_t)si.totalram * si.mem_unit / BYTES_PER_KEPT);
}

/* Room for one more command, and for what those that run may still print. */
static void make_room(size_t request_bytes)
{
	size_t running;
	uint64_t want;
	struct statvfs fs;

	if (entry_n >= kept_max)
		note_ends();
	while (entry_n >= kept_max && drop_oldest())
		;
	if (fstatvfs(root_fd, &fs) < 0)
		return;
	/* Counting who runs costs reads; with this much free there is no need. */
	want = 4 * request_bytes + 4 * SBX_EXEC_STREAM_MAX;
	if ((uint64_t)fs.f_bavail * fs.f_bsize > 2 * want)
		return;
	running = exec_running();
	want += (running < 4 ? running : 4) * 2 * (uint64_t)SBX_EXEC_STREAM_MAX;
	while (fstatvfs(root_fd, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_bsize < want && drop_oldest())
		;
}

/* ---- the request ---- */

struct request {
	struct sbx_str cmd, cwd;
	size_t env_n, env_bytes;
	bool has_cmd, has_cwd, has_timeout, background, has_note;
};

static bool has_nul(struct sbx_str s)
{
	return s.n && memchr(s.p, '\0', s.n) != NULL;
}

static int check_env(struct request *q, struct sbx_str kv, struct sbx_err *err)
{
	const char *eq = kv.n ? memchr(kv.p, '=', kv.n) : NULL;

	q->env_n++;
	q->env_bytes += kv.n + 1 + sizeof(char *);
	if (!eq || eq == kv.p || has_nul(kv))
		return SBX_FAIL(err, SBX_E_INVALID, "An environment entry must be NAME=VALUE without NUL bytes");
	if (kv.n >= ENV_ONE_MAX || q->env_bytes > ENV_ALL_MAX || q->env_n > ENV_COUNT_MAX)
		return SBX_FAIL(err, SBX_E_TOO_LARGE,
			"The environment is too large: at most 128 KiB a variable, "
			"1.5 MiB and %u variables in all",
			ENV_COUNT_MAX);
	return 0;
}

static int once(bool *has, const char *what, struct sbx_err *err)
{
	if (*has)
		return SBX_FAIL(err, SBX_E_MALFORMED, "The request has two frames %s", what);
	*has = true;
	return 0;
}

static int check_frame(struct request *q, const struct sbx_frame *f, struct sbx_err *err)
{
	uint64_t ms;

	switch (f->type) {
	case SBX_WIRE_CMD: q->cmd = f->data; return once(&q->has_cmd, "CMD", err);
	case SBX_WIRE_CWD: q->cwd = f->data; return once(&q->has_cwd, "CWD", err);
	case SBX_WIRE_ENV: return check_env(q, f->data, err);
	case SBX_WIRE_TIMEOUT_MS:
		if (!sbx_frame_u64(f, &ms) || ms == 0 || ms > SBX_EXEC_TIMEOUT_MAX_S * 1000u)
			return SBX_FAIL(
				err, SBX_E_INVALID, "The time-out must be 1 ms to %d s", SBX_EXEC_TIMEOUT_MAX_S);
		return once(&q->has_timeout, "TIMEOUT_MS", err);
	case SBX_WIRE_BACKGROUND: return once(&q->background, "BACKGROUND", err);
	case SBX_WIRE_NOTE: return once(&q->has_note, "NOTE", err);
	default: return SBX_FAIL(err, SBX_E_MALFORMED, "The request has a frame of unknown type %u", f->type);
	}
}

/* Said before anything starts: which directory is missing. */
static int check_cwd(const struct request *q, struct sbx_err *err)
{
	char path[4096];
	struct stat st;
	int n;

	if (has_nul(q->cwd))
		return SBX_FAIL(err, SBX_E_INVALID, "The working directory must not hold NUL bytes");
	if (q->cwd.n && q->cwd.p[0] == '/')
		n = snprintf(path, sizeof(path), "%.*s", (int)q->cwd.n, q->cwd.p);
	else if (q->cwd.n)
		n = snprintf(path, sizeof(path), SBX_WORK "/%.*s", (int)q->cwd.n, q->cwd.p);
	else
		n = snprintf(path, sizeof(path), SBX_WORK);
	if (n < 0 || (size_t)n >= sizeof(path))
		return SBX_FAIL(err, SBX_E_INVALID, "The working directory's name is too long");
	if (stat(path, &st) < 0)
		return SBX_FAIL_SYS(err, SBX_E_INVALID, "The working directory %s does not exist in the box", path);
	if (!S_ISDIR(st.st_mode))
		return SBX_FAIL(err, SBX_E_INVALID, "The working directory %s is not a directory", path);
	return 0;
}

static int check_request(struct sbx_str in, struct request *q, struct sbx_err *err)
{
	struct sbx_frame f;
	int got;

	while ((got = sbx_frame_take(&in, SBX_EXEC_FRAME_MAX, &f)) == 1) {
		if (check_frame(q, &f, err) < 0)
			return -1;
	}
	if (got < 0)
		return SBX_FAIL(
			err, SBX_E_TOO_LARGE, "A part of the request is larger than %u bytes", SBX_EXEC_FRAME_MAX);
	if (in.n)
		return SBX_FAIL(err, SBX_E_MALFORMED, "The request ends inside a frame");
	if (!q->has_cmd || q->cmd.n == 0)
		return SBX_FAIL(err, SBX_E_INVALID, "The command is empty");
	if (has_nul(q->cmd))
		return SBX_FAIL(err, SBX_E_INVALID, "The command must not hold NUL bytes");
	return check_cwd(q, err);
}

/* ---- the spawner ---- */

static int spawner_connect(void)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX, .sun_path = SBX_SPAWN_SOCKET };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) < 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static int spawner_tell(char verb, const char *id, struct sbx_str request, struct sbx_err *err)
{
	struct spawn_msg m = { .verb = verb };
	struct iovec part[2] = { { &m, sizeof(m) }, { (void *)(uintptr_t)request.p, request.n } };
	struct msghdr h = { .msg_iov = part, .msg_iovlen = 2 };

	memcpy(m.id, id, sizeof(m.id) - 1);
	/* The spawner may have been started again since: the second connection is to the new one. */
	for (int i = 0; i < 2; i++) {
		if (spawn_fd < 0)
			spawn_fd = spawner_connect();
		if (spawn_fd >= 0 && sendmsg(spawn_fd, &h, MSG_NOSIGNAL) > 0)
			return 0;
		if (spawn_fd >= 0)
			close(spawn_fd);
		spawn_fd = -1;
	}
	return SBX_FAIL_SYS(err, SBX_E_UNAVAILABLE, "The box cannot start commands just now, try again");
}

/* What does not fit into a datagram goes by way of a file, and the datagram is empty. */
static int hand_over(const char *id, struct sbx_str frames, struct sbx_err *err)
{
	sbx_auto_close int fd = -1;

	if (frames.n <= SPAWN_INLINE_MAX)
		return spawner_tell(SPAWN_RUN, id, frames, err);
	fd = open_live(id, "req", O_WRONLY | O_CREAT | O_EXCL);
	if (fd < 0 || sbx_fd_write_full(fd, frames.p, frames.n) < 0)
		return SBX_FAIL_SYS(err, SBX_E_UNAVAILABLE, "The box has no memory for another command");
	return spawner_tell(SPAWN_RUN, id, SBX_STR(""), err);
}

int exec_start(const char *id, struct sbx_str frames, bool *ret_background, struct sbx_err *err)
{
	struct request q = { 0 };

	if (check_request(frames, &q, err) < 0)
		return -1;
	*ret_background = q.background;
	make_room(frames.n);
	if (mkdirat(root_fd, id, 0700) < 0) {
		if (errno == EEXIST)
			return 0;
		return SBX_FAIL_SYS(err, SBX_E_UNAVAILABLE, "The box has no memory for another command");
	}
	if (index_add(id, false, sbx_boot_ms()) < 0) {
		remove_files(id);
		return SBX_FAIL(err, SBX_E_NOMEM, "The box has no memory for another command");
	}
	if (hand_over(id, frames, err) < 0) {
		index_drop(id);
		return -1;
	}
	return 0;
}

int exec_kill(const char *id, struct sbx_err *err)
{
	sbx_auto_close int dir = open_dir(id);

	if (dir < 0)
		return SBX_FAIL(err, SBX_E_NOT_FOUND, "No such command");
	return spawner_tell(SPAWN_KILL, id, SBX_STR(""), err);
}

/* ---- what nobody else looks after ---- */

/* The runner holds a lock while it lives. Without it and without an end, nobody will publish one. */
static bool is_lost(const struct entry *e)
{
	sbx_auto_close int fd = open_live(e->id, "run", O_RDONLY);

	if (fd < 0)
		return errno == ENOENT && sbx_boot_ms() - e->boot_ms > UNSTARTED_MS;
	return flock(fd, LOCK_EX | LOCK_NB) == 0;
}

static void publish_lost(int dir, const char *id)
{
	static const char *const name[2] = { "out", "err" };
	struct run_end end = { .magic = RUN_MAGIC, .exit_code = 137, .flags = RUN_LOST };
	struct run_state state = { 0 };
	struct stat st;
	char file[SBX_EXEC_ID_LEN + 8];
	int fd;

	(void)!read_state(id, &state);
	end.end_boot_ms = sbx_boot_ms();
	if (state.start_boot_ms)
		end.duration_ms = (uint64_t)(end.end_boot_ms - state.start_boot_ms);
	for (int i = 0; i < 2; i++) {
		if (fstatat(dir, name[i], &st, 0) == 0)
			end.kept[i] = (uint64_t)st.st_size;
		end.total[i] = state.total[i] > end.kept[i] ? state.total[i] : end.kept[i];
	}
	snprintf(file, sizeof(file), "%s.end", id);
	fd = open_live(id, "end", O_WRONLY | O_CREAT | O_TRUNC);
	if (fd < 0)
		return;
	if (sbx_fd_write_full(fd, &end, sizeof(end)) == 0)
		renameat(live_fd, file, dir, "end");
	close(fd);
	sbx_log(SBX_LOG_WARN, "exec.lost", sbx_kv_s("id", id));
	/* What still runs of it prints into nothing; it is ended rather than left half alive. */
	(void)!spawner_tell(SPAWN_KILL, id, SBX_STR(""), NULL);
}

static void sweep_lost(void)
{
	for (size_t i = 0; i < entry_n; i++) {
		struct run_end end;
		sbx_auto_close int dir = -1;

		if (entry[i].ended)
			continue;
		dir = open_dir(entry[i].id);
		/* The end is looked for after the lock: a runner publishes before it goes. */
		if (dir >= 0 && is_lost(&entry[i]) && !read_end(dir, &end))
			publish_lost(dir, entry[i].id);
	}
}

/* Groups whose command ended while something of it lived on, and is gone now. */
static void sweep_cgroups(void)
{
	DIR *d = opendir(SBX_CMD_CGROUPS);
	struct dirent *e;

	while (d && (e = readdir(d)) != NULL) {
		char path[sizeof(SBX_CMD_CGROUPS) + sizeof(e->d_name) + 1];
		struct run_end end;
		sbx_auto_close int dir = -1;

		if (e->d_type != DT_DIR || !sbx_exec_id_ok(sbx_str_of(e->d_name)))
			continue;
		dir = open_dir(e->d_name);
		if (dir >= 0 && !read_end(dir, &end))
			continue; /* on its way, or running */
		snprintf(path, sizeof(path), SBX_CMD_CGROUPS "/%s", e->d_name);
		rmdir(path);
	}
	if (d)
		closedir(d);
}

void exec_sweep(void)
{
	int64_t boot = sbx_boot_ms();

	if (sbx_ms_left(lost_due_ms) > 0)
		return;
	lost_due_ms = sbx_mono_ms() + LOST_MS;
	note_ends();
	sweep_lost();
	for (size_t i = entry_n; i-- > 0;) {
		char id[SBX_EXEC_ID_LEN + 1];

		if (!entry[i].ended || boot - entry[i].boot_ms < SBX_EXEC_KEPT_S * 1000)
			continue;
		memcpy(id, entry[i].id, sizeof(id));
		index_drop(id);
	}
	if (sbx_ms_left(cgroups_due_ms) > 0)
		return;
	cgroups_due_ms = sbx_mono_ms() + CGROUPS_MS;
	sweep_cgroups();
}

int exec_open(struct sbx_err *err)
{
	DIR *d;
	struct dirent *e;

	root_fd = open(SBX_EXEC_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	live_fd = open(SBX_LIVE_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	set_kept_max();
	watch_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	d = opendir(SBX_EXEC_DIR);
	if (root_fd < 0 || live_fd < 0 || watch_fd < 0 || !d) {
		if (d)
			closedir(d);
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot open %s", SBX_EXEC_DIR);
	}
	while ((e = readdir(d)) != NULL) {
		if (sbx_exec_id_ok(sbx_str_of(e->d_name)) && index_add(e->d_name, false, sbx_boot_ms()) < 0)
			break;
	}
	closedir(d);
	note_ends();
	return 0;
}

/* ---- readers ---- */

int exec_watch_fd(void)
{
	return watch_fd;
}

int exec_watch_next(void)
{
	static _Alignas(struct inotify_event) char events[4096];
	static size_t at, n;
	const struct inotify_event *e;

	if (at >= n) {
		ssize_t got = read(watch_fd, events, sizeof(events));

		at = n = 0;
		if (got <= 0)
			return -1;
		n = (size_t)got;
	}
	e = (const struct inotify_event *)(events + at);
	at += sizeof(*e) + e->len;
	return e->mask & IN_IGNORED ? 0 : e->wd;
}

static int watch(struct exec_reader *r, uint32_t mask, struct sbx_err *err)
{
	char path[128];

	snprintf(path, sizeof(path), SBX_EXEC_DIR "/%s", r->id);
	/* Readers of one command share one watch, which goes with the directory. */
	r->watch = inotify_add_watch(watch_fd, path, mask | IN_MASK_ADD | IN_ONLYDIR);
	if (r->watch < 0)
		return SBX_FAIL_SYS(err, SBX_E_UNAVAILABLE, "Too many calls wait in this box");
	return 0;
}

int exec_reader_open(struct exec_reader *r, const char *id, struct sbx_err *err)
{
	*r = (struct exec_reader){ .watch = -1, .fd = { -1, -1 }, .want_output = true, .deadline_ms = INT64_MAX };
	memcpy(r->id, id, sizeof(r->id) - 1);
	r->dir = open_dir(id);
	if (r->dir < 0)
		return SBX_FAIL(err, SBX_E_NOT_FOUND, "No such command: results are kept for an hour");
	return watch(r, IN_MOVED_TO, err);
}

int exec_reader_follow(struct exec_reader *r, struct sbx_err *err)
{
	return watch(r, IN_CREATE | IN_MODIFY, err);
}

void exec_reader_close(struct exec_reader *r)
{
	for (int i = 0; i < 2; i++) {
		if (r->fd[i] >= 0)
			close(r->fd[i]);
		r->fd[i] = -1;
	}
	if (r->dir >= 0)
		close(r->dir);
	r->dir = -1;
}

bool exec_reader_started(struct exec_reader *r)
{
	return faccessat(r->dir, "out", F_OK, 0) == 0;
}

bool exec_reader_refused(struct exec_reader *r, struct sbx_err *err)
{
	if (!r->have_end)
		r->have_end = read_end(r->dir, &r->end);
	if (!r->have_end || !(r->end.flags & RUN_REFUSED))
		return false;
	index_drop(r->id);
	SBX_FAIL(err, SBX_E_UNAVAILABLE,
		"The box cannot make another process: end some, or stop the box and start a new one");
	return true;
}

static void add_end(struct exec_reader *r, struct sbx_buf *b)
{
	struct sbx_wire_end e = { .running = !r->have_end };
	struct run_state state = { 0 };

	if (r->have_end) {
		e.exit_code = r->end.exit_code;
		e.timed_out = r->end.flags & RUN_TIMED_OUT;
		e.duration_ms = r->end.duration_ms;
		e.out_bytes = r->end.total[0];
		e.err_bytes = r->end.total[1];
		e.truncated = r->end.total[0] > r->end.kept[0] || r->end.total[1] > r->end.kept[1];
	} else if (read_state(r->id, &state)) {
		e.duration_ms = (uint64_t)(sbx_boot_ms() - state.start_boot_ms);
		e.out_bytes = state.total[0];
		e.err_bytes = state.total[1];
		e.truncated = e.out_bytes > SBX_EXEC_STREAM_MAX || e.err_bytes > SBX_EXEC_STREAM_MAX;
	}
	if (r->have_end && r->end.flags & RUN_LOST)
		sbx_frame_addz(b, SBX_WIRE_ERR, "sbx: what ran this command was killed; how it ended is not known\n");
	sbx_wire_end_add(b, &e);
	r->done = true;
}

/* What one stream has beyond what was read; false when that is nothing. */
static bool add_output(struct exec_reader *r, int i, struct sbx_buf *b)
{
	char chunk[FILL_CHUNK];
	ssize_t n;

	if (r->fd[i] < 0)
		r->fd[i] = openat(r->dir, i ? "err" : "out", O_RDONLY | O_CLOEXEC);
	if (r->fd[i] < 0)
		return false;
	n = pread(r->fd[i], chunk, sizeof(chunk), (off_t)r->at[i]);
	if (n <= 0)
		return false;
	sbx_frame_add(b, i ? SBX_WIRE_ERR : SBX_WIRE_OUT, chunk, (size_t)n);
	r->at[i] += (uint64_t)n;
	return true;
}

void exec_reader_fill(struct exec_reader *r, struct sbx_buf *b, size_t max)
{
	bool more = true;

	/* Before the streams: all that an end counts is on file when it is there. */
	if (!r->have_end)
		r->have_end = read_end(r->dir, &r->end);
	while (more && r->want_output && b->n < max) {
		more = add_output(r, 0, b);
		more = add_output(r, 1, b) || more;
	}
	if (b->n >= max && more && r->want_output)
		return;
	if (r->have_end || sbx_ms_left(r->deadline_ms) == 0)
		add_end(r, b);
}
