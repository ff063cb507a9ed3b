/* Tools that run commands in a box: sandbox_exec and sandbox_result. */
#include <string.h>

#include "sbx/box.h"
#include "sbx/clock.h"
#include "sbx/enc.h"
#include "sbx/tool.h"
#include "sbx/utf8.h"

#define DB_TAKE_MS 3000
#define ANSWER_SLACK_MS 30000 /* what boxd may take beyond the command's own time-out */
#define REJOIN_MAX 5          /* a broken transport is joined again: the exec id makes that safe */
#define REJOIN_DELAY_MS 300

struct exec_args {
	const char *id, *cmd, *cwd, *note;
	struct sbx_opt_int timeout_sec;
	struct sbx_opt_bool background;
};

struct result_args {
	const char *id, *exec_id, *bg_id;
	struct sbx_opt_int wait_sec;
};

static bool id_ok(const char *v)
{
	return sbx_exec_id_ok(sbx_str_of(v));
}

static const struct sbx_field exec_in[] = {
	SBX_IN(struct exec_args, id, "id", "the box", .required = true, .min = 1, .max = 100),
	SBX_IN(struct exec_args, cmd, "cmd", "the command, run as root with /bin/bash -c", .required = true, .min = 1,
		.max = 1000000),
	SBX_IN(struct exec_args, cwd, "cwd", "directory to run in, relative to /work, which is the default",
		.max = 4000),
	SBX_IN(struct exec_args, timeout_sec, "timeoutSec",
		"end the command after so long: exitCode 124 and timedOut; default and maximum 3600", .min = 1,
		.max = SBX_EXEC_TIMEOUT_MAX_S),
	SBX_IN(struct exec_args, background, "background",
		"return at once with a bgId; the command goes on, its output goes to files under /work/.sbx/"),
	SBX_IN(struct exec_args, note, "note", "one line that people see as what is being done now", .max = 1000),
};

static const struct sbx_field result_in[] = {
	SBX_IN(struct result_args, id, "id", "the box", .required = true, .min = 1, .max = 100),
	SBX_IN(struct result_args, exec_id, "execId", "of a command, as sandbox_exec gave it (or bgId)",
		.pattern = "^[0-9a-f]{32}$", .check = id_ok),
	SBX_IN(struct result_args, bg_id, "bgId", "of a background command (or execId)", .pattern = "^[0-9a-f]{32}$",
		.check = id_ok),
	SBX_IN(struct result_args, wait_sec, "waitSec", "wait at most so long for its end; default 0",
		.max = SBX_EXEC_TIMEOUT_MAX_S),
};

#define EXEC_OUTPUT \
	SBX_OUT("stdout", STR, "what it printed; invalid UTF-8 is replaced"), \
		SBX_OUT("stderr", STR, "what it printed to standard error"), \
		SBX_OUT("exitCode", INT, "exit code, 128 + signal, or 124 after a time-out; null while it runs", \
			.nullable = true), \
		SBX_OUT("bgId", STR, "of a background command, for sandbox_result", .nullable = true), \
		SBX_OUT("execId", STR, "of this command, for sandbox_result"), \
		SBX_OUT("timedOut", BOOL, "ended because its time was over"), \
		SBX_OUT("truncated", BOOL, \
			"it printed more than this answer carries; whole in stdoutFile, stderrFile"), \
		SBX_OUT("durationMs", INT, "how long it ran, so far"), \
		SBX_OUT("stdoutFile", STR, "file in the box with all it printed, when there is one", \
			.nullable = true), \
		SBX_OUT("stderrFile", STR, "the same for standard error", .nullable = true)

static const struct sbx_field exec_out[] = { EXEC_OUTPUT };
static const struct sbx_field result_out[] = {
	EXEC_OUTPUT,
	SBX_OUT("running", BOOL, "it has not ended yet"),
};

struct running {
	struct sbx_box box;
	char exec_id[SBX_EXEC_ID_LEN + 1];
	const char *path;
	enum sbx_boxtoken_purpose purpose;
	struct sbx_str body;
	int64_t timeout_ms;
	bool background, is_result;
	int joined;
	struct sbx_exec_answer *answer;
};

static void stream(struct sbx_jw *w, const char *key, const struct sbx_buf *b, bool truncated)
{
	struct sbx_str s = sbx_buf_str(b);

	/* A cut must not leave half a character. */
	if (truncated && s.n == SBX_EXEC_STREAM_MAX)
		s = sbx_utf8_cut(s, s.n - 1);
	sbx_jw_s(w, key, s);
}

static void file_name(struct sbx_jw *w, const char *key, const struct running *r, const char *ending)
{
	char path[sizeof("/work/.sbx/") + SBX_EXEC_ID_LEN + 8];
	struct sbx_str parts[] = { SBX_STR("/work/.sbx/"), sbx_str_of(r->exec_id), sbx_str_of(ending) };
	size_t n = 0;

	if (!r->background && !r->answer->end.truncated) {
		sbx_jw_null(w, key);
		return;
	}
	for (size_t i = 0; i < SBX_ARRAY_LEN(parts); i++) {
		memcpy(path + n, parts[i].p, parts[i].n);
		n += parts[i].n;
	}
	sbx_jw_s(w, key, (struct sbx_str){ path, n });
}

