/* Replies of the MCP endpoint: JSON-RPC 2.0 envelopes, errors, results. */
#include "api/mcp.h"

void mcp_reply(struct sbx_exchange *x, int status)
{
	x->out.status = status;
	x->out.type = "application/json";
}

void mcp_envelope(struct sbx_exchange *x, struct sbx_str id, struct sbx_jw *w)
{
	sbx_buf_reset(&x->out.body);
	sbx_jw_init(w, &x->out.body);
	sbx_jw_obj(w, NULL);
	sbx_jw_z(w, "jsonrpc", "2.0");
	if (id.n)
		sbx_jw_raw(w, "id", id);
}

enum sbx_step mcp_error_data(struct sbx_exchange *x, int status, struct sbx_str id, enum rpc_code code,
	const char *message, void (*write_data)(struct sbx_jw *w, const void *arg), const void *arg)
{
	struct sbx_jw w;

	mcp_envelope(x, id, &w);
	sbx_jw_obj(&w, "error");
	sbx_jw_i(&w, "code", code);
	sbx_jw_z(&w, "message", message);
	if (write_data) {
		sbx_jw_obj(&w, "data");
		write_data(&w, arg);
		sbx_jw_end(&w);
	}
	sbx_jw_end(&w);
	sbx_jw_end(&w);
	x->stream_now = false;
	mcp_reply(x, status);
	return SBX_DONE;
}

enum sbx_step mcp_error(struct sbx_exchange *x, int status, struct sbx_str id, enum rpc_code code, const char *message)
{
	return mcp_error_data(x, status, id, code, message, NULL, NULL);
}

static void failure_data(struct sbx_jw *w, const void *arg)
{
	const struct sbx_err *err = arg;

	sbx_jw_z(w, "code", sbx_code_wire(err->code));
	sbx_jw_bool(w, "retryable", sbx_code_retryable(err->code));
}

enum sbx_step mcp_failure(struct sbx_exchange *x, struct sbx_str id, enum rpc_code code, const struct sbx_err *err)
{
	sbx_reply_problem(x, err); /* for status and headers */
	return mcp_error_data(x, x->out.status, id, code, err->msg, failure_data, err);
}

void mcp_server_info(struct sbx_jw *w, const char *key)
{
	sbx_jw_obj(w, key);
	sbx_jw_z(w, "name", sbx_catalogue_box.name);
	sbx_jw_z(w, "title", sbx_catalogue_box.title);
	sbx_jw_z(w, "version", SBX_VERSION);
	sbx_jw_end(w);
}

enum sbx_step mcp_result(struct sbx_exchange *x, const struct rpc *rpc, struct sbx_str result)
{
	struct sbx_jw w;

	mcp_envelope(x, rpc->id, &w);
	sbx_jw_raw(&w, "result", result);
	sbx_jw_end(&w);
	mcp_reply(x, 200);
	return SBX_DONE;
}

enum sbx_step mcp_accepted(struct sbx_exchange *x)
{
	x->out.status = 202;
	x->out.type = NULL;
	x->stream_now = false;
	return SBX_DONE;
}
