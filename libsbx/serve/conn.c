/* One FastCGI connection: a request in, a reply or a stream out. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "sbx/clock.h"
#include "sbx/log.h"
#include "serve/serve_priv.h"

/* Memory of a call: its body, what is parsed of it (cJSON counts apart), and small change. */
#define ARENA_MAX (8u * 1024u * 1024u)
/* A peer that does not read for so long is gone; bounds how long a thread can hang in a write. */
#define SEND_TIMEOUT_S 10
#define PUT_MAX (1024 * 1024) /* libfcgi counts in int */

void queue_init(struct queue *q)
{
	q->first = NULL;
	q->last = &q->first;
}

void queue_put(struct queue *q, struct conn *c)
{
	c->next = NULL;
	*q->last = c;
	q->last = &c->next;
}

struct conn *queue_take(struct queue *q)
{
	struct conn *c = q->first;

	if (!c)
		return NULL;
	q->first = c->next;
	if (!q->first)
		q->last = &q->first;
	c->next = NULL;
	return c;
}

struct conn *conn_new(struct server *s, int fd)
{
	struct timeval patience = { .tv_sec = SEND_TIMEOUT_S };
	struct conn *c = calloc(1, sizeof(*c));

	if (!c || FCGX_InitRequest(&c->fcgi, -1, 0) != 0) {
		free(c);
		close(fd);
		return NULL;
	}
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	c->fd = fd;
	/* FCGX_Accept_r() closes what does not look kept before it reads the next request. */
	c->fcgi.listen_sock = -1;
	c->fcgi.ipcFd = fd;
	c->fcgi.keepConnection = 1;
	atomic_fetch_add(&s->connections, 1);
	return c;
}

void conn_free(struct server *s, struct conn *c)
{
	FCGX_Free(&c->fcgi, 1);
	free(c);
	atomic_fetch_sub(&s->connections, 1);
}

void exchange_done(struct sbx_exchange *x)
{
	sbx_buf_done(&x->out.head);
	sbx_buf_done(&x->out.body);
	sbx_arena_free(x->call.arena);
	memset(x, 0, sizeof(*x));
}

static const char *param(const struct conn *c, const char *name)
{
	const char *v = FCGX_GetParam(name, c->fcgi.envp);

	return v && v[0] ? v : NULL;
}

/*
 * The body, exactly CONTENT_LENGTH bytes. One that is too large is not read: libfcgi drops the rest when
 * the request ends.
 */
static int read_body(struct conn *c, int64_t max, struct sbx_err *err)
{
	const char *text = param(c, "CONTENT_LENGTH");
	int64_t n = 0;
	char *p;

	if (text && !sbx_str_i64(sbx_str_of(text), 0, INT64_MAX, &n))
		return SBX_FAIL(err, SBX_E_MALFORMED, "The Content-Length is no number");
	if (n > max)
		return SBX_FAIL(err, SBX_E_TOO_LARGE, "The body has %lld bytes; at most %lld are accepted",
			(long long)n, (long long)max);
	p = sbx_arena_alloc(c->x.call.arena, (size_t)n + 1);
	if (!p)
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	if (n && FCGX_GetStr(p, (int)n, c->fcgi.in) != (int)n)
		return SBX_FAIL(err, SBX_E_MALFORMED, "The body ended early");
	c->x.in.body = (struct sbx_str){ p, (size_t)n };
	return 0;
}

static void read_params(struct conn *c)
{
	const struct {
		const char *name, **to;
		const char *absent;
	} params[] = {
		{ "REQUEST_METHOD", &c->x.in.method, "" },
		{ "DOCUMENT_URI", &c->x.in.path, "" },
		{ "QUERY_STRING", &c->x.in.query, "" },
		{ "CONTENT_TYPE", &c->x.in.content_type, NULL },
		{ "HTTP_ACCEPT", &c->x.in.accept, NULL },
		{ "HTTP_AUTHORIZATION", &c->x.in.authorization, NULL },
		{ "HTTP_ORIGIN", &c->x.in.origin, NULL },
		{ "HTTP_HOST", &c->x.in.host, NULL },
		{ "REQUEST_ID", &c->x.in.request_id, "" },
		{ "REMOTE_ADDR", &c->x.in.address, "" },
		{ "HTTP_MCP_PROTOCOL_VERSION", &c->x.in.mcp_version, NULL },
		{ "HTTP_MCP_METHOD", &c->x.in.mcp_method, NULL },
		{ "HTTP_MCP_NAME", &c->x.in.mcp_name, NULL },
		{ "HTTP_X_PSBX_CLIENT", &c->x.call.client, "" },
	};

	for (size_t i = 0; i < SBX_ARRAY_LEN(params); i++) {
		const char *v = param(c, params[i].name);

		/* envp dies with the request; these pointers do not outlive it either. */
		*params[i].to = v ? v : params[i].absent;
	}
	if (strlen(c->x.call.client) > 100)
		c->x.call.client = "";
}

