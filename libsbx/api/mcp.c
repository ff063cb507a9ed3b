/*
 * The MCP endpoint: Streamable HTTP, stateless (Model Context Protocol, versions 2024-11-05 to
 * 2025-11-25, "Transports" and "Tools"). No session is ever issued, one that a client sends is
 * ignored. Answers are JSON; a call that takes long becomes an event stream.
 *
 * Every request runs through the steps of post() in their order: key, media type, JSON, envelope,
 * notification, version, method.
 */
#include <cjson/cJSON.h>
#include <string.h>

#include "api/api.h"
#include "sbx/clock.h"
#include "sbx/log.h"
#include "sbx/tool.h"

enum rpc_code {
	RPC_PARSE = -32700,
	RPC_INVALID_REQUEST = -32600,
	RPC_METHOD = -32601,
	RPC_PARAMS = -32602,
	RPC_INTERNAL = -32603,
	RPC_SERVER = -32000, /* what the SDKs of 2025 use for transport matters */
};

/* The newest first: offered to clients that ask for an unknown one. */
static const char *const versions[] = { "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05" };

/* The result of tools/list, built once. */
static struct sbx_buf list_result;

struct rpc {
	struct sbx_str id; /* raw JSON of the request's id */
	const struct cJSON *params;
	const struct sbx_tool *tool;
	struct sbx_buf result; /* the tool's result object, while it is written */
	struct sbx_jw w;
	bool parked; /* the tool has waited: what it answers now is its own matter */
};

int sbx_mcp_init(struct sbx_err *err)
{
	struct sbx_jw w;

	sbx_buf_init(&list_result, 1024 * 1024);
	sbx_jw_init(&w, &list_result);
	sbx_jw_obj(&w, NULL);
	sbx_tool_list(&sbx_catalogue_box, &w, "tools");
	sbx_jw_end(&w);
	return sbx_buf_ok(&list_result, err);
}

/* Replies */

static void reply(struct sbx_exchange *x, int status)
{
	x->out.status = status;
	x->out.type = "application/json";
}

static void envelope(struct sbx_exchange *x, struct sbx_str id, struct sbx_jw *w)
{
	sbx_buf_reset(&x->out.body);
	sbx_jw_init(w, &x->out.body);
	sbx_jw_obj(w, NULL);
	sbx_jw_z(w, "jsonrpc", "2.0");
	if (id.n)
		sbx_jw_raw(w, "id", id);
}

static enum sbx_step rpc_error(
	struct sbx_exchange *x, int status, struct sbx_str id, enum rpc_code code, const char *message)
{
	struct sbx_jw w;

	envelope(x, id, &w);
	sbx_jw_obj(&w, "error");
	sbx_jw_i(&w, "code", code);
	sbx_jw_z(&w, "message", message);
	sbx_jw_end(&w);
	sbx_jw_end(&w);
	x->stream_now = false;
	reply(x, status);
	return SBX_DONE;
}

/* A failure outside a tool, with the code and whether to retry, for programs. */
static enum sbx_step rpc_failure(
	struct sbx_exchange *x, struct sbx_str id, enum rpc_code code, const struct sbx_err *err)
{
	struct sbx_jw w;

	sbx_reply_problem(x, err); /* for status and headers */
	envelope(x, id, &w);
	sbx_jw_obj(&w, "error");
	sbx_jw_i(&w, "code", code);
	sbx_jw_z(&w, "message", err->msg);
	sbx_jw_obj(&w, "data");
	sbx_jw_z(&w, "code", sbx_code_wire(err->code));
	sbx_jw_bool(&w, "retryable", sbx_code_retryable(err->code));
	sbx_jw_end(&w);
	sbx_jw_end(&w);
	sbx_jw_end(&w);
	x->stream_now = false;
	x->out.type = "application/json";
	return SBX_DONE;
}

static enum sbx_step rpc_result(struct sbx_exchange *x, const struct rpc *rpc, struct sbx_str result)
{
	struct sbx_jw w;

	envelope(x, rpc->id, &w);
	sbx_jw_raw(&w, "result", result);
	sbx_jw_end(&w);
	reply(x, 200);
	return SBX_DONE;
}

static enum sbx_step accepted(struct sbx_exchange *x)
{
	x->out.status = 202;
	x->out.type = NULL;
	x->stream_now = false;
	return SBX_DONE;
}

/* tools/call */

/* A tool that failed is a result that the model reads: code first, so that it can be matched. */
static void tool_error(struct sbx_exchange *x, const struct rpc *rpc, const struct sbx_err *err)
{
	sbx_auto_buf struct sbx_buf text;
	struct sbx_jw w;

	sbx_buf_init(&text, sizeof(err->msg) + 200);
	sbx_buf_addf(&text, "%s: %s", sbx_code_wire(err->code), err->msg);
	envelope(x, rpc->id, &w);
	sbx_jw_obj(&w, "result");
	sbx_jw_arr(&w, "content");
	sbx_jw_obj(&w, NULL);
	sbx_jw_z(&w, "type", "text");
	sbx_jw_s(&w, "text", sbx_buf_str(&text));
	sbx_jw_end(&w);
	sbx_jw_end(&w);
	sbx_jw_bool(&w, "isError", true);
	sbx_jw_obj(&w, "_meta");
	sbx_jw_z(&w, "code", sbx_code_wire(err->code));
	sbx_jw_bool(&w, "retryable", sbx_code_retryable(err->code));
	sbx_jw_end(&w);
	sbx_jw_end(&w);
	sbx_jw_end(&w);
	reply(x, 200);
}

