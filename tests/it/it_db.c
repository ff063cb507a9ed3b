#include "it.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *need(const char *name)
{
	const char *v = getenv(name);
	if (v == NULL)
		fail_msg("%s is not set: run tests/it/run", name);
	return v;
}

const char *it_conninfo(const char *role, char out[IT_TEXT])
{
	snprintf(out, IT_TEXT, "%s user=%s", need("SBX_TEST_DB"), role);
	return out;
}

const char *it_conninfo_of(const char *database, const char *role, char out[IT_TEXT])
{
	snprintf(out, IT_TEXT, "host=%s dbname=%s user=%s", need("SBX_TEST_DIR"), database, role);
	return out;
}

struct sbx_db_pool *it_pool(const char *role, int max)
{
	char conninfo[IT_TEXT];
	struct sbx_db_pool *pool = sbx_db_pool_new(it_conninfo(role, conninfo), "sbx-test", max);
	assert_non_null(pool);
	return pool;
}

PGconn *it_connect(const char *role)
{
	char conninfo[IT_TEXT];
	PGconn *pg = PQconnectdb(it_conninfo(role, conninfo));
	if (PQstatus(pg) != CONNECTION_OK)
		fail_msg("%s", PQerrorMessage(pg));
	PQclear(PQexec(pg, "set client_min_messages = warning"));
	return pg;
}

const char *it_value(PGconn *pg, const char *sql)
{
	static char value[65536];
	PGresult *r = PQexec(pg, sql);
	ExecStatusType s = PQresultStatus(r);
	if (s != PGRES_TUPLES_OK && s != PGRES_COMMAND_OK)
		fail_msg("%s: %s", sql, PQerrorMessage(pg));
	snprintf(value, sizeof(value), "%s", PQntuples(r) > 0 ? PQgetvalue(r, 0, 0) : "");
	PQclear(r);
	return value;
}

const char *it_sqlstate(PGconn *pg, const char *sql)
{
	static char state[6];
	PGresult *r = PQexec(pg, sql);
	const char *s = PQresultErrorField(r, PG_DIAG_SQLSTATE);
	snprintf(state, sizeof(state), "%s", s ? s : "");
	PQclear(r);
	return state;
}

void it_server(const char *verb)
{
	extern char **environ;
	char program[] = "tests/it/pg", v[16], dir[IT_TEXT];
	char *argv[] = { program, v, dir, NULL };
	pid_t pid = 0;
	int status = -1;
	snprintf(v, sizeof(v), "%s", verb);
	snprintf(dir, sizeof(dir), "%s", need("SBX_TEST_DIR"));
	assert_int_equal(posix_spawn(&pid, program, NULL, NULL, argv, environ), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

void it_tenant(PGconn *owner, const char *name, char ret_id[37])
{
	char sql[300];
	snprintf(sql, sizeof(sql),
		"insert into sbx.tenants (name) values ('%s') on conflict (name) do update"
		" set plan = 'free' returning id",
		name);
	snprintf(ret_id, 37, "%s", it_value(owner, sql));
}

void it_box(PGconn *owner, const char *tenant_id, const char *box_id)
{
	char sql[1000];
	it_value(owner,
		"insert into sbx.hosts (name, box_cidr, memory_mib, last_seen_at)"
		" values ('h1', '100.64.0.0/16', 65536, now()) on conflict do nothing");
	it_value(owner,
		"insert into sbx.images (unit, name, vcpu, memory_mib, disk_gib, bytes, protocol)"
		" values ('base-1', 'base', 1, 512, 10, 1, 1) on conflict do nothing");
	snprintf(sql, sizeof(sql),
		"with m as (insert into sbx.machines (host, slot, unit, vcpu, memory_mib, "
		"disk_gib, state,"
		" control_address, user_address) select 'h1', coalesce(max(slot), 0) + 1, "
		"'base-1', 1, 512, 10,"
		" 'running', '100.64.0.1', '100.64.0.3' from sbx.machines returning id)"
		" insert into sbx.boxes (tenant_id, id, machine_id, state, environment)"
		" select '%s', '%s', m.id, 'ready', 'base' from m on conflict do nothing",
		tenant_id, box_id);
	it_value(owner, sql);
}
