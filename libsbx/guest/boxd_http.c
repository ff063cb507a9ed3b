/*
 * The HTTP side: libmicrohttpd driven by boxd's own loop (its epoll descriptor inside ours). A call
 * that waits is suspended, and resumed by a notice of its command's directory or by the clock.
 *
 * An answer begins when there is something to say: a command that ends at once is answered in one
 * piece, and one that could not be started gets its error as a status.
 */
#include "guest/boxd.h"

#include <dirent.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include <microhttpd.h>

#include "sbx/clock.h"
#include "sbx/enc.h"
#include "sbx/log.h"

#define CONNECTIONS_MAX 256u
#define CONNECTION_BYTES 65536u
#define IDLE_S 120u
#define BLOCK 65536u
#define FIRST_MS 250 /* so long an answer waits for a first word before its header goes out */
#define WAIT_MAX_MS 3600000

enum phase { BODY, WAITING, STREAMING };

struct call {
	struct call *next;
	struct MHD_Connection *con;
	const struct route *route;
	char id[SBX_EXEC_ID_LEN + 1];
	enum phase phase;
	bool suspended, has_reader, background;
	int64_t wait_ms, begin_ms, keep_ms;
	struct exec_reader reader;
	struct sbx_buf body; /* the request, later what goes out */
	size_t sent;
};

struct route {
	const char *method, *path;
	enum sbx_boxtoken_purpose purpose; /* 0: no token */
	bool has_id;
	/* Called when the whole request is there. */
	enum MHD_Result (*serve)(struct call *c);
};

static struct MHD_Daemon *daemon_;
static struct call *calls;
static const struct boxd_conf *conf;
static uint64_t answered;

/* ---- answers ---- */

static enum MHD_Result send_text(struct MHD_Connection *con, unsigned int status, const char *type, struct sbx_buf *b)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(b->n, b->p, MHD_RESPMEM_MUST_COPY);
	enum MHD_Result ok;

	if (!r)
		return MHD_NO;
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	ok = MHD_queue_response(con, status, r);
	MHD_destroy_response(r);
	return ok;
}

static enum MHD_Result send_error(struct MHD_Connection *con, const struct sbx_err *err)
{
	sbx_auto_buf struct sbx_buf b;

	sbx_buf_init(&b, 4096);
	sbx_buf_addz(&b, "{\"code\":");
	sbx_buf_json(&b, sbx_str_of(sbx_code_wire(err->code)));
	sbx_buf_addz(&b, ",\"error\":");
	sbx_buf_json(&b, sbx_str_of(err->msg));
	sbx_buf_addz(&b, "}\n");
	return send_text(con, (unsigned int)sbx_code_http(err->code), "application/json", &b);
}

/* ---- waiting ---- */

static void suspend(struct call *c)
{
	if (!c->suspended) {
		c->suspended = true;
		MHD_suspend_connection(c->con);
	}
}

static void resume(struct call *c)
{
	if (c->suspended) {
		c->suspended = false;
		MHD_resume_connection(c->con);
	}
}

void http_notify(int watch)
{
	for (struct call *c = calls; c; c = c->next) {
		if (c->has_reader && c->reader.watch == watch)
			resume(c);
	}
}

static int64_t call_due_ms(const struct call *c)
{
	int64_t due = c->phase == WAITING ? c->begin_ms : c->keep_ms;

	return c->reader.deadline_ms < due ? c->reader.deadline_ms : due;
}

int http_due_ms(void)
{
	MHD_UNSIGNED_LONG_LONG mhd;
	int due = -1;

	if (MHD_get_timeout(daemon_, &mhd) == MHD_YES)
		due = mhd > 60000 ? 60000 : (int)mhd;
	for (struct call *c = calls; c; c = c->next) {
		int left = c->suspended ? sbx_ms_left(call_due_ms(c)) : -1;

		if (left >= 0 && (due < 0 || left < due))
			due = left;
	}
	return due;
}

void http_run(void)
{
	for (struct call *c = calls; c; c = c->next) {
		if (c->suspended && sbx_ms_left(call_due_ms(c)) == 0)
			resume(c);
	}
	MHD_run(daemon_);
}

int http_fd(void)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_EPOLL_FD);

	return info ? info->epoll_fd : -1;
}

/* ---- commands ---- */

/* MHD asks for more of a streamed answer. */
static ssize_t stream(void *cls, uint64_t pos, char *out, size_t max)
{
	struct call *c = cls;
	size_t n;

	(void)pos;
	if (c->sent == c->body.n) {
		if (c->reader.done)
			return MHD_CONTENT_READER_END_OF_STREAM;
		c->sent = 0;
		sbx_buf_reset(&c->body);
		exec_reader_fill(&c->reader, &c->body, max);
		if (c->body.n == 0 && sbx_ms_left(c->keep_ms) == 0)
			sbx_frame_add(&c->body, SBX_WIRE_KEEP, "", 0);
		if (c->body.failed)
			return MHD_CONTENT_READER_END_WITH_ERROR;
		if (c->body.n == 0) {
			suspend(c);
			return 0;
		}
		c->keep_ms = sbx_mono_ms() + SBX_EXEC_KEEP_MS;
	}
	n = c->body.n - c->sent < max ? c->body.n - c->sent : max;
	memcpy(out, c->body.p + c->sent, n);
	c->sent += n;
	return (ssize_t)n;
}

