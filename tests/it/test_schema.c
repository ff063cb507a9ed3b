/*
 * The real schema: every statement against it, row-level security, rights, notifications, comments,
 * and the golden file of the operators' views (SBX_REGENERATE=1 writes it anew).
 */
#include "it.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sbx/buf.h"
#include "sbx/fd.h"

#define GOLDEN "tests/data/admin_views.txt"
#define BOX_A "baaaaaaaaaaaaaaaaaaaaaaaaaa"
#define BOX_B "bbbbbbbbbbbbbbbbbbbbbbbbbbb"

static PGconn *owner, *worker, *keeper, *admin;
static char tenant_a[37], tenant_b[37];

/* Statements */

static const struct {
	const struct sbx_stmt *stmt;
	const char *role;
} stmts[] = {
#define X(name, role) { &sbx_stmt_##name, #role },
#include "db/stmts.def"
#undef X
};

static PGconn *role_connection(const char *role)
{
	return strcmp(role, "owner") == 0     ? owner
		: strcmp(role, "worker") == 0 ? worker
		: strcmp(role, "keeper") == 0 ? keeper
		: strcmp(role, "admin") == 0  ? admin
					      : NULL;
}

static void check_description(PGconn *pg, const struct sbx_stmt *s)
{
	sbx_auto_buf struct sbx_buf columns;
	PGresult *r = PQprepare(pg, s->name, s->sql, 0, NULL);
	if (PQresultStatus(r) != PGRES_COMMAND_OK)
		fail_msg("%s: %s", s->name, PQerrorMessage(pg));
	PQclear(r);
	r = PQdescribePrepared(pg, s->name);
	sbx_buf_init(&columns, 4096);
	for (int i = 0; i < PQnfields(r); i++)
		sbx_buf_addf(&columns, "%s%s", i > 0 ? "," : "", PQfname(r, i));
	if (PQnparams(r) != s->params)
		fail_msg("%s has %d parameters, not %d", s->name, PQnparams(r), s->params);
	if (strcmp(sbx_buf_z(&columns), s->columns) != 0)
		fail_msg("%s returns %s, not %s", s->name, sbx_buf_z(&columns), s->columns);
	PQclear(r);
}

/* EXPLAIN checks the rights of the role as running does, but runs nothing. */
static void check_rights(PGconn *pg, const struct sbx_stmt *s)
{
	sbx_auto_buf struct sbx_buf sql;
	sbx_buf_init(&sql, 4096);
	sbx_buf_addf(&sql, "explain execute %s", s->name);
	for (int i = 0; i < s->params; i++)
		sbx_buf_addf(&sql, "%snull", i == 0 ? "(" : ", ");
	sbx_buf_addz(&sql, s->params > 0 ? ")" : "");
	PGresult *r = PQexec(pg, sbx_buf_z(&sql));
	if (PQresultStatus(r) != PGRES_TUPLES_OK)
		fail_msg("%s: %s", s->name, PQerrorMessage(pg));
	PQclear(r);
}

static void test_statements(void **state)
{
	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_LEN(stmts); i++) {
		PGconn *pg = role_connection(stmts[i].role);
		if (pg == NULL)
			fail_msg("%s: no role %s", stmts[i].stmt->name, stmts[i].role);
		it_value(pg, "set search_path = sbx");
		check_description(pg, stmts[i].stmt);
		check_rights(pg, stmts[i].stmt);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(stmts[k].stmt->name, stmts[i].stmt->name);
	}
}

/* Documentation */

static void test_comments(void **state)
{
	(void)state;
	assert_string_equal("",
		it_value(owner,
			"select string_agg(what, ', ') from ("
			"select c.oid::regclass || coalesce('.' || a.attname, '') as what"
			" from pg_class c join pg_namespace n on n.oid = c.relnamespace left join "
			"pg_attribute a"
			"  on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped"
			" where n.nspname in ('sbx', 'admin') and c.relkind in ('r', 'p', 'v', 'm')"
			"  and (obj_description(c.oid, 'pg_class') is null or "
			"col_description(c.oid, a.attnum) is null)"
			" union all select p.oid::regprocedure::text from pg_proc p"
			"  join pg_namespace n on n.oid = p.pronamespace"
			"  where n.nspname in ('sbx', 'admin') and obj_description(p.oid, "
			"'pg_proc') is null"
			" union all select nspname from pg_namespace where nspname in ('sbx', "
			"'admin')"
			"  and obj_description(oid, 'pg_namespace') is null) missing"));
}

