/*
 * The FastCGI server of one worker process.
 *
 * libfcgi speaks the protocol; one epoll, shared by all threads, holds the connections (nginx keeps them
 * open, an idle one costs no thread). A thread takes a connection with a request, answers it, and gives
 * it back. A call that waits goes to the wait loop, a thread of its own with libcurl's multi handle, the
 * LISTEN connection and timers, and comes back through the same epoll when it can go on.
 */
#ifndef SBX_SERVE_H
#define SBX_SERVE_H

#include "sbx/call.h"

/*
 * Serves listen_fd until stop_fd becomes readable, then lets calls end for conf->drain_s, and answers
 * those that have not. FCGX_Init must have been called. 0 after an orderly stop.
 */
int sbx_serve(const struct sbx_app *app, const char *conninfo, int listen_fd, int stop_fd, struct sbx_err *err)
	SBX_MUST_CHECK;

#endif