static enum MHD_Result begin_stream(struct call *c)
{
	struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, stream, c, NULL);
	enum MHD_Result ok;

	if (!r)
		return MHD_NO;
	c->phase = STREAMING;
	c->sent = 0;
	c->keep_ms = sbx_mono_ms() + SBX_EXEC_KEEP_MS;
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, SBX_BOXD_FRAMES_TYPE);
	ok = MHD_queue_response(c->con, MHD_HTTP_OK, r);
	MHD_destroy_response(r);
	return ok;
}

/* Whole when it has ended; streamed when it goes on for long; suspended until one of them is known. */
static enum MHD_Result answer(struct call *c)
{
	struct sbx_err err = SBX_ERR_INIT;
	bool late = sbx_ms_left(c->begin_ms) == 0;

	if (exec_reader_refused(&c->reader, &err))
		return send_error(c->con, &err);
	/* A background command is answered when it has started, not before: it may be refused. */
	if (c->background && (late || exec_reader_started(&c->reader)))
		c->reader.deadline_ms = 0;
	if (late || c->reader.have_end || sbx_ms_left(c->reader.deadline_ms) == 0) {
		exec_reader_fill(&c->reader, &c->body, BLOCK);
		if (c->reader.done)
			return send_text(c->con, MHD_HTTP_OK, SBX_BOXD_FRAMES_TYPE, &c->body);
		if (exec_reader_follow(&c->reader, &err) < 0)
			return send_error(c->con, &err);
		return begin_stream(c);
	}
	suspend(c);
	return MHD_YES;
}

static enum MHD_Result begin_answer(struct call *c)
{
	struct sbx_err err = SBX_ERR_INIT;

	c->has_reader = true;
	if (exec_reader_open(&c->reader, c->id, &err) < 0 ||
		(c->background && exec_reader_follow(&c->reader, &err) < 0))
		return send_error(c->con, &err);
	c->reader.want_output = !c->background;
	if (c->wait_ms >= 0)
		c->reader.deadline_ms = sbx_mono_ms() + c->wait_ms;
	c->phase = WAITING;
	c->begin_ms = sbx_mono_ms() + FIRST_MS;
	return answer(c);
}

static enum MHD_Result serve_exec(struct call *c)
{
	struct sbx_err err = SBX_ERR_INIT;

	if (boxd_net_finish(conf, &err) < 0 || sbx_buf_ok(&c->body, &err) < 0 ||
		exec_start(c->id, sbx_buf_str(&c->body), &c->background, &err) < 0)
		return send_error(c->con, &err);
	sbx_buf_done(&c->body);
	c->wait_ms = -1;
	return begin_answer(c);
}

static enum MHD_Result serve_result(struct call *c)
{
	const char *z = MHD_lookup_connection_value(c->con, MHD_GET_ARGUMENT_KIND, "waitMs");
	struct sbx_err err = SBX_ERR_INIT;

	c->wait_ms = 0;
	if (z && !sbx_str_i64(sbx_str_of(z), 0, WAIT_MAX_MS, &c->wait_ms)) {
		SBX_FAIL(&err, SBX_E_INVALID, "waitMs must be 0 to %d", WAIT_MAX_MS);
		return send_error(c->con, &err);
	}
	return begin_answer(c);
}

static enum MHD_Result serve_kill(struct call *c)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_buf none = { .p = (char[]){ "" } };

	if (exec_kill(c->id, &err) < 0)
		return send_error(c->con, &err);
	return send_text(c->con, MHD_HTTP_NO_CONTENT, "application/json", &none);
}

static enum MHD_Result serve_health(struct call *c)
{
	sbx_auto_buf struct sbx_buf b;

	sbx_buf_init(&b, 1024);
	sbx_buf_addf(&b, "{\"ok\":true,\"protocol\":%d,\"build\":", SBX_BOXD_PROTOCOL);
	sbx_buf_json(&b, sbx_str_of(boxd_build_id()));
	sbx_buf_addf(&b, ",\"uptimeMs\":%lld,\"running\":%zu}\n", (long long)sbx_boot_ms(), exec_running());
	return send_text(c->con, MHD_HTTP_OK, "application/json", &b);
}

static const struct route routes[] = {
	{ "GET", "/healthz", 0, false, serve_health },
	{ "POST", "/v1/exec", SBX_BOXTOKEN_EXEC, true, serve_exec },
	{ "GET", "/v1/result", SBX_BOXTOKEN_RESULT, true, serve_result },
	{ "POST", "/v1/kill", SBX_BOXTOKEN_KILL, true, serve_kill },
};