static void test_golden_views(void **state)
{
	(void)state;
	sbx_auto_buf struct sbx_buf want, got;
	sbx_buf_init(&want, 1 << 20);
	sbx_buf_init(&got, 1 << 20);
	sbx_buf_addf(&got, "%s\n",
		it_value(owner,
			"select string_agg(format('%s %s %s', a.attrelid::regclass, a.attname,"
			"  format_type(a.atttypid, a.atttypmod)), e'\\n' order by c.relname, "
			"a.attnum)"
			" from pg_attribute a join pg_class c on c.oid = a.attrelid"
			" join pg_namespace n on n.oid = c.relnamespace"
			" where n.nspname = 'admin' and c.relkind = 'v' and a.attnum > 0 and not "
			"a.attisdropped"));
	if (getenv("SBX_REGENERATE") != NULL)
		assert_int_equal(sbx_fd_replace(GOLDEN, sbx_buf_str(&got), 0644, false, NULL), 0);
	assert_int_equal(sbx_fd_slurp(GOLDEN, &want, NULL), 0);
	assert_string_equal(sbx_buf_z(&want), sbx_buf_z(&got));
}

/* Row-level security */

static void as_tenant(const char *tenant)
{
	char sql[200];
	snprintf(sql, sizeof(sql), "begin; select set_config('sbx.tenant', '%s', true)", tenant);
	it_value(worker, sql);
}

static void test_forgotten_tenant(void **state)
{
	(void)state;
	static const char *const tables[] = { "tenants", "api_keys", "boxes", "box_runs", "box_events" };
	char sql[200];
	for (size_t i = 0; i < SBX_ARRAY_LEN(tables); i++) {
		snprintf(sql, sizeof(sql), "select count(*) > 0 from sbx.%s", tables[i]);
		assert_string_equal(it_value(owner, sql), "t");
		snprintf(sql, sizeof(sql), "select count(*) from (select %s from sbx.%s) x",
			strcmp(tables[i], "api_keys") == 0 ? "id" : "*", tables[i]);
		assert_string_equal(it_value(worker, sql), "0");
	}
	assert_string_equal(it_value(worker, "update sbx.boxes set note = 'x' returning id"), "");
	assert_string_equal(it_sqlstate(worker,
				    "insert into sbx.boxes (tenant_id, id, environment) select id, "
				    "'bcccccccccccccccccccccccccc', 'base'"
				    " from unnest(array[gen_random_uuid()]) id"),
		"42501");
}

static void test_tenant_sees_its_own(void **state)
{
	(void)state;
	as_tenant(tenant_a);
	assert_string_equal(it_value(worker, "select string_agg(id, ',') from sbx.boxes"), BOX_A);
	assert_string_equal(it_value(worker, "select string_agg(name, ',') from sbx.tenants"), "schema-a");
	assert_string_equal(it_value(worker, "select count(*) from sbx.api_keys"), "1");
	assert_string_equal(it_value(worker, "select string_agg(distinct box_id, ',') from sbx.box_events"), BOX_A);
	assert_string_equal(it_value(worker, "select string_agg(box_id, ',') from sbx.box_runs"), BOX_A);
	assert_string_equal(
		it_value(worker, "update sbx.boxes set note = 'x' where id = '" BOX_B "' returning id"), "");
	/* Handing a row to another tenant is refused, and so is its column. */
	assert_string_equal(it_sqlstate(worker, "update sbx.boxes set tenant_id = gen_random_uuid()"), "42501");
	it_value(worker, "rollback");
	/* The setting ends with its transaction. */
	assert_string_equal(it_value(worker, "select count(*) from sbx.boxes"), "0");
}

static void test_forced(void **state)
{
	(void)state;
	assert_string_equal(it_value(owner,
				    "select string_agg(relname, ',' order by relname) from "
				    "pg_class where relnamespace = 'sbx'::regnamespace"
				    " and relrowsecurity and relforcerowsecurity"),
		"api_keys,box_events,box_runs,boxes,tenants");
	/* Whatever belongs to a tenant is in that list. */
	assert_string_equal(it_value(owner,
				    "select string_agg(c.relname, ',') from pg_class c join "
				    "pg_attribute a on a.attrelid = c.oid"
				    " where c.relnamespace = 'sbx'::regnamespace and c.relkind = 'r' "
				    "and a.attname = 'tenant_id'"
				    " and not (c.relrowsecurity and c.relforcerowsecurity)"),
		"");
}

