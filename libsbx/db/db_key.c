/*
 * API keys: look-up, making, listing, revoking.
 */
#include "db/stmts.h"

/* No tenant is known yet: the function is SECURITY DEFINER and gives a row for a valid key only. */
const struct sbx_stmt sbx_stmt_key_auth = {
	.name = "key_auth",
	.sql = "select key_id, tenant_id, tenant, scope, plan, max_boxes from auth_key($1::bytea)",
	.params = 1,
	.columns = "key_id,tenant_id,tenant,scope,plan,max_boxes",
};

/* $1 tenant name, $2 name, $3 prefix, $4 hash, $5 scope, $6 days until it expires or null. */
const struct sbx_stmt sbx_stmt_key_add = {
	.name = "key_add",
	.sql = "insert into api_keys (tenant_id, name, prefix, hash, scope, expires_at)"
	       " select id, $2::text, $3::text, $4::bytea, $5::text,"
	       " now() + make_interval(days => $6::integer)"
	       " from tenants where name = $1::text"
	       " returning id",
	.params = 6,
	.columns = "id",
};

/* $1 id or prefix. */
const struct sbx_stmt sbx_stmt_key_find = {
	.name = "key_find",
	.sql = "select id, tenant, name, prefix, state from admin.keys"
	       " where id::text = $1::text or prefix = $1::text order by created_at, id",
	.params = 1,
	.columns = "id,tenant,name,prefix,state",
};

/* $1 tenant name, or null for all. */
const struct sbx_stmt sbx_stmt_key_list = {
	.name = "key_list",
	.sql = "select id, tenant, name, prefix, scope, state, created_at, expires_at,"
	       " last_used_at, revoked_at from admin.keys"
	       " where $1::text is null or tenant = $1::text order by tenant, created_at, id",
	.params = 1,
	.columns = "id,tenant,name,prefix,scope,state,created_at,expires_at,"
		   "last_used_at,revoked_at",
};

const struct sbx_stmt sbx_stmt_key_revoke = {
	.name = "key_revoke",
	.sql = "update api_keys set revoked_at = coalesce(revoked_at, now())"
	       " where id = $1::uuid returning prefix",
	.params = 1,
	.columns = "prefix",
};