static enum sbx_step write_answer(const struct running *r, struct sbx_jw *out)
{
	const struct sbx_wire_end *end = &r->answer->end;

	stream(out, "stdout", &r->answer->out, end->truncated);
	stream(out, "stderr", &r->answer->err, end->truncated);
	if (end->running)
		sbx_jw_null(out, "exitCode");
	else
		sbx_jw_i(out, "exitCode", end->exit_code);
	sbx_jw_z(out, "bgId", r->background ? r->exec_id : NULL);
	sbx_jw_z(out, "execId", r->exec_id);
	sbx_jw_bool(out, "timedOut", end->timed_out);
	sbx_jw_bool(out, "truncated", end->truncated);
	sbx_jw_i(out, "durationMs", (int64_t)end->duration_ms);
	file_name(out, "stdoutFile", r, ".out");
	file_name(out, "stderrFile", r, ".err");
	if (r->is_result)
		sbx_jw_bool(out, "running", end->running);
	return SBX_DONE;
}

static enum sbx_step answered(struct sbx_call *call, struct sbx_jw *out, struct sbx_err *err);

static enum sbx_step ask(struct sbx_call *call, struct running *r, int64_t delay_ms, struct sbx_err *err)
{
	sbx_exec_answer_reset(r->answer);
	if (sbx_boxd_request(call, &r->box, r->purpose, r->path, r->body, r->timeout_ms, err) < 0)
		return SBX_FAILED;
	call->wait.delay_ms = delay_ms;
	call->wait.request->sink = sbx_exec_answer_sink;
	call->wait.request->arg = r->answer;
	call->state = r;
	call->resume = answered;
	return SBX_WAITING;
}

/* Whether the box still is what it was: an interruption explains a broken connection best. */
static int look_again(struct sbx_call *call, struct running *r, struct sbx_err *err)
{
	sbx_auto_db struct sbx_db *db = sbx_db_take(call->app->pool, DB_TAKE_MS, err);
	struct sbx_box now = { 0 };

	if (!db || sbx_box_find(db, call, r->box.id, false, NULL, &now, err) < 0)
		return -1;
	if (sbx_box_usable(&now, err) < 0)
		return sbx_err_wrap(err, "The command was cut off and may have run (execId %s)", r->exec_id);
	r->box = now;
	return 0;
}

static enum sbx_step answered(struct sbx_call *call, struct sbx_jw *out, struct sbx_err *err)
{
	struct running *r = call->state;
	struct sbx_box_request *req = call->wait.request;

	if (req->status == 200 && r->answer->ended)
		return write_answer(r, out);
	if (req->status >= 400 && req->whole) {
		sbx_boxd_failure(call, req, sbx_buf_str(&r->answer->raw), err);
		return SBX_FAILED;
	}
	if (r->answer->broken) {
		SBX_FAIL(err, SBX_E_UNCERTAIN, "The box answered what is no answer. The command may have run.");
		return SBX_FAILED;
	}
	if (look_again(call, r, err) < 0)
		return SBX_FAILED;
	if (r->joined++ < REJOIN_MAX)
		return ask(call, r, REJOIN_DELAY_MS * r->joined, err);
	sbx_boxd_failure(call, req, SBX_STR(""), err);
	sbx_err_wrap(err, "execId %s", r->exec_id);
	return SBX_FAILED;
}

static enum sbx_step killed(struct sbx_call *call, struct sbx_jw *out, struct sbx_err *err)
{
	(void)call;
	(void)out;
	SBX_FAIL(err, SBX_E_GONE, "The caller gave up; the command was ended.");
	return SBX_FAILED;
}

/* The caller closed its response: all of the command is ended. */
static enum sbx_step cancel(struct sbx_call *call, struct sbx_jw *out, struct sbx_err *err)
{
	struct running *r = call->state;
	const char *path = sbx_arena_printf(call->arena, "/v1/kill?id=%s", r->exec_id);

	(void)out;
	sbx_exec_answer_reset(r->answer);
	if (!path || sbx_boxd_request(call, &r->box, SBX_BOXTOKEN_KILL, path, SBX_STR(""), ANSWER_SLACK_MS, err) < 0)
		return SBX_FAILED;
	call->wait.request->sink = sbx_exec_answer_sink;
	call->wait.request->arg = r->answer;
	call->resume = killed;
	return SBX_WAITING;
}

static struct running *begin(struct sbx_call *call, const char *id, bool use, const char *note, struct sbx_err *err)
{
	sbx_auto_db struct sbx_db *db = sbx_db_take(call->app->pool, DB_TAKE_MS, err);
	struct running *r = sbx_arena_alloc(call->arena, sizeof(*r));