static void tool_result(struct sbx_exchange *x, const struct rpc *rpc)
{
	struct sbx_str object = sbx_buf_str(&rpc->result);
	struct sbx_jw w;

	envelope(x, rpc->id, &w);
	sbx_jw_obj(&w, "result");
	sbx_jw_arr(&w, "content");
	sbx_jw_obj(&w, NULL);
	sbx_jw_z(&w, "type", "text");
	sbx_jw_s(&w, "text", object);
	sbx_jw_end(&w);
	sbx_jw_end(&w);
	if (rpc->tool->out.rows)
		sbx_jw_raw(&w, "structuredContent", object);
	sbx_jw_end(&w);
	sbx_jw_end(&w);
	reply(x, 200);
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
		return rpc_failure(x, rpc->id, RPC_INTERNAL, err);
	tool_error(x, rpc, err);
	return SBX_DONE;
}

static enum sbx_step tool_resume(struct sbx_exchange *x)
{
	struct rpc *rpc = x->state;
	struct sbx_err err = SBX_ERR_INIT;

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
		rpc_failure(x, ((struct rpc *)x->state)->id, RPC_INTERNAL, &err);
}

static void result_done(void *b)
{
	sbx_buf_done(b);
}

static enum sbx_step tools_call(struct sbx_exchange *x, struct rpc *rpc)
{
	const cJSON *name = sbx_json_get(rpc->params, "name"), *arguments = sbx_json_get(rpc->params, "arguments");
	struct sbx_err err = SBX_ERR_INIT;

	if (!cJSON_IsString(name))
		return rpc_error(x, 200, rpc->id, RPC_PARAMS, "params.name must be the name of a tool");
	rpc->tool = sbx_tool_find(&sbx_catalogue_box, sbx_str_of(name->valuestring));
	if (!rpc->tool)
		return rpc_error(x, 200, rpc->id, RPC_PARAMS, "Unknown tool; see tools/list");
	sbx_buf_init(&rpc->result, SBX_REPLY_MAX / 2);
	if (sbx_arena_defer(x->call.arena, result_done, &rpc->result) < 0)
		return rpc_error(x, 200, rpc->id, RPC_INTERNAL, "Out of memory");
	sbx_jw_init(&rpc->w, &rpc->result);
	sbx_jw_obj(&rpc->w, NULL);
	x->state = rpc;
	x->resume = tool_resume;
	x->abort = tool_abort;
	return tool_finish(x, sbx_tool_call(rpc->tool, &x->call, arguments, &rpc->w, &err), &err);
}

/* The other methods */

static bool version_known(const char *v)
{
	for (size_t i = 0; i < SBX_ARRAY_LEN(versions); i++)
		if (sbx_streq(v, versions[i]))
			return true;
	return false;
}

static enum sbx_step initialize(struct sbx_exchange *x, struct rpc *rpc)
{
	const cJSON *asked = sbx_json_get(rpc->params, "protocolVersion");
	const char *v = cJSON_IsString(asked) && version_known(asked->valuestring) ? asked->valuestring : versions[0];
	struct sbx_jw w;

	envelope(x, rpc->id, &w);
	sbx_jw_obj(&w, "result");
	sbx_jw_z(&w, "protocolVersion", v);
	sbx_jw_obj(&w, "capabilities");
	sbx_jw_obj(&w, "tools");
	sbx_jw_end(&w);
	sbx_jw_end(&w);
	sbx_jw_obj(&w, "serverInfo");
	sbx_jw_z(&w, "name", sbx_catalogue_box.name);
	sbx_jw_z(&w, "title", sbx_catalogue_box.title);
	sbx_jw_z(&w, "version", SBX_VERSION);
	sbx_jw_end(&w);
	sbx_jw_z(&w, "instructions", sbx_catalogue_box.instructions);
	sbx_jw_end(&w);
	sbx_jw_end(&w);
	reply(x, 200);
	return SBX_DONE;
}

static enum sbx_step ping(struct sbx_exchange *x, struct rpc *rpc)
{
	return rpc_result(x, rpc, SBX_STR("{}"));
}

static enum sbx_step tools_list(struct sbx_exchange *x, struct rpc *rpc)
{
	if (sbx_json_get(rpc->params, "cursor"))
		return rpc_error(
			x, 200, rpc->id, RPC_PARAMS, "All tools are on one page; no cursor was ever given out");
	return rpc_result(x, rpc, sbx_buf_str(&list_result));
}