/* ---- requests ---- */

static int find_route(const char *method, const char *path, const struct route **ret, struct sbx_err *err)
{
	bool known = false;

	for (size_t i = 0; i < SBX_ARRAY_LEN(routes); i++) {
		if (strcmp(routes[i].path, path) != 0)
			continue;
		known = true;
		if (strcmp(routes[i].method, method) == 0) {
			*ret = &routes[i];
			return 0;
		}
	}
	if (known)
		return SBX_FAIL(err, SBX_E_METHOD, "This path does not take %.16s", method);
	return SBX_FAIL(err, SBX_E_NOT_FOUND, "No such path");
}

/* All that the header alone decides, so that no byte of a body is taken from who may not send it. */
static int check_head(struct call *c, struct sbx_err *err)
{
	const char *id = MHD_lookup_connection_value(c->con, MHD_GET_ARGUMENT_KIND, "id");
	const char *length = MHD_lookup_connection_value(c->con, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
	int64_t n;

	if (c->route->purpose != 0 &&
		boxd_auth_check(MHD_lookup_connection_value(c->con, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION),
			c->route->purpose, err) < 0)
		return -1;
	if (c->route->has_id && !(id && sbx_exec_id_ok(sbx_str_of(id))))
		return SBX_FAIL(err, SBX_E_INVALID, "id must be %u lower-case hex digits", SBX_EXEC_ID_LEN);
	if (c->route->has_id)
		memcpy(c->id, id, SBX_EXEC_ID_LEN);
	if (length && !sbx_str_i64(sbx_str_of(length), 0, SBX_EXEC_REQUEST_MAX, &n))
		return SBX_FAIL(err, SBX_E_TOO_LARGE, "A request has at most %u bytes", SBX_EXEC_REQUEST_MAX);
	return 0;
}

static enum MHD_Result new_call(struct MHD_Connection *con, const char *path, const char *method, void **con_cls)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct call *c = calloc(1, sizeof(*c));

	if (!c)
		return MHD_NO;
	c->con = con;
	sbx_buf_init(&c->body, SBX_EXEC_REQUEST_MAX);
	c->next = calls;
	calls = c;
	*con_cls = c;
	if (find_route(method, path, &c->route, &err) < 0 || check_head(c, &err) < 0)
		return send_error(con, &err);
	return MHD_YES;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *con, const char *path, const char *method,
	const char *version, const char *data, size_t *n, void **con_cls)
{
	struct call *c = *con_cls;

	(void)cls;
	(void)version;
	if (!c)
		return new_call(con, path, method, con_cls);
	if (*n) {
		sbx_buf_add(&c->body, data, *n);
		*n = 0;
		return MHD_YES;
	}
	return c->phase == WAITING ? answer(c) : c->route->serve(c);
}

static void on_completed(void *cls, struct MHD_Connection *con, void **con_cls, enum MHD_RequestTerminationCode why)
{
	struct call *c = *con_cls;

	(void)cls;
	(void)con;
	(void)why;
	answered++;
	if (!c)
		return;
	for (struct call **link = &calls; *link; link = &(*link)->next) {
		if (*link == c) {
			*link = c->next;
			break;
		}
	}
	if (c->has_reader)
		exec_reader_close(&c->reader);
	sbx_buf_done(&c->body);
	free(c);
	*con_cls = NULL;
}

uint64_t http_answered(void)
{
	return answered;
}

int http_open(int listen_fd, const struct boxd_conf *c, struct sbx_err *err)
{
	conf = c;
	daemon_ = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, NULL,
		MHD_OPTION_LISTEN_SOCKET, listen_fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
		MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_END);
	if (!daemon_)
		return SBX_FAIL(err, SBX_E_INTERNAL, "Cannot start the HTTP server");
	return 0;
}

/* ---- which boxd this is ---- */

static int take_build_id(struct dl_phdr_info *info, size_t size, void *out)
{
	struct sbx_buf *b = out;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const char *at = (const char *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
		size_t left = info->dlpi_phdr[i].p_memsz;

		while (info->dlpi_phdr[i].p_type == PT_NOTE && left >= sizeof(ElfW(Nhdr))) {
			const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)at;
			size_t name = (note->n_namesz + 3u) & ~3u, desc = (note->n_descsz + 3u) & ~3u;

			if (left < sizeof(*note) + name + desc)
				break;
			if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == sizeof("GNU")) {
				sbx_buf_hex(b, at + sizeof(*note) + name, note->n_descsz);
				return 1;
			}
			at += sizeof(*note) + name + desc;
			left -= sizeof(*note) + name + desc;
		}
	}
	return 1; /* the first object is the program itself */
}

const char *boxd_build_id(void)
{
	static struct sbx_buf b;

	if (!b.max) {
		sbx_buf_init(&b, 128);
		dl_iterate_phdr(take_build_id, &b);
	}
	return sbx_buf_z(&b);
}
