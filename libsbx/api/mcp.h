/* What the files of the MCP endpoint share. */
#ifndef SBX_API_MCP_H
#define SBX_API_MCP_H

#include "api/api.h"
#include "sbx/tool.h"

enum rpc_code {
	RPC_PARSE = -32700,
	RPC_INVALID_REQUEST = -32600,
	RPC_METHOD = -32601,
	RPC_PARAMS = -32602,
	RPC_INTERNAL = -32603,
	RPC_SERVER = -32000,          /* what the SDKs of 2025 use for transport matters */
	RPC_HEADER_MISMATCH = -32020, /* these two: version 2026-07-28 */
	RPC_VERSION = -32022,
};

#define MCP_MODERN "2026-07-28"
#define MCP_META_VERSION "io.modelcontextprotocol/protocolVersion"
#define MCP_META_CAPABILITIES "io.modelcontextprotocol/clientCapabilities"
#define MCP_META_SERVER "io.modelcontextprotocol/serverInfo"

/* One request, while it is answered; lives in the call's arena. */
struct rpc {
	struct sbx_str id; /* raw JSON of the request's id */
	const char *method;
	const struct cJSON *params;
	bool modern; /* by the rules of 2026-07-28: no handshake, metadata on every request */
	const struct sbx_tool *tool;
	struct sbx_buf result; /* the tool's result object, while it is written */
	struct sbx_jw w;
	bool parked; /* the tool has waited: what it answers now is its own matter */
};

/* mcp_reply.c: each ends the exchange and gives SBX_DONE. */
enum sbx_step mcp_error(struct sbx_exchange *x, int status, struct sbx_str id, enum rpc_code code, const char *message);
/* With `data`, whose members write_data adds. */
enum sbx_step mcp_error_data(struct sbx_exchange *x, int status, struct sbx_str id, enum rpc_code code,
	const char *message, void (*write_data)(struct sbx_jw *w, const void *arg), const void *arg);
/* A failure outside a tool: status and headers from the error, its code and whether to retry as data. */
enum sbx_step mcp_failure(struct sbx_exchange *x, struct sbx_str id, enum rpc_code code, const struct sbx_err *err);
enum sbx_step mcp_result(struct sbx_exchange *x, const struct rpc *rpc, struct sbx_str result);
enum sbx_step mcp_accepted(struct sbx_exchange *x);
/* The beginning of a reply; the caller writes `result` and ends the object. */
void mcp_envelope(struct sbx_exchange *x, struct sbx_str id, struct sbx_jw *w);
void mcp_reply(struct sbx_exchange *x, int status);
/* serverInfo, under key. */
void mcp_server_info(struct sbx_jw *w, const char *key);

/* mcp_call.c */
enum sbx_step mcp_tools_call(struct sbx_exchange *x, struct rpc *rpc);

/* mcp_version.c */
/* Whether the legacy rules know this version; the newest of them. */
bool mcp_legacy_version(const char *v);
extern const char *const mcp_legacy_newest;
/* All versions that are served, as an array. */
void mcp_versions(struct sbx_jw *w, const char *key);
/* Whether a request is to be treated by the modern rules. */
bool mcp_is_modern(const struct sbx_exchange *x, const struct rpc *rpc);
/*
 * Checks what the rules of its era ask of a request before its method is looked at. True when it may go
 * on; otherwise the reply is written.
 */
bool mcp_check_version(struct sbx_exchange *x, const struct rpc *rpc);

#endif