static const struct {
	const char *name;
	enum sbx_step (*run)(struct sbx_exchange *x, struct rpc *rpc);
} methods[] = {
	{ "initialize", initialize },
	{ "ping", ping },
	{ "tools/list", tools_list },
	{ "tools/call", tools_call },
};

/* The endpoint */

static bool media_type_is(const char *header, const char *type)
{
	struct sbx_str h = sbx_str_of(header), first;

	return sbx_str_split(&h, ';', &first) && sbx_str_caseeqz(sbx_str_trim(first), type);
}

/*
 * Which form the client takes. Be lenient: a missing Accept and any wildcard take both.
 */
static void choose_form(struct sbx_exchange *x)
{
	struct sbx_str rest = sbx_str_of(x->in.accept), part;
	bool json = !x->in.accept, events = !x->in.accept;

	while (x->in.accept && sbx_str_split(&rest, ',', &part)) {
		struct sbx_str type;

		if (!sbx_str_split(&part, ';', &type))
			continue;
		type = sbx_str_trim(type);
		if (sbx_str_caseeqz(type, "*/*"))
			json = events = true;
		json |= sbx_str_caseeqz(type, "application/json") || sbx_str_caseeqz(type, "application/*");
		events |= sbx_str_caseeqz(type, "text/event-stream") || sbx_str_caseeqz(type, "text/*");
	}
	x->stream = events ? SBX_STREAM_EVENTS : SBX_STREAM_BLANKS;
	x->stream_now = events && !json;
}

static bool is_id(struct sbx_str raw)
{
	if (raw.n == 0)
		return false;
	if (raw.p[0] == '"')
		return true;
	for (size_t i = raw.p[0] == '-'; i < raw.n; i++)
		if (raw.p[i] < '0' || raw.p[i] > '9')
			return false;
	return raw.p[0] != '-' || raw.n > 1;
}

static enum sbx_step dispatch(struct sbx_exchange *x, struct rpc *rpc, const char *method)
{
	if (strcmp(method, "initialize") != 0 && x->in.mcp_version && !version_known(x->in.mcp_version))
		return rpc_error(x, 400, rpc->id, RPC_SERVER,
			"Unsupported MCP-Protocol-Version. Supported: 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05");
	for (size_t i = 0; i < SBX_ARRAY_LEN(methods); i++)
		if (strcmp(methods[i].name, method) == 0)
			return methods[i].run(x, rpc);
	return rpc_error(x, 200, rpc->id, RPC_METHOD, "Method not found");
}

static enum sbx_step post(struct sbx_exchange *x, struct rpc *rpc)
{
	const cJSON *tree, *method;
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_str none = { NULL, 0 };

	if (sbx_exchange_auth(x, &err) < 0)
		return rpc_failure(x, none, RPC_SERVER, &err);
	if (!media_type_is(x->in.content_type, "application/json")) {
		SBX_FAIL(&err, SBX_E_MEDIA_TYPE, "The Content-Type must be application/json");
		return rpc_failure(x, none, RPC_SERVER, &err);
	}
	tree = sbx_json_parse(x->call.arena, x->in.body, &err);
	if (!tree)
		return rpc_failure(x, none, RPC_PARSE, &err);
	if (!cJSON_IsObject(tree))
		return rpc_error(x, 400, none, RPC_INVALID_REQUEST,
			cJSON_IsArray(tree) ? "Batches are not served; send one message a request"
					    : "An object is expected");
	if (sbx_json_member_raw(x->in.body, "id", &rpc->id) && !is_id(rpc->id))
		return rpc_error(x, 400, none, RPC_INVALID_REQUEST, "The id must be a string or an integer");
	if (!cJSON_IsString(sbx_json_get(tree, "jsonrpc")) ||
		strcmp(sbx_json_get(tree, "jsonrpc")->valuestring, "2.0") != 0)
		return rpc_error(x, 400, rpc->id, RPC_INVALID_REQUEST, "jsonrpc must be \"2.0\"");
	method = sbx_json_get(tree, "method");
	if (!method && rpc->id.n && (sbx_json_get(tree, "result") || sbx_json_get(tree, "error")))
		return accepted(x); /* a response: we ask clients nothing, so there is nothing to do with it */
	if (!cJSON_IsString(method))
		return rpc_error(x, 400, rpc->id, RPC_INVALID_REQUEST, "method must be a string");
	if (!rpc->id.n)
		return accepted(x);
	rpc->params = sbx_json_get(tree, "params");
	if (rpc->params && !cJSON_IsObject(rpc->params))
		return rpc_error(x, 200, rpc->id, RPC_PARAMS, "params must be an object");
	return dispatch(x, rpc, method->valuestring);
}

enum sbx_step sbx_mcp(struct sbx_exchange *x)
{
	struct rpc *rpc = sbx_arena_alloc(x->call.arena, sizeof(*rpc));

	if (!rpc)
		return rpc_error(x, 503, (struct sbx_str){ NULL, 0 }, RPC_INTERNAL, "Out of memory");
	choose_form(x);
	return post(x, rpc);
}
