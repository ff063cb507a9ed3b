/*
 * What keepers run: their host's row, the queue of ops, and what became of machines and boxes.
 *
 * Locks are taken in the order box, machine, op, as stop_box() does. Each of the "box_" statements here
 * also writes the box's event, and opens or closes its run.
 */
#include "db/stmts.h"

/* Live machines that were given addresses of another range than $2. */
const struct sbx_stmt sbx_stmt_keeper_other_range = {
	.name = "keeper_other_range",
	.sql = "select count(*) as n from machines where host = $1::text and state <> 'gone'"
	       " and not control_address <<= $2::cidr",
	.params = 2,
	.columns = "n",
};

/* $1 name, $2 accel, $3 cpus, $4 memory, $5 range, $6 version, $7 keeper. */
const struct sbx_stmt sbx_stmt_keeper_host = {
	.name = "keeper_host",
	.sql = "insert into hosts (name, accel, cpus, memory_mib, box_cidr, version, keeper, last_seen_at)"
	       " values ($1::text, $2::text, $3::integer, $4::integer, $5::cidr, $6::text, $7::uuid, now())"
	       " on conflict (name) do update set accel = excluded.accel, cpus = excluded.cpus,"
	       " memory_mib = excluded.memory_mib, box_cidr = excluded.box_cidr, version = excluded.version,"
	       " keeper = excluded.keeper, last_seen_at = now(), health = ''",
	.params = 7,
	.columns = "",
};

/* $1 name, $2 keeper, $3 health. No row: another keeper has taken the host over. */
const struct sbx_stmt sbx_stmt_keeper_beat = {
	.name = "keeper_beat",
	.sql = "update hosts set last_seen_at = now(), health = $3::text where name = $1::text and keeper = $2::uuid",
	.params = 3,
	.columns = "",
};

/* Ops that a former keeper of this host held go back to the queue. $1 host, $2 keeper. */
const struct sbx_stmt sbx_stmt_keeper_adopt = {
	.name = "keeper_adopt",
	.sql = "update ops set state = 'queued', keeper = null, lease_until = null"
	       " where host = $1::text and state = 'running' and keeper is distinct from $2::uuid",
	.params = 2,
	.columns = "",
};

const struct sbx_stmt sbx_stmt_keeper_release = {
	.name = "keeper_release",
	.sql = "update ops set state = 'queued', keeper = null, lease_until = null"
	       " where keeper = $1::uuid and state = 'running'",
	.params = 1,
	.columns = "",
};

/*
 * The oldest op that may be done now: queued (lease_until then says not before), or leased by somebody
 * whose lease ran out; never a second one for a machine. $1 host, $2 keeper, $3 lease in seconds,
 * $4 ops that this keeper is working on.
 */
const struct sbx_stmt sbx_stmt_keeper_take = {
	.name = "keeper_take",
	.sql = "with next as (select o.id from ops o where o.host = $1::text and o.state in ('queued', 'running')"
	       "  and (o.lease_until is null or o.lease_until < now()) and o.id <> all ($4::bigint[])"
	       "  and not exists (select from ops r where r.machine_id = o.machine_id and r.id <> o.id"
	       "   and r.state = 'running' and (r.lease_until >= now() or r.id = any ($4::bigint[])))"
	       "  order by o.id limit 1 for update of o skip locked)"
	       " update ops o set state = 'running', keeper = $2::uuid, attempts = o.attempts + 1,"
	       "  lease_until = now() + make_interval(secs => $3::integer),"
	       "  started_at = coalesce(o.started_at, now())"
	       " from next, machines m where o.id = next.id and m.id = o.machine_id"
	       " returning o.id, o.machine_id, o.verb, o.generation, o.attempts,"
	       "  (extract(epoch from now() - o.created_at) * 1000)::bigint as age_ms,"
	       "  m.slot, m.unit, m.vcpu, m.memory_mib, m.disk_gib, m.epoch, m.kid, m.user_network",
	.params = 4,
	.columns = "id,machine_id,verb,generation,attempts,age_ms,slot,unit,vcpu,memory_mib,disk_gib,epoch,kid,"
		   "user_network",
};

/* $1 keeper, $2 lease in seconds, $3 ops. */
const struct sbx_stmt sbx_stmt_keeper_renew = {
	.name = "keeper_renew",
	.sql = "update ops set lease_until = now() + make_interval(secs => $2::integer)"
	       " where keeper = $1::uuid and state = 'running' and id = any ($3::bigint[])",
	.params = 3,
	.columns = "",
};

/* Whether the keeper still holds the op, and the op is still about the machine as it is. */
const struct sbx_stmt sbx_stmt_keeper_check = {
	.name = "keeper_check",
	.sql = "select o.state = 'running' and o.keeper = $2::uuid and o.lease_until > now() as is_held,"
	       " o.generation = m.generation as is_current"
	       " from ops o join machines m on m.id = o.machine_id where o.id = $1::bigint",
	.params = 2,
	.columns = "is_held,is_current",
};

/* $1 op, $2 keeper, $3 state, $4 error code, $5 error. */
const struct sbx_stmt sbx_stmt_keeper_op_end = {
	.name = "keeper_op_end",
	.sql = "update ops set state = $3::text, error_code = $4::text, error = $5::text, finished_at = now(),"
	       " lease_until = null where id = $1::bigint and keeper = $2::uuid and state = 'running'",
	.params = 5,
	.columns = "",
};

/* Back to the queue, not before $3 ms from now; $4, $5 say why. */
const struct sbx_stmt sbx_stmt_keeper_op_retry = {
	.name = "keeper_op_retry",
	.sql = "update ops set state = 'queued', keeper = null,"
	       " lease_until = now() + make_interval(secs => $3::integer / 1000.0),"
	       " error_code = $4::text, error = $5::text"
	       " where id = $1::bigint and keeper = $2::uuid and state = 'running'",
	.params = 5,
	.columns = "",
};

