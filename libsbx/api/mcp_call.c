/* tools/call: runs a tool and turns what it gives, or how it fails, into a result that a model reads. */
#include <cjson/cJSON.h>

#include "api/mcp.h"
#include "sbx/log.h"

static void modern_type(struct sbx_jw *w, const struct rpc *rpc)
{
	if (rpc->modern)
		sbx_jw_z(w, "resultType", "complete");
}

/* A tool that failed is a result that the model reads: code first, so that it can be matched. */
static void tool_error(struct sbx_exchange *x, const struct rpc *rpc, const struct sbx_err *err)
{
	sbx_auto_buf struct sbx_buf text;
	struct sbx_jw w;

	sbx_buf_init(&text, sizeof(err->msg) + 200);
	sbx_buf_addf(&text, "%s: %s", sbx_code_wire(err->code), err->msg);
	mcp_envelope(x, rpc->id, &w);
	sbx_jw_obj(&w, "result");
	sbx_jw_arr(&w, "content");
	sbx_jw_obj(&w, NULL);
	sbx_jw_z(&w, "type", "text");
	sbx_jw_s(&w, "text", sbx_buf_str(&text));
	sbx_jw_end(&w);
	sbx_jw_end(&w);
	sbx_jw_bool(&w, "isError", true);
	modern_type(&w, rpc);
	sbx_jw_obj(&w, "_meta");
	sbx_jw_z(&w, "code", sbx_code_wire(err->code));
	sbx_jw_bool(&w, "retryable", sbx_code_retryable(err->code));
	if (rpc->modern)
		mcp_server_info(&w, MCP_META_SERVER);
	sbx_jw_end(&w);
	sbx_jw_end(&w);
	sbx_jw_end(&w);
	mcp_reply(x, 200);
}

static void tool_result(struct sbx_exchange *x, const struct rpc *rpc)
{
	struct sbx_str object = sbx_buf_str(&rpc->result);
	struct sbx_jw w;

	mcp_envelope(x, rpc->id, &w);
	sbx_jw_obj(&w, "result");
	sbx_jw_arr(&w, "content");
	sbx_jw_obj(&w, NULL);
	sbx_jw_z(&w, "type", "text");
	sbx_jw_s(&w, "text", object);
	sbx_jw_end(&w);
	sbx_jw_end(&w);
	if (rpc->tool->out.rows)
		sbx_jw_raw(&w, "structuredContent", object);
	modern_type(&w, rpc);
	if (rpc->modern) {
		sbx_jw_obj(&w, "_meta");
		mcp_server_info(&w, MCP_META_SERVER);
		sbx_jw_end(&w);
	}
	sbx_jw_end(&w);
	sbx_jw_end(&w);
	mcp_reply(x, 200);
}

static void log_failure(const struct sbx_exchange *x, const struct rpc *rpc, const struct sbx_err *err)
{
	enum sbx_log_level level = sbx_code_http(err->code) >= 500 ? SBX_LOG_WARN : SBX_LOG_DEBUG;

	sbx_log_err(level, "tool.failed", err, sbx_kv_s("tool", rpc->tool->name), sbx_kv_s("req", x->in.request_id),
		sbx_kv_s("tenant", x->call.who.tenant_id));
}

static enum sbx_step tool_finish(struct sbx_exchange *x, enum sbx_step step, struct sbx_err *err)
{
	struct rpc *rpc = x->state;

	if (step == SBX_WAITING) {
		rpc->parked = true;
		return SBX_WAITING;
	}
	if (step == SBX_DONE) {
		sbx_jw_end(&rpc->w);
		if (sbx_buf_ok(&rpc->result, err) == 0)
			tool_result(x, rpc);
	}
	if (err->code == SBX_OK)
		return SBX_DONE;
	log_failure(x, rpc, err);
	/* Nothing has begun: clients and proxies may simply repeat the request. */
	if (err->code == SBX_E_UNAVAILABLE && !rpc->parked)
		return mcp_failure(x, rpc->id, RPC_INTERNAL, err);
	tool_error(x, rpc, err);
	return SBX_DONE;
}

static enum sbx_step tool_resume(struct sbx_exchange *x)
{
	struct rpc *rpc = x->state;
	struct sbx_err err = SBX_ERR_INIT;

	/* The client has closed its response, which cancels (2026-07-28): nobody will read what is written. */
	if (x->call.cancelled && x->call.cancel) {
		x->call.resume = x->call.cancel;
		x->call.cancel = NULL;
	}
	return tool_finish(x, x->call.resume(&x->call, &rpc->w, &err), &err);
}

static void tool_abort(struct sbx_exchange *x)
{
	struct sbx_err err = SBX_ERR_INIT;

	SBX_FAIL(&err, SBX_E_UNAVAILABLE,
		"The server restarts. What was begun goes on: ask sandbox_status or sandbox_result, then retry.");
	if (x->streaming)
		tool_error(x, x->state, &err);
	else
		mcp_failure(x, ((struct rpc *)x->state)->id, RPC_INTERNAL, &err);
}

static void result_done(void *b)
{
	sbx_buf_done(b);
}

enum sbx_step mcp_tools_call(struct sbx_exchange *x, struct rpc *rpc)
{
	const cJSON *name = sbx_json_get(rpc->params, "name"), *arguments = sbx_json_get(rpc->params, "arguments");
	struct sbx_err err = SBX_ERR_INIT;

	if (!cJSON_IsString(name))
		return mcp_error(x, 200, rpc->id, RPC_PARAMS, "params.name must be the name of a tool");
	rpc->tool = sbx_tool_find(&sbx_catalogue_box, sbx_str_of(name->valuestring));
	if (!rpc->tool)
		return mcp_error(x, 200, rpc->id, RPC_PARAMS, "Unknown tool; see tools/list");
	sbx_buf_init(&rpc->result, SBX_REPLY_MAX / 2);
	if (sbx_arena_defer(x->call.arena, result_done, &rpc->result) < 0)
		return mcp_error(x, 200, rpc->id, RPC_INTERNAL, "Out of memory");
	sbx_jw_init(&rpc->w, &rpc->result);
	sbx_jw_obj(&rpc->w, NULL);
	x->state = rpc;
	x->resume = tool_resume;
	x->cancel_when_gone = rpc->modern;
	x->abort = tool_abort;
	return tool_finish(x, sbx_tool_call(rpc->tool, &x->call, arguments, &rpc->w, &err), &err);
}
