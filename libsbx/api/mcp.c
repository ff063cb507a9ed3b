/*
 * The MCP endpoint: Streamable HTTP, stateless, dual-era on one URL (Model Context Protocol, versions
 * 2024-11-05 to 2025-11-25 with their handshake, and 2026-07-28 without). No session is ever issued, one
 * that a client sends is ignored. Answers are JSON; a call that takes long becomes an event stream.
 *
 * Every request runs through the steps of post() in their order: key, media type, JSON, envelope,
 * notification, what its era asks, method.
 */
#include <cjson/cJSON.h>
#include <string.h>

#include "api/mcp.h"

/* The list does not change while a process lives, and is the same for every key. */
#define LIST_TTL_MS 300000

/* The result of tools/list, built once: what the modern era adds to it, clients of the other accept. */
static struct sbx_buf list_result;

static void cacheable(struct sbx_jw *w)
{
	sbx_jw_z(w, "resultType", "complete");
	sbx_jw_i(w, "ttlMs", LIST_TTL_MS);
	sbx_jw_z(w, "cacheScope", "public");
	sbx_jw_obj(w, "_meta");
	mcp_server_info(w, MCP_META_SERVER);
	sbx_jw_end(w);
}

int sbx_mcp_init(struct sbx_err *err)
{
	struct sbx_jw w;

	sbx_buf_init(&list_result, 1024 * 1024);
	sbx_jw_init(&w, &list_result);
	sbx_jw_obj(&w, NULL);
	sbx_tool_list(&sbx_catalogue_box, &w, "tools");
	cacheable(&w);
	sbx_jw_end(&w);
	return sbx_buf_ok(&list_result, err);
}

/* The methods */

static void capabilities(struct sbx_jw *w)
{
	sbx_jw_obj(w, "capabilities");
	sbx_jw_obj(w, "tools");
	sbx_jw_end(w);
	sbx_jw_end(w);
}

static enum sbx_step initialize(struct sbx_exchange *x, struct rpc *rpc)
{
	const cJSON *asked = sbx_json_get(rpc->params, "protocolVersion");
	bool known = cJSON_IsString(asked) && mcp_legacy_version(asked->valuestring);
	struct sbx_jw w;

	mcp_envelope(x, rpc->id, &w);
	sbx_jw_obj(&w, "result");
	sbx_jw_z(&w, "protocolVersion", known ? asked->valuestring : mcp_legacy_newest);
	capabilities(&w);
	mcp_server_info(&w, "serverInfo");
	sbx_jw_z(&w, "instructions", sbx_catalogue_box.instructions);
	sbx_jw_end(&w);
	sbx_jw_end(&w);
	mcp_reply(x, 200);
	return SBX_DONE;
}

static enum sbx_step discover(struct sbx_exchange *x, struct rpc *rpc)
{
	struct sbx_jw w;

	mcp_envelope(x, rpc->id, &w);
	sbx_jw_obj(&w, "result");
	mcp_versions(&w, "supportedVersions");
	capabilities(&w);
	sbx_jw_z(&w, "instructions", sbx_catalogue_box.instructions);
	cacheable(&w);
	sbx_jw_end(&w);
	sbx_jw_end(&w);
	mcp_reply(x, 200);
	return SBX_DONE;
}

static enum sbx_step ping(struct sbx_exchange *x, struct rpc *rpc)
{
	return mcp_result(x, rpc, SBX_STR("{}"));
}

static enum sbx_step tools_list(struct sbx_exchange *x, struct rpc *rpc)
{
	if (sbx_json_get(rpc->params, "cursor"))
		return mcp_error(
			x, 200, rpc->id, RPC_PARAMS, "All tools are on one page; no cursor was ever given out");
	return mcp_result(x, rpc, sbx_buf_str(&list_result));
}

enum era { LEGACY = 1, MODERN = 2 };

static const struct {
	const char *name;
	unsigned eras;
	enum sbx_step (*run)(struct sbx_exchange *x, struct rpc *rpc);
} methods[] = {
	{ "initialize", LEGACY, initialize },
	{ "ping", LEGACY, ping },
	{ "server/discover", MODERN, discover },
	{ "tools/list", LEGACY | MODERN, tools_list },
	{ "tools/call", LEGACY | MODERN, mcp_tools_call },
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

static enum sbx_step dispatch(struct sbx_exchange *x, struct rpc *rpc)
{
	unsigned era;

	rpc->modern = mcp_is_modern(x, rpc);
	era = rpc->modern ? MODERN : LEGACY;
	if (!mcp_check_version(x, rpc))
		return SBX_DONE;
	for (size_t i = 0; i < SBX_ARRAY_LEN(methods); i++)
		if (strcmp(methods[i].name, rpc->method) == 0 && (methods[i].eras & era))
			return methods[i].run(x, rpc);
	/* A 404 makes clients of the old era drop a session and loop; the new era asks for it. */
	return mcp_error(x, rpc->modern ? 404 : 200, rpc->id, RPC_METHOD, "Method not found");
}

static enum sbx_step post(struct sbx_exchange *x, struct rpc *rpc)
{
	const cJSON *tree, *method;
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_str none = { NULL, 0 };

	if (sbx_exchange_auth(x, &err) < 0)
		return mcp_failure(x, none, RPC_SERVER, &err);
	if (!media_type_is(x->in.content_type, "application/json")) {
		SBX_FAIL(&err, SBX_E_MEDIA_TYPE, "The Content-Type must be application/json");
		return mcp_failure(x, none, RPC_SERVER, &err);
	}
	tree = sbx_json_parse(x->call.arena, x->in.body, &err);
	if (!tree)
		return mcp_failure(x, none, RPC_PARSE, &err);
	if (!cJSON_IsObject(tree))
		return mcp_error(x, 400, none, RPC_INVALID_REQUEST,
			cJSON_IsArray(tree) ? "Batches are not served; send one message a request"
					    : "An object is expected");
	if (sbx_json_member_raw(x->in.body, "id", &rpc->id) && !is_id(rpc->id))
		return mcp_error(x, 400, none, RPC_INVALID_REQUEST, "The id must be a string or an integer");
	if (!cJSON_IsString(sbx_json_get(tree, "jsonrpc")) ||
		strcmp(sbx_json_get(tree, "jsonrpc")->valuestring, "2.0") != 0)
		return mcp_error(x, 400, rpc->id, RPC_INVALID_REQUEST, "jsonrpc must be \"2.0\"");
	method = sbx_json_get(tree, "method");
	if (!method && rpc->id.n && (sbx_json_get(tree, "result") || sbx_json_get(tree, "error")))
		return mcp_accepted(x); /* a response: we ask clients nothing, so there is nothing to do with it */
	if (!cJSON_IsString(method))
		return mcp_error(x, 400, rpc->id, RPC_INVALID_REQUEST, "method must be a string");
	if (!rpc->id.n)
		return mcp_accepted(x);
	rpc->params = sbx_json_get(tree, "params");
	if (rpc->params && !cJSON_IsObject(rpc->params))
		return mcp_error(x, 200, rpc->id, RPC_PARAMS, "params must be an object");
	rpc->method = method->valuestring;
	return dispatch(x, rpc);
}

enum sbx_step sbx_mcp(struct sbx_exchange *x)
{
	struct rpc *rpc = sbx_arena_alloc(x->call.arena, sizeof(*rpc));

	if (!rpc)
		return mcp_error(x, 503, (struct sbx_str){ NULL, 0 }, RPC_INTERNAL, "Out of memory");
	choose_form(x);
	return post(x, rpc);
}
