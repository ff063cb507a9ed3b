/*
 * The two eras of the protocol. Legacy versions begin with a handshake and name their version in a header
 * afterwards; modern ones (2026-07-28) carry version and capabilities in the metadata of every request
 * and mirror version, method and tool name in headers, which must agree with the body.
 */
#include <cjson/cJSON.h>
#include <string.h>

#include "api/mcp.h"
#include "sbx/enc.h"

#define LEGACY_NEWEST "2025-11-25"
const char *const mcp_legacy_newest = LEGACY_NEWEST;

/* The newest first. */
static const char *const legacy[] = { LEGACY_NEWEST, "2025-06-18", "2025-03-26", "2024-11-05" };

bool mcp_legacy_version(const char *v)
{
	for (size_t i = 0; i < SBX_ARRAY_LEN(legacy); i++)
		if (sbx_streq(v, legacy[i]))
			return true;
	return false;
}

void mcp_versions(struct sbx_jw *w, const char *key)
{
	sbx_jw_arr(w, key);
	sbx_jw_z(w, NULL, MCP_MODERN);
	for (size_t i = 0; i < SBX_ARRAY_LEN(legacy); i++)
		sbx_jw_z(w, NULL, legacy[i]);
	sbx_jw_end(w);
}

static const cJSON *meta(const struct rpc *rpc, const char *name)
{
	return sbx_json_get(sbx_json_get(rpc->params, "_meta"), name);
}

bool mcp_is_modern(const struct sbx_exchange *x, const struct rpc *rpc)
{
	if (meta(rpc, MCP_META_VERSION))
		return true;
	/* The handshake belongs to the legacy era, whatever its header says: tolerance costs no client. */
	return strcmp(rpc->method, "initialize") != 0 && sbx_streq(x->in.mcp_version, MCP_MODERN);
}

/*
 * A header value against the body's: as it stands, or as =?base64?…?= of UTF-8, for names that a header
 * cannot carry.
 */
static bool mirrors(const char *header, const char *value)
{
	static const char begin[] = "=?base64?", end[] = "?=";
	struct sbx_str h = sbx_str_of(header);
	char decoded[1024];
	size_t n;

	if (!header)
		return false;
	if (!sbx_str_starts(h, begin) || h.n < sizeof(begin) + sizeof(end) - 2 ||
		strcmp(h.p + h.n - (sizeof(end) - 1), end) != 0)
		return strcmp(header, value) == 0;
	h.p += sizeof(begin) - 1;
	h.n -= sizeof(begin) + sizeof(end) - 2;
	return sbx_base64_decode(h, decoded, sizeof(decoded), &n) && sbx_str_eqz((struct sbx_str){ decoded, n }, value);
}

static void version_data(struct sbx_jw *w, const void *requested)
{
	mcp_versions(w, "supported");
	sbx_jw_z(w, "requested", requested);
}

static bool mismatch(struct sbx_exchange *x, const struct rpc *rpc, const char *what)
{
	mcp_error(x, 400, rpc->id, RPC_HEADER_MISMATCH, what);
	return false;
}

static bool check_modern(struct sbx_exchange *x, const struct rpc *rpc)
{
	const cJSON *version = meta(rpc, MCP_META_VERSION), *name = sbx_json_get(rpc->params, "name");

	if (!cJSON_IsString(version) || !cJSON_IsObject(meta(rpc, MCP_META_CAPABILITIES))) {
		mcp_error(x, 400, rpc->id, RPC_PARAMS,
			"params._meta must hold " MCP_META_VERSION " (string) and " MCP_META_CAPABILITIES " (object)");
		return false;
	}
	if (!sbx_streq(x->in.mcp_version, version->valuestring))
		return mismatch(x, rpc, "The header MCP-Protocol-Version must be the version in params._meta");
	if (strcmp(version->valuestring, MCP_MODERN) != 0) {
		mcp_error_data(x, 400, rpc->id, RPC_VERSION, "Unsupported protocol version", version_data,
			version->valuestring);
		return false;
	}
	if (!mirrors(x->in.mcp_method, rpc->method))
		return mismatch(x, rpc, "The header Mcp-Method must be the method");
	if (strcmp(rpc->method, "tools/call") == 0 && cJSON_IsString(name) &&
		!mirrors(x->in.mcp_name, name->valuestring))
		return mismatch(x, rpc, "The header Mcp-Name must be params.name");
	return true;
}

bool mcp_check_version(struct sbx_exchange *x, const struct rpc *rpc)
{
	if (rpc->modern)
		return check_modern(x, rpc);
	if (strcmp(rpc->method, "initialize") == 0 || !x->in.mcp_version || mcp_legacy_version(x->in.mcp_version))
		return true;
	mcp_error(x, 400, rpc->id, RPC_SERVER,
		"Unsupported MCP-Protocol-Version. Supported: 2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05");
	return false;
}
