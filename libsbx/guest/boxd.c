/*
 * boxd: what the control plane talks to in a box. `boxd --protocol` prints the version it speaks.
 */
#include "guest/boxd.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sbx/clock.h"
#include "sbx/log.h"

#define SWEEP_MS 3000
#define FIRST_ANSWER_MS 100
#define READ_AHEAD_BYTES (2u << 20)

static void tell_ready(void)
{
	int64_t fd;
	const char *z = getenv(SBX_READY_ENV);

	if (z && sbx_str_i64(sbx_str_of(z), 3, 1024, &fd)) {
		(void)!write((int)fd, "\n", 1);
		close((int)fd);
	}
}

static int set_up(struct boxd_conf *c, struct sbx_err *err)
{
	int fd;

	if (boxd_conf_read(c, err) < 0 || boxd_net_setup(c, err) < 0 || boxd_auth_open(c, err) < 0 ||
		exec_open(err) < 0)
		return -1;
	fd = boxd_net_listen(c, err);
	return fd < 0 ? -1 : http_open(fd, c, err);
}

static void turn(struct pollfd p[2], int wait_ms)
{
	int watch;

	if (poll(p, 2, wait_ms) < 0)
		return;
	if (p[1].revents) {
		while ((watch = exec_watch_next()) >= 0)
			http_notify(watch);
	}
	http_run();
}

/* Whoever waits for this box has its answer, or does not ask: the rest of the first start. */
static int first_start(const struct boxd_conf *c, struct pollfd p[2], struct sbx_err *err)
{
	int64_t deadline = sbx_mono_ms() + FIRST_ANSWER_MS;

	while (boxd_net_is_first() && http_answered() == 0 && sbx_ms_left(deadline) > 0)
		turn(p, sbx_ms_left(deadline));
	return boxd_net_finish(c, err);
}

static void loop(struct pollfd p[2])
{
	for (;;) {
		int due = http_due_ms();

		turn(p, due < 0 || due > SWEEP_MS ? SWEEP_MS : due);
		exec_sweep();
	}
}

/* What the first command needs is on its way from the disk while the control plane gets round to it. */
static void read_ahead(void)
{
	static const char *const files[] = {
		"/bin/bash",
		"/lib64/ld-linux-x86-64.so.2",
		"/lib/x86_64-linux-gnu/libc.so.6",
		"/lib/x86_64-linux-gnu/libtinfo.so.6",
	};

	for (size_t i = 0; i < SBX_ARRAY_LEN(files); i++) {
		sbx_auto_close int fd = open(files[i], O_RDONLY | O_CLOEXEC);

		if (fd >= 0)
			(void)!readahead(fd, 0, READ_AHEAD_BYTES);
	}
}

int main(int argc, char **argv)
{
	static struct boxd_conf conf;
	struct sbx_err err = SBX_ERR_INIT;
	struct pollfd p[2];
	bool is_first;

	if (argc == 2 && strcmp(argv[1], "--protocol") == 0) {
		dprintf(STDOUT_FILENO, "%d\n", SBX_BOXD_PROTOCOL);
		return 0;
	}
	sbx_log_open("boxd");
	signal(SIGPIPE, SIG_IGN);
	if (set_up(&conf, &err) < 0) {
		sbx_log_err(SBX_LOG_ERROR, "boxd.start", &err, SBX_KV_NONE);
		return 1;
	}
	p[0] = (struct pollfd){ .fd = http_fd(), .events = POLLIN };
	p[1] = (struct pollfd){ .fd = exec_watch_fd(), .events = POLLIN };
	is_first = boxd_net_is_first();
	boxd_net_announce(&conf);
	if (first_start(&conf, p, &err) < 0) {
		sbx_log_err(SBX_LOG_ERROR, "boxd.start", &err, SBX_KV_NONE);
		return 1;
	}
	if (is_first)
		read_ahead();
	tell_ready();
	loop(p);
}