/* Rights */

static void test_worker_rights(void **state)
{
	(void)state;
	static const char *const refused[] = {
		"create table sbx.x (i int)",
		"create table public.x (i int)",
		"create temp table x (i int)",
		"create schema x",
		"alter table sbx.boxes disable row level security",
		"drop table sbx.boxes",
		"truncate sbx.boxes",
		"delete from sbx.boxes",
		"delete from sbx.ops",
		"delete from sbx.machines",
		"delete from sbx.box_events",
		"update sbx.box_events set kind = 'x'",
		"select hash from sbx.api_keys",
		"select * from sbx.api_keys",
		"insert into sbx.api_keys (tenant_id, prefix, hash) values (gen_random_uuid(), "
		"'sbx_', '\\x00')",
		"update sbx.api_keys set revoked_at = null",
		"update sbx.tenants set plan = 'max'",
		"insert into sbx.box_runs values (gen_random_uuid(), 'x', now(), now())",
		"update sbx.hosts set state = 'draining'",
		"update sbx.machines set host = 'x'",
		"update sbx.plans set max_boxes = 1000",
		"update sbx.ops set state = 'done'",
		"select * from admin.keys",
		"select admin.stop_box('x')",
		"set role sbx_owner",
		"set role sbx_keeper",
	};
	for (size_t i = 0; i < SBX_ARRAY_LEN(refused); i++)
		if (strcmp(it_sqlstate(worker, refused[i]), "42501") != 0)
			fail_msg("sbx_worker: %s: not refused (%s)", refused[i], it_sqlstate(worker, refused[i]));
}

static void test_keeper_rights(void **state)
{
	(void)state;
	static const char *const refused[] = {
		"select * from sbx.api_keys",
		"select * from sbx.tenants",
		"select * from sbx.auth_key('\\x00')",
		"delete from sbx.boxes",
		"insert into sbx.boxes (tenant_id, id, environment) values"
		" (gen_random_uuid(), 'bcccccccccccccccccccccccccc', 'base')",
		"update sbx.boxes set tenant_id = null",
		"update sbx.images set is_current = true",
		"create table sbx.x (i int)",
		"create temp table x (i int)",
		"update sbx.box_events set kind = 'x'",
		"select * from admin.boxes",
	};
	for (size_t i = 0; i < SBX_ARRAY_LEN(refused); i++)
		if (strcmp(it_sqlstate(keeper, refused[i]), "42501") != 0)
			fail_msg("sbx_keeper: %s: not refused", refused[i]);
	assert_string_equal(it_value(keeper, "select count(distinct tenant_id) >= 2 from sbx.boxes"), "t");
}

static void test_admin_rights(void **state)
{
	(void)state;
	static const char *const refused[] = {
		"select * from sbx.boxes",
		"select * from sbx.api_keys",
		"delete from admin.boxes",
		"update admin.keys set revoked_at = null",
		"create table admin.x (i int)",
		"create temp table x (i int)",
		"select sbx.stop_box(null, null, null, null)",
	};
	for (size_t i = 0; i < SBX_ARRAY_LEN(refused); i++) {
		const char *s = it_sqlstate(admin, refused[i]);
		/* 55000: a join cannot be written to, whoever asks. */
		if (strcmp(s, "42501") != 0 && strcmp(s, "55000") != 0)
			fail_msg("sbx_admin: %s: not refused (%s)", refused[i], s);
	}
	assert_string_equal(it_value(admin, "select tenant from admin.boxes where id = '" BOX_A "'"), "schema-a");
	assert_string_equal(it_value(owner,
				    "select count(*) from information_schema.columns"
				    " where table_schema = 'admin' and column_name = 'hash'"),
		"0");
}

