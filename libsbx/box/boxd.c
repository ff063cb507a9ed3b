/* The control plane's side of the protocol in sbx/boxwire.h. */
#include <cjson/cJSON.h>
#include <string.h>

#include "sbx/box.h"

/* A token is used at once; the rest is for clocks that drift while a call is parked. */
#define TOKEN_TTL_MS 120000u
#define ERROR_BODY_MAX (64u * 1024u)

int sbx_boxd_request(struct sbx_call *call, const struct sbx_box *box, enum sbx_boxtoken_purpose purpose,
	const char *path, struct sbx_str body, int64_t timeout_ms, struct sbx_err *err)
{
	struct sbx_box_request *r = sbx_arena_alloc(call->arena, sizeof(*r));
	char token[SBX_BOXTOKEN_TEXT + 1];

	if (!r)
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	if (sbx_keyring_boxd_token(
		    call->app->keys, purpose, box->kid, box->machine, box->epoch, TOKEN_TTL_MS, token, err) < 0)
		return -1;
	r->url = sbx_arena_printf(call->arena, "http://%s:%d%s", box->control_address, SBX_BOXD_PORT, path);
	r->authorization = sbx_arena_printf(call->arena, "Authorization: Sbx %s", token);
	r->post = purpose != SBX_BOXTOKEN_RESULT && purpose != SBX_BOXTOKEN_STATUS;
	r->body = body;
	r->timeout_ms = timeout_ms;
	if (!r->url || !r->authorization)
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	call->wait = (struct sbx_wait){ .kind = SBX_WAIT_REQUEST, .request = r };
	return 0;
}

static void answer_done(void *arg)
{
	struct sbx_exec_answer *x = arg;

	sbx_buf_done(&x->raw);
	sbx_buf_done(&x->out);
	sbx_buf_done(&x->err);
}

struct sbx_exec_answer *sbx_exec_answer_new(struct sbx_arena *a)
{
	struct sbx_exec_answer *x = sbx_arena_alloc(a, sizeof(*x));

	if (!x)
		return NULL;
	sbx_buf_init(&x->raw, SBX_EXEC_FRAME_MAX + SBX_FRAME_HEAD + 64 * 1024);
	sbx_buf_init(&x->out, SBX_EXEC_STREAM_MAX);
	sbx_buf_init(&x->err, SBX_EXEC_STREAM_MAX);
	return sbx_arena_defer(a, answer_done, x) < 0 ? NULL : x;
}

void sbx_exec_answer_reset(struct sbx_exec_answer *x)
{
	sbx_buf_reset(&x->raw);
	sbx_buf_reset(&x->out);
	sbx_buf_reset(&x->err);
	x->ended = x->broken = false;
}

static bool take_frame(struct sbx_exec_answer *x, const struct sbx_frame *f)
{
	if (x->ended)
		return false;
	switch (f->type) {
	case SBX_WIRE_OUT: sbx_buf_adds(&x->out, f->data); return !x->out.failed;
	case SBX_WIRE_ERR: sbx_buf_adds(&x->err, f->data); return !x->err.failed;
	case SBX_WIRE_END: x->ended = sbx_wire_end_read(f, &x->end); return x->ended;
	default: return true; /* keep-alives, and what a newer boxd may add */
	}
}

int sbx_exec_answer_sink(void *arg, long status, struct sbx_str piece)
{
	struct sbx_exec_answer *x = arg;
	struct sbx_frame f;
	struct sbx_str rest;
	int got;

	sbx_buf_adds(&x->raw, piece);
	if (x->raw.failed || (status != 200 && x->raw.n > ERROR_BODY_MAX)) {
		x->broken = true;
		return -1;
	}
	if (status != 200)
		return 0;
	rest = sbx_buf_str(&x->raw);
	do {
		got = sbx_frame_take(&rest, SBX_EXEC_FRAME_MAX, &f);
		if (got > 0 && !take_frame(x, &f))
			got = -1;
	} while (got > 0);
	if (got < 0) {
		x->broken = true;
		return -1;
	}
	sbx_buf_consume(&x->raw, x->raw.n - rest.n);
	return 0;
}

int sbx_boxd_failure(struct sbx_call *call, const struct sbx_box_request *r, struct sbx_str body, struct sbx_err *err)
{
	struct sbx_err ignored = SBX_ERR_INIT;
	const cJSON *tree, *code, *text;

	if (!r->connected)
		SBX_FAIL(err, SBX_E_UNAVAILABLE, "The box does not answer. Nothing was run; retry in a few seconds.");
	else if (!r->whole || r->status < 400)
		SBX_FAIL(err, SBX_E_UNCERTAIN,
			"The connection to the box broke. The command may have run: ask sandbox_result, or look in the box.");
	sbx_err_detail(err, "%s", r->why);
	tree = sbx_json_parse(call->arena, body, &ignored);
	code = sbx_json_get(tree, "code");
	text = sbx_json_get(tree, "error");
	if (!cJSON_IsString(code) || !cJSON_IsString(text))
		return SBX_FAIL(err, SBX_E_INTERNAL, "The box answered with status %ld.", r->status);
	/* A box is not trusted: that its boxd refuses our token says nothing about the caller. */
	if (r->status == 401 || r->status == 403)
		return SBX_FAIL(err, SBX_E_UNAVAILABLE, "The box refuses the control plane: %s", text->valuestring);
	return SBX_FAIL(err, sbx_code_from_wire(code->valuestring), "%s", text->valuestring);
}