const struct sbx_stmt sbx_stmt_keeper_box_ready = {
	.name = "keeper_box_ready",
	.sql = "with b as (update boxes set state = 'ready', op = null, ready_at = now()"
	       "  where machine_id = $1::uuid and state = 'claimed' returning tenant_id, id),"
	       " r as (insert into box_runs (tenant_id, box_id, started_at, last_seen_at)"
	       "  select tenant_id, id, now(), now() from b)"
	       " insert into box_events (tenant_id, box_id, kind, from_state, to_state, caused_by, detail)"
	       " select tenant_id, id, 'ready', 'claimed', 'ready', 'keeper', $2::text from b",
	.params = 2,
	.columns = "",
};

const struct sbx_stmt sbx_stmt_keeper_machine_running = {
	.name = "keeper_machine_running",
	.sql = "update machines set state = 'running', running_at = coalesce(running_at, now())"
	       " where id = $1::uuid and generation = $2::integer and state <> 'gone'",
	.params = 2,
	.columns = "",
};

const struct sbx_stmt sbx_stmt_keeper_box_terminated = {
	.name = "keeper_box_terminated",
	.sql = "with b as (select tenant_id, id, state from boxes where machine_id = $1::uuid"
	       "  and state not in ('terminated', 'interrupted') for update),"
	       " u as (update boxes x set state = 'terminated', op = null, ended_at = now(),"
	       "  reason_code = coalesce(x.reason_code, 'stopped') from b"
	       "  where x.tenant_id = b.tenant_id and x.id = b.id),"
	       " r as (update box_runs x set last_seen_at = now(), ended_at = now() from b"
	       "  where x.tenant_id = b.tenant_id and x.box_id = b.id and x.ended_at is null)"
	       " insert into box_events (tenant_id, box_id, kind, from_state, to_state, caused_by)"
	       " select tenant_id, id, 'terminated', state, 'terminated', 'keeper' from b",
	.params = 1,
	.columns = "",
};

/* $1 machine, $2 reason code, $3 reason. Its run ends where the machine was last seen alive. */
const struct sbx_stmt sbx_stmt_keeper_box_interrupted = {
	.name = "keeper_box_interrupted",
	.sql = "with b as (select tenant_id, id, state from boxes where machine_id = $1::uuid"
	       "  and state not in ('terminated', 'interrupted') for update),"
	       " u as (update boxes x set state = 'interrupted', op = null, ended_at = now(),"
	       "  reason_code = $2::text, reason = $3::text from b where x.tenant_id = b.tenant_id and x.id = b.id),"
	       " r as (update box_runs x set ended_at = x.last_seen_at from b"
	       "  where x.tenant_id = b.tenant_id and x.box_id = b.id and x.ended_at is null)"
	       " insert into box_events (tenant_id, box_id, kind, from_state, to_state, caused_by, detail)"
	       " select tenant_id, id, 'interrupted', state, 'interrupted', 'keeper', $2::text from b",
	.params = 3,
	.columns = "",
};

const struct sbx_stmt sbx_stmt_keeper_machine_gone = {
	.name = "keeper_machine_gone",
	.sql = "update machines set state = 'gone', gone_at = coalesce(gone_at, now())"
	       " where id = $1::uuid and generation = $2::integer",
	.params = 2,
	.columns = "",
};

/* A running machine whose domain is not there, unless an op is about it: that op will see to it. */
const struct sbx_stmt sbx_stmt_keeper_machine_lost = {
	.name = "keeper_machine_lost",
	.sql = "update machines m set state = 'gone', gone_at = now(), generation = m.generation + 1"
	       " where m.id = $1::uuid and m.generation = $2::integer and m.state = 'running'"
	       " and not exists (select from ops o where o.machine_id = m.id and o.state in ('queued', 'running'))",
	.params = 2,
	.columns = "",
};

const struct sbx_stmt sbx_stmt_keeper_machines = {
	.name = "keeper_machines",
	.sql = "select m.id, m.generation, m.state, m.slot, exists (select from ops o where o.machine_id = m.id"
	       "  and o.state in ('queued', 'running')) as has_op"
	       " from machines m where m.host = $1::text and m.state <> 'gone' order by m.id",
	.params = 1,
	.columns = "id,generation,state,slot,has_op",
};

const struct sbx_stmt sbx_stmt_keeper_machine = {
	.name = "keeper_machine",
	.sql = "select m.generation, m.state, exists (select from ops o where o.machine_id = m.id"
	       "  and o.state in ('queued', 'running')) as has_op"
	       " from machines m where m.id = $1::uuid and m.host = $2::text",
	.params = 2,
	.columns = "generation,state,has_op",
};

/* Of the given machines, those that are gone and that no op is about. */
const struct sbx_stmt sbx_stmt_keeper_gone = {
	.name = "keeper_gone",
	.sql = "select m.id from machines m where m.id = any ($1::uuid[]) and m.host = $2::text"
	       " and m.state = 'gone' and not exists (select from ops o where o.machine_id = m.id"
	       "  and o.state = 'running')",
	.params = 2,
	.columns = "id",
};

/* The machines were seen alive just now. */
const struct sbx_stmt sbx_stmt_keeper_alive = {
	.name = "keeper_alive",
	.sql = "update box_runs r set last_seen_at = now() from boxes b where b.machine_id = any ($1::uuid[])"
	       " and r.tenant_id = b.tenant_id and r.box_id = b.id and r.ended_at is null",
	.params = 1,
	.columns = "",
};
