/* Statements of workers about boxes and what they stand on. */
#include "db/stmts.h"

/* Serialises what counts boxes of one tenant, until the transaction ends. */
const struct sbx_stmt sbx_stmt_box_lock_tenant = {
	"box_lock_tenant",
	"select pg_advisory_xact_lock(hashtextextended('sbx tenant ' || current_tenant()::text, 0))",
	0,
	"pg_advisory_xact_lock",
};

/* An old use of the key is forgotten, so that it may be used again. */
const struct sbx_stmt sbx_stmt_box_forget_key = {
	"box_forget_key",
	"update boxes set idempotency_key = null"
	" where tenant_id = current_tenant() and idempotency_key = $1::text"
	" and created_at <= now() - interval '24 hours'",
	1,
	"",
};

const struct sbx_stmt sbx_stmt_box_by_key = {
	"box_by_key",
	"select id from boxes where tenant_id = current_tenant() and idempotency_key = $1::text",
	1,
	"id",
};

const struct sbx_stmt sbx_stmt_box_running = {
	"box_running",
	"select id from boxes where tenant_id = current_tenant() and state in ('claimed', 'ready', 'takeover')"
	" order by created_at",
	0,
	"id",
};

const struct sbx_stmt sbx_stmt_image_by_name = {
	"image_by_name",
	"select unit from images where name = $1::text and is_current",
	1,
	"unit",
};

const struct sbx_stmt sbx_stmt_image_names = {
	"image_names",
	"select name, unit, vcpu, memory_mib, disk_gib, bytes, description from images where is_current"
	" order by name = 'desktop' desc, name",
	0,
	"name,unit,vcpu,memory_mib,disk_gib,bytes,description",
};

/* Slots are taken one at a time, or two transactions would take the same. */
const struct sbx_stmt sbx_stmt_machine_lock_slots = {
	"machine_lock_slots",
	"select pg_advisory_xact_lock(hashtextextended('sbx slots', 0))",
	0,
	"pg_advisory_xact_lock",
};

/*
 * The host with most free memory among those alive, its lowest free slot, and the four addresses that
 * follow from it (boxd: second, box: fourth). Slot 0 belongs to the resolver. 256 MiB a machine are
 * counted for QEMU itself.
 */
const struct sbx_stmt sbx_stmt_machine_add = {
	"machine_add",
	"with img as (select unit, vcpu, memory_mib, disk_gib from images where unit = $1::text),"
	" used as (select h.name, h.box_cidr, h.memory_mib - coalesce((select sum(m.memory_mib + 256)"
	"   from machines m where m.host = h.name and m.state <> 'gone'), 0) as free,"
	"   (select count(*) from machines m where m.host = h.name and m.state <> 'gone') as n"
	"  from hosts h where h.state = 'active' and h.health = '' and h.last_seen_at > now() - make_interval(secs => $2::integer)),"
	" host as (select u.* from used u, img where u.free >= img.memory_mib + 256"
	"   and (u.n + 2) * 4 <= 2 ^ (32 - masklen(u.box_cidr)) order by u.free desc limit 1),"
	" slot as (select s from host, generate_series(1, host.n + 1) s where not exists (select from machines m"
	"   where m.host = host.name and m.slot = s and m.state <> 'gone') order by s limit 1)"
	" insert into machines (id, host, slot, unit, vcpu, memory_mib, disk_gib, kid, control_address, user_address)"
	" select $3::uuid, host.name, slot.s, img.unit, img.vcpu, img.memory_mib, img.disk_gib, $4::integer,"
	"  host(network(host.box_cidr) + (slot.s * 4 + 1))::inet, host(network(host.box_cidr) + (slot.s * 4 + 3))::inet"
	" from img, host, slot returning host",
	4,
	"host",
};

const struct sbx_stmt sbx_stmt_box_add = {
	"box_add",
	"insert into boxes (tenant_id, id, machine_id, op, environment, services, external_base_url,"
	"  idle_timeout_min, idempotency_key, key_id, client)"
	" values (current_tenant(), $1::text, $2::uuid, 'starting', $3::text, $4::jsonb, $5::text, $6::integer,"
	"  $7::text, $8::uuid, $9::text)",
	9,
	"",
};

const struct sbx_stmt sbx_stmt_op_start = {
	"op_start",
	"insert into ops (host, machine_id, verb, generation, caused_by)"
	" select host, id, 'start', generation, $2::text from machines where id = $1::uuid",
	2,
	"",
};

const struct sbx_stmt sbx_stmt_box_event = {
	"box_event",
	"insert into box_events (tenant_id, box_id, kind, to_state, caused_by)"
	" values (current_tenant(), $1::text, $2::text, $3::text, $4::text)",
	4,
	"",
};

/*
 * A read that counts as use: last_used_at moves at most every five seconds, so that a busy box does not
 * write for every call.
 */
/* clang-format off */
#define BOX_COLUMNS \
	"id,state,op,environment,services,external_base_url,started_from,note,reason_code,reason," \
	"created_at,ready_at,ended_at,last_used_at,idle_timeout_min,vcpu,memory_mib,disk_gib," \
	"control_address,machine,epoch,kid"
#define UTC(column) "to_char(" column " at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"') as "
#define BOX_SELECT \
	"select b.id, b.state, b.op, b.environment, b.services, b.external_base_url, b.started_from, b.note," \
	" b.reason_code, b.reason, " UTC("b.created_at") "created_at, " UTC("b.ready_at") "ready_at, " \
	UTC("b.ended_at") "ended_at, " UTC("b.last_used_at") "last_used_at, b.idle_timeout_min," \
	" m.vcpu, m.memory_mib, m.disk_gib, host(m.control_address) as control_address," \
	" replace(m.id::text, '-', '') as machine, m.epoch, m.kid" \
	" from boxes b left join machines m on m.id = b.machine_id" \
	" where b.tenant_id = current_tenant() and b.id = $1::text"
/* clang-format on */

const struct sbx_stmt sbx_stmt_box_get = { "box_get", BOX_SELECT, 1, BOX_COLUMNS };

const struct sbx_stmt sbx_stmt_box_use = {
	"box_use",
	"with used as (update boxes set last_used_at = now(), note = coalesce($2::text, note)"
	" where tenant_id = current_tenant() and id = $1::text"
	" and (last_used_at < now() - interval '5 seconds' or note <> $2::text)) " BOX_SELECT,
	2,
	BOX_COLUMNS,
};

/* Gives the state now; null when there is no such box. */
const struct sbx_stmt sbx_stmt_box_stop = {
	"box_stop",
	"select stop_box(current_tenant(), $1::text, $2::text, $3::text) as state",
	3,
	"state",
};

/* For /readyz: hosts whose keeper was seen lately, and all. */
const struct sbx_stmt sbx_stmt_hosts_seen = {
	"hosts_seen",
	"select count(*) filter (where last_seen_at > now() - make_interval(secs => $1::integer)) as seen,"
	" count(*) as hosts,"
	" coalesce(string_agg(name, ', ') filter (where last_seen_at is null or"
	"  last_seen_at <= now() - make_interval(secs => $1::integer)), '') as silent,"
	" coalesce(string_agg(name || ': ' || health, '; ') filter (where health <> ''), '') as ill from hosts",
	1,
	"seen,hosts,silent,ill",
};
