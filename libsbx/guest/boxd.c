/*
 * boxd: what the control plane talks to in a box. `boxd --protocol` prints the version it speaks.
 */
#include "guest/boxd.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sbx/log.h"

#define SWEEP_MS 3000

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
	return fd < 0 ? -1 : http_open(fd, err);
}

static void loop(void)
{
	struct pollfd p[2] = {
		{ .fd = http_fd(), .events = POLLIN },
		{ .fd = exec_watch_fd(), .events = POLLIN },
	};

	for (;;) {
		int due = http_due_ms(), watch;

		if (poll(p, SBX_ARRAY_LEN(p), due < 0 || due > SWEEP_MS ? SWEEP_MS : due) < 0)
			continue;
		if (p[1].revents) {
			while ((watch = exec_watch_next()) >= 0)
				http_notify(watch);
		}
		http_run();
		exec_sweep();
	}
}

int main(int argc, char **argv)
{
	static struct boxd_conf conf;
	struct sbx_err err = SBX_ERR_INIT;

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
	boxd_net_announce(&conf);
	tell_ready();
	loop();
}