	if (!db)
		return NULL;
	if (r)
		r->answer = sbx_exec_answer_new(call->arena);
	if (!r || !r->answer) {
		SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
		return NULL;
	}
	if (sbx_box_find(db, call, id, use, note, &r->box, err) < 0 || sbx_box_usable(&r->box, err) < 0)
		return NULL;
	return r;
}

static void body_done(void *b)
{
	sbx_buf_done(b);
}

/* The request frames, in memory of their own that dies with the call. */
static int exec_body(struct sbx_call *call, struct running *r, const struct exec_args *a, struct sbx_err *err)
{
	struct sbx_buf *b = sbx_arena_alloc(call->arena, sizeof(*b));

	if (!b)
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	sbx_buf_init(b, SBX_EXEC_REQUEST_MAX);
	if (sbx_arena_defer(call->arena, body_done, b) < 0)
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	sbx_frame_addz(b, SBX_WIRE_CMD, a->cmd);
	if (a->cwd && a->cwd[0])
		sbx_frame_addz(b, SBX_WIRE_CWD, a->cwd);
	sbx_frame_add_u64(b, SBX_WIRE_TIMEOUT_MS,
		(uint64_t)(a->timeout_sec.set ? a->timeout_sec.v : SBX_EXEC_TIMEOUT_MAX_S) * 1000);
	if (r->background)
		sbx_frame_add(b, SBX_WIRE_BACKGROUND, "", 0);
	if (a->note)
		sbx_frame_addz(b, SBX_WIRE_NOTE, a->note);
	r->body = sbx_buf_str(b);
	return sbx_buf_ok(b, err);
}

static enum sbx_step exec(struct sbx_call *call, const void *v, struct sbx_jw *out, struct sbx_err *err)
{
	const struct exec_args *a = v;
	struct running *r = begin(call, a->id, true, a->note, err);
	uint8_t id[SBX_EXEC_ID_LEN / 2];

	(void)out;
	if (!r || sbx_random(id, sizeof(id), err) < 0)
		return SBX_FAILED;
	sbx_hexz(id, sizeof(id), r->exec_id);
	r->background = a->background.v;
	r->purpose = SBX_BOXTOKEN_EXEC;
	r->timeout_ms = (a->timeout_sec.set ? a->timeout_sec.v : SBX_EXEC_TIMEOUT_MAX_S) * 1000 + ANSWER_SLACK_MS;
	r->path = sbx_arena_printf(call->arena, "/v1/exec?id=%s", r->exec_id);
	if (!r->path || exec_body(call, r, a, err) < 0) {
		SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
		return SBX_FAILED;
	}
	if (!r->background)
		call->cancel = cancel;
	return ask(call, r, 0, err);
}

static enum sbx_step result(struct sbx_call *call, const void *v, struct sbx_jw *out, struct sbx_err *err)
{
	const struct result_args *a = v;
	struct running *r;

	(void)out;
	if (!a->exec_id == !a->bg_id) {
		SBX_FAIL(err, SBX_E_INVALID, "Give `execId` or `bgId`, one of them");
		return SBX_FAILED;
	}
	r = begin(call, a->id, false, NULL, err);
	if (!r)
		return SBX_FAILED;
	r->is_result = true;
	r->background = a->bg_id != NULL;
	if (!sbx_str_copyz(sbx_str_of(a->bg_id ? a->bg_id : a->exec_id), r->exec_id, sizeof(r->exec_id)))
		SBX_UNREACHABLE();
	r->purpose = SBX_BOXTOKEN_RESULT;
	r->timeout_ms = a->wait_sec.v * 1000 + ANSWER_SLACK_MS;
	r->path = sbx_arena_printf(
		call->arena, "/v1/result?id=%s&waitMs=%lld", r->exec_id, (long long)a->wait_sec.v * 1000);
	if (!r->path) {
		SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
		return SBX_FAILED;
	}
	return ask(call, r, 0, err);
}

const struct sbx_tool sbx_tool_sandbox_exec = {
	.name = "sandbox_exec",
	.title = "Run a command",
	.description =
		"Runs a command in a box and returns what it printed and its exit code. Standard input is empty. "
		"For the display run with DISPLAY=:99.",
	.in = SBX_FIELDS(exec_in, struct exec_args),
	.out = SBX_OUT_FIELDS(exec_out),
	.flags = SBX_TOOL_DESTRUCTIVE | SBX_TOOL_OPEN_WORLD,
	.run = exec,
};

const struct sbx_tool sbx_tool_sandbox_result = {
	.name = "sandbox_result",
	.title = "Result of a command",
	.description =
		"Waits for a command that sandbox_exec began and returns what sandbox_exec would have. Kept for an "
		"hour after its end, while the box lives.",
	.in = SBX_FIELDS(result_in, struct result_args),
	.out = SBX_OUT_FIELDS(result_out),
	.flags = SBX_TOOL_READ_ONLY | SBX_TOOL_IDEMPOTENT,
	.run = result,
};