/* Nobody but the roles named has anything: neither now nor by default. */
static void test_public_has_nothing(void **state)
{
	(void)state;
	PGconn *super = it_connect("postgres");
	it_value(super, "drop role if exists nobody_special");
	it_value(super, "create role nobody_special login");
	assert_string_equal(it_value(super,
				    "select string_agg(c.oid::regclass::text, ',') from pg_class c"
				    " where c.relnamespace in ('sbx'::regnamespace, "
				    "'admin'::regnamespace) and c.relkind in ('r', 'v')"
				    " and has_table_privilege('nobody_special', c.oid, 'select, "
				    "insert, update, delete, truncate')"),
		"");
	assert_string_equal(it_value(super,
				    "select string_agg(p.oid::regprocedure::text, ',') from pg_proc p"
				    " where p.pronamespace in ('sbx'::regnamespace, 'admin'::regnamespace)"
				    " and has_function_privilege('nobody_special', p.oid, 'execute')"),
		"");
	assert_string_equal(it_value(super, "select has_database_privilege('nobody_special', 'sbx', 'connect')"), "f");
	assert_string_equal(it_value(super, "select has_schema_privilege('nobody_special', 'sbx', 'usage')"), "f");
	it_value(owner,
		"begin; create table sbx.later (i int); create function sbx.later() "
		"returns int language sql"
		" return 1");
	assert_string_equal(
		it_value(owner, "select has_table_privilege('nobody_special', 'sbx.later', 'select')"), "f");
	assert_string_equal(it_value(owner,
				    "select has_function_privilege('nobody_special', "
				    "'sbx.later()', 'execute')"),
		"f");
	it_value(owner, "rollback");
	it_value(super, "drop role nobody_special");
	PQfinish(super);
}

/* Notifications */

static void expect_notify(PGconn *pg, const char *channel, const char *payload)
{
	assert_int_equal(PQconsumeInput(pg), 1);
	PGnotify *n = PQnotifies(pg);
	if (n == NULL)
		fail_msg("no notification on %s", channel);
	assert_string_equal(n->relname, channel);
	if (payload != NULL)
		assert_string_equal(n->extra, payload);
	PQfreemem(n);
}

static void expect_silence(PGconn *pg)
{
	it_value(pg, "select 1");
	assert_null(PQnotifies(pg));
}

static void test_notifications(void **state)
{
	(void)state;
	char machine[37];
	PGconn *l = it_connect("sbx_owner");
	it_value(l, "listen sbx_ops; listen sbx_op_done; listen sbx_box; listen sbx_key");
	snprintf(
		machine, sizeof(machine), "%s", it_value(l, "select machine_id from sbx.boxes where id = '" BOX_A "'"));
	it_value(l,
		"insert into sbx.ops (host, machine_id, verb, generation) select host, id, "
		"'start', generation"
		" from sbx.machines where id = (select machine_id from sbx.boxes where id = '" BOX_A "')");
	expect_notify(l, "sbx_ops", "h1");
	it_value(l, "update sbx.ops set state = 'running' where state = 'queued'");
	expect_silence(l);
	it_value(l, "update sbx.ops set state = 'done' where state = 'running'");
	expect_notify(l, "sbx_op_done", machine);
	it_value(l, "update sbx.boxes set note = 'same state' where id = '" BOX_A "'");
	expect_silence(l);
	it_value(l, "update sbx.boxes set state = 'claimed' where id = '" BOX_A "'");
	expect_notify(l, "sbx_box", BOX_A);
	it_value(l, "update sbx.boxes set state = 'ready' where id = '" BOX_A "'");
	expect_notify(l, "sbx_box", BOX_A);
	it_value(l, "update sbx.api_keys set last_used_at = now()");
	expect_silence(l);
	it_value(l, "update sbx.tenants set suspended_at = now() where name = 'schema-a'");
	expect_notify(l, "sbx_key", NULL);
	it_value(l, "update sbx.tenants set suspended_at = null where name = 'schema-a'");
	expect_notify(l, "sbx_key", NULL);
	it_value(l,
		"begin; update sbx.api_keys set revoked_at = now() where name = 'schema-a'; "
		"commit");
	expect_notify(l, "sbx_key", NULL);
	PQfinish(l);
}

/* Stopping */

