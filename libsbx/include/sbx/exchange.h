/*
 * One HTTP exchange: the request as nginx passed it, and the reply. The server (serve/) owns it, the
 * API (api/) answers it.
 *
 * A route fills in the reply and gives SBX_DONE, or parks: it sets call.wait, resume and abort, and gives
 * SBX_WAITING. While it is parked the server may turn the reply into a stream (see enum sbx_stream).
 */
#ifndef SBX_EXCHANGE_H
#define SBX_EXCHANGE_H

#include "sbx/call.h"

#define SBX_VERSION "0.1.0"
/* A reply holds a result twice (text and structured), each up to 6 times what the command printed. */
#define SBX_REPLY_MAX (64u * 1024u * 1024u)

enum sbx_stream {
	SBX_STREAM_NEVER,  /* the status must be known before the first byte */
	SBX_STREAM_BLANKS, /* JSON: blanks before the value keep the connection alive */
	SBX_STREAM_EVENTS, /* an event stream: comments keep it alive, the body is its last event */
};

struct sbx_exchange {
	struct sbx_call call;
	struct {
		const char *method, *path, *query, *content_type, *accept, *authorization, *origin, *host;
		const char *request_id, *address;
		const char *mcp_version, *mcp_method, *mcp_name;
		struct sbx_str body;
	} in;
	struct {
		int status;
		const char *type;    /* NULL: no Content-Type, no body */
		struct sbx_buf head; /* more header lines, each ended by CRLF */
		struct sbx_buf body;
	} out;
	enum sbx_stream stream; /* what the reply becomes when it takes long */
	bool cancel_when_gone;  /* a client that goes away cancels its call; otherwise it goes on unheard */
	bool stream_now;        /* an event stream from the start */
	bool streaming;         /* the server: the head has been sent */
	enum sbx_step (*resume)(struct sbx_exchange *x);
	void (*abort)(struct sbx_exchange *x); /* parked, and the server stops: write a reply that says so */
	void *state;
	int64_t began_us;
};

/* Finds the route and runs it. */
enum sbx_step sbx_route(struct sbx_exchange *x);
/* Makes what routes share (bodies that are built once). To be called before the first exchange. */
int sbx_route_init(const struct sbx_conf *conf, struct sbx_err *err) SBX_MUST_CHECK;

/* Adds a header line; the value must come from us, not from a client. */
void sbx_reply_header(struct sbx_exchange *x, const char *name, const char *value);
/* An error as application/problem+json (RFC 9457), with `code`, `retryable` and `error`. */
enum sbx_step sbx_reply_problem(struct sbx_exchange *x, const struct sbx_err *err);
/* Checks the bearer key and the tenant's number of calls; on failure err says why. */
int sbx_exchange_auth(struct sbx_exchange *x, struct sbx_err *err) SBX_MUST_CHECK;

#endif
