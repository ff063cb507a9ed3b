/*
 * What the operator's command line reads and does.
 */
#include "db/stmts.h"

/* $1: also those that ended. */
const struct sbx_stmt sbx_stmt_admin_box_list = {
	.name = "admin_box_list",
	.sql = "select id, tenant, state, op, environment, host, key_prefix, client, note, reason,"
	       " created_at, ready_at, last_used_at, ended_at"
	       " from admin.boxes where $1::boolean or ended_at is null order by created_at, id",
	.params = 1,
	.columns = "id,tenant,state,op,environment,host,key_prefix,client,note,reason,"
		   "created_at,ready_at,last_used_at,ended_at",
};

/* Idempotent: a box that is stopping or has ended stays as it is. */
const struct sbx_stmt sbx_stmt_admin_box_stop = {
	.name = "admin_box_stop",
	.sql = "select admin.stop_box($1::text) as state",
	.params = 1,
	.columns = "state",
};

const struct sbx_stmt sbx_stmt_admin_host_list = {
	.name = "admin_host_list",
	.sql = "select name, state, is_alive, accel, cpus, memory_mib, used_memory_mib, machines,"
	       " box_cidr, version, last_seen_at, health from admin.hosts order by name",
	.params = 0,
	.columns = "name,state,is_alive,accel,cpus,memory_mib,used_memory_mib,machines,"
		   "box_cidr,version,last_seen_at,health",
};

const struct sbx_stmt sbx_stmt_admin_image_list = {
	.name = "admin_image_list",
	.sql = "select unit, name, is_current, vcpu, memory_mib, disk_gib, bytes, protocol,"
	       " machines, description, created_at from admin.images"
	       " order by name, created_at, unit",
	.params = 0,
	.columns = "unit,name,is_current,vcpu,memory_mib,disk_gib,bytes,protocol,"
		   "machines,description,created_at",
};

/* $1 name, $2 the unit that takes over. */
const struct sbx_stmt sbx_stmt_image_retire = {
	.name = "image_retire",
	.sql = "update images set is_current = false"
	       " where name = $1::text and unit <> $2::text and is_current",
	.params = 2,
	.columns = "",
};

/* A unit is immutable: registering it again makes it current and may change its description. */
const struct sbx_stmt sbx_stmt_image_put = {
	.name = "image_put",
	.sql = "insert into images"
	       " (unit, name, vcpu, memory_mib, disk_gib, bytes, protocol, description)"
	       " values ($1::text, $2::text, $3::integer, $4::integer, $5::integer, $6::bigint,"
	       " $7::integer, $8::text)"
	       " on conflict (unit) do update"
	       " set is_current = true, description = excluded.description",
	.params = 8,
	.columns = "",
};