static void test_worker_stops(void **state)
{
	(void)state;
	static const char call[] = "select sbx.stop_box(sbx.current_tenant(), '" BOX_B "', 'key:k', 'Why.')";
	as_tenant(tenant_a);
	assert_string_equal(it_value(worker, call), "");
	it_value(worker, "rollback");
	as_tenant(tenant_b);
	assert_string_equal(it_value(worker, call), "stopping");
	assert_string_equal(it_value(worker, call), "stopping");
	it_value(worker, "commit");
	assert_string_equal(it_value(owner,
				    "select concat_ws(' ', b.state, b.op, b.reason_code, b.reason, "
				    "m.generation, o.verb, o.generation = m.generation,"
				    " o.caused_by, (select count(*) from sbx.ops x where x.machine_id = m.id),"
				    " (select string_agg(concat_ws('/', kind, from_state, to_state, "
				    "caused_by), ',') from sbx.box_events e"
				    "  where e.box_id = b.id and e.kind <> 'made'))"
				    " from sbx.boxes b join sbx.machines m on m.id = b.machine_id join sbx.ops "
				    "o on o.machine_id = m.id"
				    " where b.id = '" BOX_B "'"),
		"stopping stopping stopped Why. 2 stop t key:k 1 stop_asked/ready/stopping/key:k");
}

static void test_operator_stops(void **state)
{
	(void)state;
	assert_string_equal(it_sqlstate(admin, "select admin.stop_box('bnone')"), "P0002");
	assert_string_equal(it_value(admin, "select admin.stop_box('" BOX_A "')"), "stopping");
	assert_string_equal(it_value(admin,
				    "select caused_by from admin.events where box_id = '" BOX_A "'"
				    " and kind = 'stop_asked'"),
		"operator:sbx_admin");
	/* With nothing under it there is nothing to wait for. */
	it_value(owner,
		"update sbx.machines set state = 'gone' where id ="
		" (select machine_id from sbx.boxes where id = '" BOX_A "');"
		"update sbx.boxes set state = 'ready', op = null where id = '" BOX_A "'");
	assert_string_equal(it_value(admin, "select admin.stop_box('" BOX_A "')"), "terminated");
	assert_string_equal(it_value(owner,
				    "select state || ' ' || (ended_at is not null) || ' ' || coalesce(op, '-')"
				    " from sbx.boxes where id = '" BOX_A "'"),
		"terminated true -");
}

static void test_slot_is_unique(void **state)
{
	(void)state;
	static const char add[] = "insert into sbx.machines (host, slot, unit, vcpu, memory_mib, disk_gib,"
				  " control_address, user_address) values ('h1', 900, 'base-1', 1, 1, 1, "
				  "'100.64.0.1', '100.64.0.3')";
	it_value(owner, add);
	assert_string_equal(it_sqlstate(owner, add), "23505");
	it_value(owner, "update sbx.machines set state = 'gone' where slot = 900");
	it_value(owner, add);
}

static int setup(void **state)
{
	(void)state;
	char sql[800];
	owner = it_connect("sbx_owner");
	worker = it_connect("sbx_worker");
	keeper = it_connect("sbx_keeper");
	admin = it_connect("sbx_admin");
	it_tenant(owner, "schema-a", tenant_a);
	it_tenant(owner, "schema-b", tenant_b);
	it_box(owner, tenant_a, BOX_A);
	it_box(owner, tenant_b, BOX_B);
	snprintf(sql, sizeof(sql),
		"insert into sbx.api_keys (tenant_id, name, prefix, hash)"
		" select id, name, 'sbx_test', sha256(name::bytea) from sbx.tenants where name "
		"like 'schema-_';"
		"insert into sbx.box_events (tenant_id, box_id, kind) select tenant_id, id, 'made' "
		"from sbx.boxes"
		" where id in ('%s', '%s');"
		"insert into sbx.box_runs (tenant_id, box_id, started_at, last_seen_at)"
		" select tenant_id, id, now(), now() from sbx.boxes where id in ('%s', '%s')",
		BOX_A, BOX_B, BOX_A, BOX_B);
	it_value(owner, sql);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	PQfinish(owner);
	PQfinish(worker);
	PQfinish(keeper);
	PQfinish(admin);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_statements),
		cmocka_unit_test(test_comments),
		cmocka_unit_test(test_golden_views),
		cmocka_unit_test(test_forgotten_tenant),
		cmocka_unit_test(test_tenant_sees_its_own),
		cmocka_unit_test(test_forced),
		cmocka_unit_test(test_worker_rights),
		cmocka_unit_test(test_keeper_rights),
		cmocka_unit_test(test_admin_rights),
		cmocka_unit_test(test_public_has_nothing),
		cmocka_unit_test(test_notifications),
		cmocka_unit_test(test_worker_stops),
		cmocka_unit_test(test_operator_stops),
		cmocka_unit_test(test_slot_is_unique),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
