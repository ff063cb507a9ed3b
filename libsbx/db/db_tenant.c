/*
 * Tenants.
 */
#include "db/stmts.h"

const struct sbx_stmt sbx_stmt_tenant_add = {
	.name = "tenant_add",
	.sql = "insert into tenants (name, plan) values ($1::text, $2::text) returning id",
	.params = 2,
	.columns = "id",
};

const struct sbx_stmt sbx_stmt_tenant_list = {
	.name = "tenant_list",
	.sql = "select id, name, plan, max_boxes, live_boxes, valid_keys, suspended_at, created_at"
	       " from admin.tenants order by name",
	.params = 0,
	.columns = "id,name,plan,max_boxes,live_boxes,valid_keys,suspended_at,created_at",
};
