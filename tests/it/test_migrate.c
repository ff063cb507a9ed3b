/*
 * Migrations, in databases of their own.
 */
#include "it.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sbx/buf.h"
#include "sbx/fd.h"

static PGconn *super;
static char dir[] = "/tmp/sbx-migrate.XXXXXX";

static const char *const names[] = { "0001_one.sql", "0001_other.sql", "0002_two.sql", "0003_three.sql", "2_bad.sql",
	"grants.sql", "views.sql", "notes.txt" };

static void put(const char *name, const char *text)
{
	char path[200];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_int_equal(sbx_fd_replace(path, sbx_str_of(text), 0644, false, NULL), 0);
}

static void drop(const char *name)
{
	char path[200];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	unlink(path);
}

static void fresh(void)
{
	it_value(super, "drop database if exists migrate");
	it_value(super, "create database migrate owner sbx_owner");
	for (size_t i = 0; i < SBX_ARRAY_LEN(names); i++)
		drop(names[i]);
	put("grants.sql", "");
	put("views.sql", "create or replace view sbx.v as select 1 as one;");
	put("0001_one.sql", "create table one (i int);\ninsert into one values (1);\n");
	put("notes.txt", "not a migration");
}

struct run {
	int rc, applied;
	struct sbx_err err;
};

static struct run migrate_from(const char *from)
{
	char conninfo[IT_TEXT];
	struct run run = { .rc = -1 };
	struct sbx_db_pool *pool = sbx_db_pool_new(it_conninfo_of("migrate", "sbx_owner", conninfo), "sbx-test", 1);
	struct sbx_db *db = sbx_db_take(pool, 0, &run.err);
	if (db != NULL)
		run.rc = sbx_db_migrate(db, from, &run.applied, &run.err);
	sbx_db_give(db);
	sbx_db_pool_free(pool);
	return run;
}

static void expect_applied(int n)
{
	struct run run = migrate_from(dir);
	if (run.rc < 0)
		fail_msg("%s (%s)", run.err.msg, run.err.detail);
	assert_int_equal(run.applied, n);
}

static void expect_refused(const char *words)
{
	struct run run = migrate_from(dir);
	assert_int_equal(run.rc, -1);
	if (strstr(run.err.msg, words) == NULL)
		fail_msg("\"%s\" is not in \"%s\"", words, run.err.msg);
}

static const char *ask(const char *sql)
{
	char conninfo[IT_TEXT];
	static char out[1000];
	PGconn *pg = PQconnectdb(it_conninfo_of("migrate", "sbx_owner", conninfo));
	snprintf(out, sizeof(out), "%s", it_value(pg, sql));
	PQfinish(pg);
	return out;
}

static void test_in_order_and_once(void **state)
{
	(void)state;
	fresh();
	expect_applied(1);
	expect_applied(0);
	put("0002_two.sql", "insert into one values (2);");
	put("0003_three.sql", "insert into one select max(i) + 1 from one;");
	expect_applied(2);
	expect_applied(0);
	assert_string_equal(ask("select string_agg(i::text, ',' order by i) from sbx.one"), "1,2,3");
	assert_string_equal(ask("select string_agg(version || ' ' || name, ',' order by version) from"
				" sbx.schema_migrations"),
		"1 0001_one.sql,2 0002_two.sql,3 0003_three.sql");
	assert_string_equal(ask("select one from sbx.v"), "1");
}

static void test_real_schema_twice(void **state)
{
	(void)state;
	fresh();
	struct run run = migrate_from("sql");
	if (run.rc < 0)
		fail_msg("%s (%s)", run.err.msg, run.err.detail);
	assert_int_equal(run.applied, SBX_SCHEMA_VERSION);
	run = migrate_from("sql");
	assert_int_equal(run.rc, 0);
	assert_int_equal(run.applied, 0);
}

static void test_changed_file(void **state)
{
	(void)state;
	fresh();
	expect_applied(1);
	put("0001_one.sql", "create table one (i bigint);");
	expect_refused("0001_one.sql");
	drop("0001_one.sql");
	put("0001_other.sql", "create table one (i int);\ninsert into one values (1);\n");
	expect_refused("0001_other.sql");
}

static void test_numbers(void **state)
{
	(void)state;
	fresh();
	put("0003_three.sql", "select 1");
	expect_refused("0003_three.sql is not number 0002");
	drop("0003_three.sql");
	put("0001_other.sql", "select 1");
	expect_refused("0001_other.sql is not number 0002");
	drop("0001_other.sql");
	put("2_bad.sql", "select 1");
	expect_refused("2_bad.sql");
	drop("2_bad.sql");
	expect_applied(1);
	/* A database that is ahead of the program. */
	put("0002_two.sql", "select 1");
	expect_applied(1);
	drop("0002_two.sql");
	expect_refused("too old");
	drop("0001_one.sql");
	expect_refused("no migrations");
}

/* What fails leaves nothing, and names its line. */
static void test_failing_file(void **state)
{
	(void)state;
	fresh();
	put("0002_two.sql", "create table two (i int);\n\ncreate table two (\n\twrong);\n");
	expect_refused("0002_two.sql: line 4");
	assert_string_equal(ask("select count(*) from sbx.schema_migrations"), "1");
	assert_string_equal(ask("select to_regclass('sbx.two') is null"), "t");
	/* It may not end the transaction either: then it could be half applied. */
	put("0002_two.sql", "create table two (i int); commit; begin;");
	expect_refused("0002_two.sql: It ends the transaction");
	assert_string_equal(ask("select count(*) from sbx.schema_migrations"), "1");
	put("0002_two.sql", "create table three (i int);");
	expect_applied(1);
}

static void *migrate_thread(void *arg)
{
	struct run *run = arg;
	*run = migrate_from(dir);
	return NULL;
}

static void test_two_at_once(void **state)
{
	(void)state;
	pthread_t t[4];
	struct run run[4];
	int applied = 0;
	fresh();
	put("0002_two.sql", "select pg_sleep(0.3); create table two (i int);");
	for (size_t i = 0; i < SBX_ARRAY_LEN(t); i++)
		assert_int_equal(pthread_create(&t[i], NULL, migrate_thread, &run[i]), 0);
	for (size_t i = 0; i < SBX_ARRAY_LEN(t); i++)
		pthread_join(t[i], NULL);
	for (size_t i = 0; i < SBX_ARRAY_LEN(t); i++) {
		if (run[i].rc < 0)
			fail_msg("%s (%s)", run[i].err.msg, run[i].err.detail);
		applied += run[i].applied;
	}
	assert_int_equal(applied, 2);
}

/* Longer than the time-out of statements: migrations may be. */
static void test_long_migration(void **state)
{
	(void)state;
	fresh();
	put("0002_two.sql",
		"select current_setting('statement_timeout')::interval = '0'::interval as is_off \n"
		"into two;");
	expect_applied(2);
	assert_string_equal(ask("select is_off from sbx.two"), "t");
}

static int setup(void **state)
{
	(void)state;
	super = it_connect("postgres");
	return mkdtemp(dir) == NULL ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	it_value(super, "drop database if exists migrate");
	PQfinish(super);
	for (size_t i = 0; i < SBX_ARRAY_LEN(names); i++)
		drop(names[i]);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_order_and_once),
		cmocka_unit_test(test_real_schema_twice),
		cmocka_unit_test(test_changed_file),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_failing_file),
		cmocka_unit_test(test_two_at_once),
		cmocka_unit_test(test_long_migration),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
