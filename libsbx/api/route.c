/* Finds the route of a request, and what all routes share: errors, headers, the key check. */
#include <string.h>

#include "api/api.h"
#include "sbx/log.h"

#define DB_TAKE_MS 2000

static const struct route {
	const char *path, *method;
	enum sbx_step (*run)(struct sbx_exchange *x);
} routes[] = {
#define X(path_, method_, handler) { .path = path_, .method = method_, .run = handler },
#include "api/routes.def"
#undef X
};

int sbx_route_init(const struct sbx_conf *conf, struct sbx_err *err)
{
	if (sbx_gate_init(conf->calls_per_tenant, err) < 0)
		return -1;
	return sbx_mcp_init(err);
}

void sbx_reply_header(struct sbx_exchange *x, const char *name, const char *value)
{
	sbx_buf_addz(&x->out.head, name);
	sbx_buf_addz(&x->out.head, ": ");
	sbx_buf_addz(&x->out.head, value);
	sbx_buf_addz(&x->out.head, "\r\n");
}

enum sbx_step sbx_reply_problem(struct sbx_exchange *x, const struct sbx_err *err)
{
	struct sbx_jw w;

	sbx_buf_reset(&x->out.body);
	sbx_jw_init(&w, &x->out.body);
	sbx_jw_obj(&w, NULL);
	sbx_jw_z(&w, "type", "about:blank");
	sbx_jw_z(&w, "title", sbx_code_title(err->code));
	sbx_jw_i(&w, "status", sbx_code_http(err->code));
	sbx_jw_z(&w, "detail", err->msg);
	sbx_jw_z(&w, "code", sbx_code_wire(err->code));
	sbx_jw_bool(&w, "retryable", sbx_code_retryable(err->code));
	sbx_jw_z(&w, "error", err->msg);
	sbx_jw_end(&w);
	x->out.status = sbx_code_http(err->code);
	x->out.type = "application/problem+json";
	if (x->out.status == 503)
		sbx_reply_header(x, "Retry-After", "2");
	if (x->out.status == 401)
		sbx_reply_header(x, "WWW-Authenticate", "Bearer realm=\"sbx\"");
	return SBX_DONE;
}

static enum sbx_step refuse(struct sbx_exchange *x, enum sbx_code code, const char *text)
{
	struct sbx_err err = SBX_ERR_INIT;

	SBX_FAIL(&err, code, "%s", text);
	return sbx_reply_problem(x, &err);
}

/* DNS rebinding and foreign pages: a browser always sends an Origin across sites. */
static bool from_allowed_place(const struct sbx_exchange *x)
{
	const struct sbx_conf *c = x->call.app->conf;

	if (x->in.origin && !sbx_conf_listed(c->allowed_origins, sbx_str_of(x->in.origin)))
		return false;
	return !c->allowed_hosts[0] || !x->in.host || sbx_conf_listed(c->allowed_hosts, sbx_str_of(x->in.host));
}

enum sbx_step sbx_route(struct sbx_exchange *x)
{
	bool known = false;

	if (!from_allowed_place(x))
		return refuse(x, SBX_E_FORBIDDEN, "This Origin or Host is not allowed here.");
	for (size_t i = 0; i < SBX_ARRAY_LEN(routes); i++) {
		if (strcmp(routes[i].path, x->in.path) != 0)
			continue;
		known = true;
		if (strcmp(routes[i].method, x->in.method) == 0)
			return routes[i].run(x);
	}
	if (!known)
		return refuse(x, SBX_E_NOT_FOUND, "There is nothing at this path.");
	for (size_t i = 0; i < SBX_ARRAY_LEN(routes); i++)
		if (strcmp(routes[i].path, x->in.path) == 0)
			sbx_reply_header(x, "Allow", routes[i].method);
	return refuse(x, SBX_E_METHOD, "This path does not take that method; see the Allow header.");
}

int sbx_exchange_auth(struct sbx_exchange *x, struct sbx_err *err)
{
	struct sbx_str h = sbx_str_trim(sbx_str_of(x->in.authorization)), scheme;
	sbx_auto_db struct sbx_db *db = NULL;

	if (h.n == 0)
		return SBX_FAIL(err, SBX_E_AUTH, "An API key is needed: Authorization: Bearer sbx_…");
	if (!sbx_str_split(&h, ' ', &scheme) || !sbx_str_caseeqz(scheme, "bearer"))
		return SBX_FAIL(err, SBX_E_AUTH, "The Authorization header must be: Bearer sbx_…");
	db = sbx_db_take(x->call.app->pool, DB_TAKE_MS, err);
	if (!db || sbx_auth_check(db, sbx_str_trim(h), &x->call.who, err) < 0)
		return -1;
	return sbx_gate_enter(x->call.arena, x->call.who.tenant_id, err);
}

/* /healthz: this process answers. /readyz: it can do its work. */
enum sbx_step sbx_healthz(struct sbx_exchange *x)
{
	x->out.status = 200;
	x->out.type = "application/json";
	sbx_buf_addz(&x->out.body, "{\"ok\":true,\"version\":\"" SBX_VERSION "\"}");
	return SBX_DONE;
}