bool conn_read(struct server *s, struct conn *c)
{
	struct sbx_err err = SBX_ERR_INIT;

	if (FCGX_Accept_r(&c->fcgi) != 0)
		return false;
	c->parked_ms = 0;
	c->x = (struct sbx_exchange){ .call = { .app = s->app }, .began_us = sbx_mono_us() };
	sbx_buf_init(&c->x.out.head, 16 * 1024);
	sbx_buf_init(&c->x.out.body, SBX_REPLY_MAX);
	c->x.call.arena = sbx_arena_new(ARENA_MAX);
	if (!c->x.call.arena)
		return false;
	read_params(c);
	if (read_body(c, s->app->conf->body_max_bytes, &err) < 0)
		sbx_reply_problem(&c->x, &err);
	return true;
}

static void put(struct conn *c, struct sbx_str s)
{
	while (s.n) {
		int n = s.n < PUT_MAX ? (int)s.n : PUT_MAX;

		if (FCGX_PutStr(s.p, n, c->fcgi.out) != n)
			return;
		s.p += n;
		s.n -= (size_t)n;
	}
}

static bool alive(struct conn *c)
{
	return FCGX_GetError(c->fcgi.out) == 0;
}

bool conn_stream_head(struct conn *c)
{
	bool events = c->x.stream == SBX_STREAM_EVENTS || c->x.stream_now;

	c->x.streaming = true;
	put(c,
		events ? SBX_STR("Status: 200\r\nContent-Type: text/event-stream\r\n")
		       : SBX_STR("Status: 200\r\nContent-Type: application/json\r\n"));
	put(c, SBX_STR("Cache-Control: no-cache, no-transform\r\nX-Accel-Buffering: no\r\n\r\n"));
	return conn_stream_beat(c);
}

bool conn_stream_beat(struct conn *c)
{
	put(c, c->x.stream == SBX_STREAM_BLANKS ? SBX_STR(" ") : SBX_STR(": ka\n\n"));
	FCGX_FFlush(c->fcgi.out);
	return alive(c);
}

static void reply_head(struct conn *c)
{
	sbx_auto_buf struct sbx_buf head;

	sbx_buf_init(&head, 32 * 1024);
	sbx_buf_addf(&head, "Status: %d\r\n", c->x.out.status);
	if (c->x.out.type)
		sbx_buf_addf(&head, "Content-Type: %s\r\n", c->x.out.type);
	sbx_buf_addf(&head, "Content-Length: %zu\r\n", c->x.out.type ? c->x.out.body.n : 0);
	sbx_buf_addz(&head, "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n");
	sbx_buf_adds(&head, sbx_buf_str(&c->x.out.head));
	sbx_buf_addz(&head, "\r\n");
	put(c, sbx_buf_str(&head));
}

void conn_reply(struct conn *c)
{
	struct sbx_err err = SBX_ERR_INIT;

	if (sbx_buf_ok(&c->x.out.body, &err) < 0)
		sbx_reply_problem(&c->x, &err);
	if (c->x.stream_now && !c->x.streaming && c->x.out.status == 200)
		conn_stream_head(c);
	if (!c->x.streaming)
		reply_head(c);
	/* One event is one data line: our JSON has no line breaks outside strings, where they are escaped. */
	if (c->x.streaming && c->x.stream == SBX_STREAM_EVENTS) {
		put(c, SBX_STR("event: message\ndata: "));
		put(c, sbx_buf_str(&c->x.out.body));
		put(c, SBX_STR("\n\n"));
	} else if (c->x.out.type) {
		put(c, sbx_buf_str(&c->x.out.body));
	}
	sbx_log(SBX_LOG_DEBUG, "request", sbx_kv_s("req", c->x.in.request_id), sbx_kv_s("method", c->x.in.method),
		sbx_kv_s("path", c->x.in.path), sbx_kv_i("status", c->x.out.status),
		sbx_kv_i("us", sbx_mono_us() - c->x.began_us));
	exchange_done(&c->x);
	FCGX_Finish_r(&c->fcgi);
}
