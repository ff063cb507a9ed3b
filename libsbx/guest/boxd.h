/*
 * The parts of boxd. One thread: its loop (boxd.c) drives libmicrohttpd, inotify and timers, so nothing
 * here locks.
 */
#ifndef SBX_BOXD_H
#define SBX_BOXD_H

#include <netinet/in.h>

#include "guest/guest.h"
#include "sbx/boxtoken.h"
#include "sbx/err.h"

struct boxd_nic {
	bool present;
	uint8_t mac[6];
	struct in_addr address, host;
	struct in_addr dns[3];
	size_t dns_n;
};

struct boxd_conf {
	uint8_t machine[SBX_MACHINE_ID_SIZE], key[SBX_BOXD_KEY_SIZE];
	char machine_hex[2 * SBX_MACHINE_ID_SIZE + 1];
	uint32_t epoch;
	uint8_t kid;
	char hostname[64];
	struct boxd_nic control, user;
};

/* boxd_conf.c: what the keeper wrote on the config drive. */
int boxd_conf_read(struct boxd_conf *ret, struct sbx_err *err) SBX_MUST_CHECK;
int boxd_conf_parse(struct sbx_str json, struct boxd_conf *ret, struct sbx_err *err) SBX_MUST_CHECK;

/*
 * boxd_net.c: puts the control interface up and leaves this process in the control namespace. What else
 * the box's first start needs (the user's interface, host name, resolv.conf, hosts) comes after the first
 * answer, and before the first command; later starts leave it alone, it is the user's.
 */
int boxd_net_setup(const struct boxd_conf *c, struct sbx_err *err) SBX_MUST_CHECK;
bool boxd_net_is_first(void);
int boxd_net_finish(const struct boxd_conf *c, struct sbx_err *err) SBX_MUST_CHECK;
/* Called when boxd can answer. */
void boxd_net_announce(const struct boxd_conf *c);
int boxd_net_listen(const struct boxd_conf *c, struct sbx_err *err) SBX_MUST_CHECK;

/* boxd_auth.c: single-use tokens; which were used outlives boxd. */
int boxd_auth_open(const struct boxd_conf *c, struct sbx_err *err) SBX_MUST_CHECK;
/* The value of the Authorization header, or NULL. Uses the token up. */
int boxd_auth_check(const char *header, enum sbx_boxtoken_purpose purpose, struct sbx_err *err) SBX_MUST_CHECK;

/* boxd_exec.c: commands and their results. */
int exec_open(struct sbx_err *err) SBX_MUST_CHECK;
/* Checks the request frames and starts the command; joins it when the ID is known already. */
int exec_start(const char *id, struct sbx_str frames, bool *ret_background, struct sbx_err *err) SBX_MUST_CHECK;
int exec_kill(const char *id, struct sbx_err *err) SBX_MUST_CHECK;
size_t exec_running(void);
/* Finds ends nobody published and drops what is old; called about once a second. */
void exec_sweep(void);
int exec_watch_fd(void);
/* Takes the next notice off the descriptor: which watch it was for, or -1 when there is none left. */
int exec_watch_next(void);

/* One caller's way through the result of a command. */
struct exec_reader {
	char id[SBX_EXEC_ID_LEN + 1];
	int watch, dir;
	int fd[2];
	uint64_t at[2];
	bool want_output, have_end, done;
	int64_t deadline_ms; /* answers "running" then; INT64_MAX: never */
	struct run_end end;
};

/* Notices come for the end only, until the reader wants to follow the output too. */
int exec_reader_open(struct exec_reader *r, const char *id, struct sbx_err *err) SBX_MUST_CHECK;
int exec_reader_follow(struct exec_reader *r, struct sbx_err *err) SBX_MUST_CHECK;
void exec_reader_close(struct exec_reader *r);
/* Appends the frames there are (not much more than max bytes); sets done with the END frame. */
void exec_reader_fill(struct exec_reader *r, struct sbx_buf *b, size_t max);
/* It could not be started: the error, and the ID is free again. */
bool exec_reader_refused(struct exec_reader *r, struct sbx_err *err);
/* Of a background command: its process is there. */
bool exec_reader_started(struct exec_reader *r);

/* boxd_http.c */
int http_open(int listen_fd, const struct boxd_conf *c, struct sbx_err *err) SBX_MUST_CHECK;
/* How many requests were answered. */
uint64_t http_answered(void);
int http_fd(void);
void http_run(void);
/* Wakes the calls that wait on that watch. */
void http_notify(int watch);
/* Milliseconds until http_run() has something to do; -1: nothing. */
int http_due_ms(void);
const char *boxd_build_id(void);

#endif
