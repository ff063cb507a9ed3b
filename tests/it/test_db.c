/*
 * Connections: pool, statements, transactions, errors, LISTEN, and a server that goes away.
 */
#include "it.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "db/db_conn.h"
#include "sbx/clock.h"

static PGconn *owner;
static char tenant_a[37], tenant_b[37];

static const struct sbx_stmt my_boxes = { "it_my_boxes", "select id from boxes order by id", 0, "id" };
static const struct sbx_stmt echo = { "it_echo",
	"select $1::text as t, $2::bigint as i, $3::boolean as b, $4::bytea = '\\x00ff'::bytea as "
	"bin, $5::text as n",
	5, "t,i,b,bin,n" };
static const struct sbx_stmt pid = { "it_pid", "select pg_backend_pid() as pid", 0, "pid" };
static const struct sbx_stmt divide = { "it_divide", "select 1 / $1::integer as q", 1, "q" };
static const struct sbx_stmt add_tenant = { "it_add_tenant",
	"insert into tenants (name) values ($1::text) returning id", 1, "id" };
static const struct sbx_stmt find_tenant = { "it_find_tenant", "select id from tenants where name = $1::text", 1,
	"id" };
static const struct sbx_stmt slow_write = { "it_slow_write",
	"with s as materialized (select pg_sleep(30)) insert into tenants (name) select 'never' "
	"from s",
	0, "" };
static const struct sbx_stmt kill_self_write = { "it_kill_self",
	"with k as materialized (select pg_terminate_backend(pg_backend_pid()))"
	" insert into tenants (name) select 'killed' from k",
	0, "" };
static const struct sbx_stmt slow_read = { "it_slow_read", "select pg_sleep(30)", 0, "pg_sleep" };

static void must(int rc, const struct sbx_err *err)
{
	if (rc != 0)
		fail_msg("%s (%s)", err->msg, err->detail);
}

static int64_t run_pid(struct sbx_db *db)
{
	struct sbx_err err = SBX_ERR_INIT;
	sbx_auto_res struct sbx_res *r = NULL;
	must(sbx_db_run(db, NULL, &pid, NULL, &r, &err), &err);
	return sbx_res_i(r, 0, 0);
}

static void terminate(int64_t backend)
{
	char sql[100];
	PGconn *super = it_connect("postgres");
	snprintf(sql, sizeof(sql), "select pg_terminate_backend(%lld, 5000)", (long long)backend);
	assert_string_equal(it_value(super, sql), "t");
	PQfinish(super);
}

static void test_values(void **state)
{
	(void)state;
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_db_pool *pool = it_pool("sbx_worker", 1);
	struct sbx_db *db = sbx_db_take(pool, 0, &err);
	struct sbx_res *r = NULL;
	const char bytes[] = { 0, (char)0xff };
	for (int i = 0; i < 2; i++) {
		must(sbx_db_run(db, NULL, &echo,
			     SBX_PARAMS(sbx_p_s((struct sbx_str){ "grün'\"\\x", 7 }), sbx_p_i(INT64_MIN),
				     sbx_p_bool(true), sbx_p_bytes(bytes, 2), sbx_p_null()),
			     &r, &err),
			&err);
		assert_int_equal(sbx_res_rows(r), 1);
		assert_string_equal(sbx_res_z(r, 0, 0), "grün'\"");
		assert_true(sbx_res_i(r, 0, 1) == INT64_MIN);
		assert_true(sbx_res_bool(r, 0, 2));
		assert_true(sbx_res_bool(r, 0, 3));
		assert_true(sbx_res_null(r, 0, 4));
		assert_null(sbx_res_z(r, 0, 4));
		assert_int_equal(sbx_res_i(r, 0, 4), 0);
		sbx_res_free(r);
	}
	sbx_db_give(db);
	sbx_db_pool_free(pool);
}

static void expect(struct sbx_db *db, const struct sbx_stmt *stmt, const struct sbx_param *params, enum sbx_code code,
	const char *sqlstate)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_res *r = NULL;
	assert_int_equal(sbx_db_run(db, NULL, stmt, params, &r, &err), -1);
	assert_null(r);
	if (err.code != code)
		fail_msg("%s: %s (%s), not %s", stmt->name, sbx_code_wire(err.code), err.detail, sbx_code_wire(code));
	assert_string_equal(err.sqlstate, sqlstate);
}

static void test_errors(void **state)
{
	(void)state;
	static const struct sbx_stmt bad = { "it_bad", "selec 1", 0, "" };
	static const struct sbx_stmt cancel = { "it_cancel",
		"with c as materialized (select pg_cancel_backend(pg_backend_pid())) select "
		"pg_sleep(5) from c",
		0, "" };
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_db_pool *pool = it_pool("sbx_owner", 1);
	struct sbx_db *db = sbx_db_take(pool, 0, &err);
	int64_t before = run_pid(db);
	expect(db, &bad, NULL, SBX_E_INTERNAL, "42601");
	expect(db, &divide, SBX_PARAMS(sbx_p_i(0)), SBX_E_INVALID, "22012");
	expect(db, &divide, SBX_PARAMS(sbx_p_z("x")), SBX_E_INVALID, "22P02");
	expect(db, &add_tenant, SBX_PARAMS(sbx_p_z("db-a")), SBX_E_CONFLICT, "23505");
	expect(db, &add_tenant, SBX_PARAMS(sbx_p_z("NO")), SBX_E_INVALID, "23514");
	expect(db, &add_tenant, SBX_PARAMS(sbx_p_z("bad\xff")), SBX_E_INVALID, "22021");
	expect(db, &add_tenant, SBX_PARAMS(sbx_p_s((struct sbx_str){ "a\0b", 3 })), SBX_E_INVALID, "");
	expect(db, &sbx_stmt_tenant_add, SBX_PARAMS(sbx_p_z("t"), sbx_p_z("none")), SBX_E_CONFLICT, "23503");
	expect(db, &cancel, NULL, SBX_E_TIMEOUT, "57014");
	/* None of it cost the connection. */
	assert_int_equal(run_pid(db), before);
	sbx_db_give(db);
	sbx_db_pool_free(pool);
}

static void expect_boxes(struct sbx_db *db, const char *tenant, const char *want)
{
	struct sbx_err err = SBX_ERR_INIT;
	sbx_auto_res struct sbx_res *r = NULL;
	must(sbx_db_run(db, tenant, &my_boxes, NULL, &r, &err), &err);
	assert_int_equal(sbx_res_rows(r), want != NULL);
	if (want != NULL)
		assert_string_equal(sbx_res_z(r, 0, 0), want);
}

/* One connection, two tenants in turn: each sees its own, and nobody sees anything without one. */
static void test_tenants_share_a_connection(void **state)
{
	(void)state;
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_db_pool *pool = it_pool("sbx_worker", 1);
	int64_t backend = 0;
	for (int i = 0; i < 3; i++) {
		struct sbx_db *db = sbx_db_take(pool, 0, &err);
		assert_non_null(db);
		if (i > 0)
			assert_int_equal(run_pid(db), backend);
		backend = run_pid(db);
		expect_boxes(db, NULL, NULL);
		expect_boxes(db, tenant_a, "bdbaaaaaaaaaaaaaaaaaaaaaaaa");
		expect_boxes(db, tenant_b, "bdbbbbbbbbbbbbbbbbbbbbbbbbb");
		expect_boxes(db, NULL, NULL);
		must(sbx_db_begin(db, tenant_a, &err), &err);
		expect_boxes(db, NULL, "bdbaaaaaaaaaaaaaaaaaaaaaaaa");
		must(sbx_db_commit(db, &err), &err);
		expect_boxes(db, NULL, NULL);
		/* Given back within a transaction: the next one starts without it. */
		must(sbx_db_begin(db, tenant_b, &err), &err);
		expect_boxes(db, NULL, "bdbbbbbbbbbbbbbbbbbbbbbbbbb");
		sbx_db_give(db);
	}
	sbx_db_pool_free(pool);
}

static int64_t count_tenants(struct sbx_db *db, const char *name)
{
	struct sbx_err err = SBX_ERR_INIT;
	sbx_auto_res struct sbx_res *r = NULL;
	must(sbx_db_run(db, NULL, &find_tenant, SBX_PARAMS(sbx_p_z(name)), &r, &err), &err);
	return sbx_res_rows(r);
}

static void test_transactions(void **state)
{
	(void)state;
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_db_pool *pool = it_pool("sbx_owner", 2);
	struct sbx_db *db = sbx_db_take(pool, 0, &err), *other = sbx_db_take(pool, 0, &err);
	struct sbx_res *r = NULL;
	must(sbx_db_begin(db, NULL, &err), &err);
	must(sbx_db_run(db, NULL, &add_tenant, SBX_PARAMS(sbx_p_z("tx-1")), &r, &err), &err);
	assert_int_equal(sbx_res_affected(r), 1);
	sbx_res_free(r);
	assert_int_equal(count_tenants(db, "tx-1"), 1);
	assert_int_equal(count_tenants(other, "tx-1"), 0);
	sbx_db_rollback(db);
	assert_int_equal(count_tenants(db, "tx-1"), 0);

	must(sbx_db_begin(db, NULL, &err), &err);
	must(sbx_db_run(db, NULL, &add_tenant, SBX_PARAMS(sbx_p_z("tx-1")), NULL, &err), &err);
	must(sbx_db_commit(db, &err), &err);
	assert_int_equal(count_tenants(other, "tx-1"), 1);

	/* A failed statement fails the commit too, though PostgreSQL itself reports success. */
	must(sbx_db_begin(db, NULL, &err), &err);
	must(sbx_db_run(db, NULL, &add_tenant, SBX_PARAMS(sbx_p_z("tx-2")), NULL, &err), &err);
	expect(db, &divide, SBX_PARAMS(sbx_p_i(0)), SBX_E_INVALID, "22012");
	assert_int_equal(sbx_db_commit(db, &err), -1);
	assert_int_equal(count_tenants(db, "tx-2"), 0);
	sbx_err_clear(&err);

	/* A refused tenant leaves no transaction open. */
	assert_int_equal(sbx_db_begin(db, "bad\xff", &err), -1);
	assert_int_equal(err.code, SBX_E_INVALID);
	sbx_err_clear(&err);
	must(sbx_db_begin(db, NULL, &err), &err);
	must(sbx_db_commit(db, &err), &err);
	sbx_db_give(db);
	sbx_db_give(other);
	sbx_db_pool_free(pool);
}

static void test_script(void **state)
{
	(void)state;
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_db_pool *pool = it_pool("sbx_owner", 1);
	struct sbx_db *db = sbx_db_take(pool, 0, &err);
	must(sbx_db_script(db, "select 1; select 2;", &err), &err);
	assert_int_equal(sbx_db_script(db, "select 1;\nselect 'grün',\n  nonsense;", &err), -1);
	assert_non_null(strstr(err.msg, "line 3"));
	assert_string_equal(err.sqlstate, "42703");
	sbx_err_clear(&err);
	assert_int_equal(sbx_db_script(db, "copy tenants from stdin", &err), -1);
	sbx_err_clear(&err);
	/* Statements and scripts alternate on a connection. */
	assert_true(run_pid(db) > 0);
	sbx_db_give(db);
	sbx_db_pool_free(pool);
}

static void test_stale_connection(void **state)
{
	(void)state;
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_db_pool *pool = it_pool("sbx_owner", 1);
	struct sbx_db *db = sbx_db_take(pool, 0, &err);
	int64_t before = run_pid(db);
	/* Gone while it was in somebody's hands: reads and writes go through, nothing was in
	 * flight. */
	terminate(before);
	assert_int_not_equal(run_pid(db), before);
	terminate(run_pid(db));
	must(sbx_db_run(db, NULL, &add_tenant, SBX_PARAMS(sbx_p_z("after-stale")), NULL, &err), &err);
	/* Gone while it was idle. */
	before = run_pid(db);
	sbx_db_give(db);
	terminate(before);
	db = sbx_db_take(pool, 0, &err);
	must(sbx_db_begin(db, NULL, &err), &err);
	must(sbx_db_commit(db, &err), &err);
	/* Gone within a transaction: all of it is lost, and says so until its end. */
	must(sbx_db_begin(db, NULL, &err), &err);
	must(sbx_db_run(db, NULL, &add_tenant, SBX_PARAMS(sbx_p_z("lost")), NULL, &err), &err);
	terminate(run_pid(db));
	expect(db, &find_tenant, SBX_PARAMS(sbx_p_z("lost")), SBX_E_UNAVAILABLE, "57P01");
	expect(db, &find_tenant, SBX_PARAMS(sbx_p_z("lost")), SBX_E_UNAVAILABLE, "");
	assert_int_equal(sbx_db_commit(db, &err), -1);
	assert_int_equal(err.code, SBX_E_UNAVAILABLE);
	assert_int_equal(count_tenants(db, "lost"), 0);
	sbx_db_give(db);
	sbx_db_pool_free(pool);
}

/* Breaks the connection of another thread's statement once it runs. */
static void *break_sleeper(void *arg)
{
	(void)arg;
	static const char sql[] = "select pg_terminate_backend(pid) from pg_stat_activity"
				  " where query like '%pg_sleep(30)%' and state = 'active' and pid "
				  "<> pg_backend_pid()";
	char conninfo[IT_TEXT];
	PGconn *super = PQconnectdb(it_conninfo("postgres", conninfo));
	int found = 0;
	for (int i = 0; i < 1000 && !found; i++) {
		PGresult *r = PQexec(super, sql);
		found = PQntuples(r);
		PQclear(r);
		usleep(10000);
	}
	PQfinish(super);
	return NULL;
}

static void test_killed_while_running(void **state)
{
	(void)state;
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_db_pool *pool = it_pool("sbx_owner", 1);
	struct sbx_db *db = sbx_db_take(pool, 0, &err);
	pthread_t t;
	/* The server says that it ended the statement: so it did not happen. */
	assert_int_equal(pthread_create(&t, NULL, break_sleeper, NULL), 0);
	expect(db, &slow_write, NULL, SBX_E_UNAVAILABLE, "57P01");
	pthread_join(t, NULL);
	assert_int_equal(count_tenants(db, "never"), 0);
	expect(db, &kill_self_write, NULL, SBX_E_UNAVAILABLE, "57P01");
	assert_int_equal(count_tenants(db, "killed"), 0);
	/* Time-outs of the server come before ours. */
	must(sbx_db_script(db, "set statement_timeout = 50", &err), &err);
	expect(db, &slow_read, NULL, SBX_E_TIMEOUT, "57014");
	sbx_db_give(db);
	sbx_db_pool_free(pool);
}

/* Cuts the socket under a statement of another thread once the server runs it, as a failing network
 * does. */
static void *cut_socket(void *arg)
{
	const int *fd = arg;
	char conninfo[IT_TEXT];
	PGconn *super = PQconnectdb(it_conninfo("postgres", conninfo));
	int found = 0;
	for (int i = 0; i < 1000 && !found; i++) {
		PGresult *r = PQexec(super,
			"select from pg_stat_activity where query like '%pg_sleep(0.4)%'"
			" and state = 'active' and pid <> pg_backend_pid()");
		found = PQntuples(r);
		PQclear(r);
		usleep(5000);
	}
	shutdown(*fd, SHUT_RDWR);
	PQfinish(super);
	return NULL;
}

static void test_cut_while_running(void **state)
{
	(void)state;
	static const struct sbx_stmt write = { "it_cut_write",
		"with s as materialized (select pg_sleep(0.4)) insert into tenants (name) select "
		"'unsure' from s",
		0, "" };
	static const struct sbx_stmt read = { "it_cut_read", "select pg_sleep(0.4), 7 as n", 0, "pg_sleep,n" };
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_db_pool *pool = it_pool("sbx_owner", 1);
	struct sbx_db *db = sbx_db_take(pool, 0, &err);
	struct sbx_res *r = NULL;
	pthread_t t;
	/* Whether a write happened is not known, and it is not repeated. */
	int fd = PQsocket(db->pg);
	assert_int_equal(pthread_create(&t, NULL, cut_socket, &fd), 0);
	expect(db, &write, NULL, SBX_E_UNCERTAIN, "");
	pthread_join(t, NULL);
	assert_false(sbx_code_retryable(SBX_E_UNCERTAIN));
	/* A read is, and succeeds. */
	assert_true(run_pid(db) > 0);
	fd = PQsocket(db->pg);
	assert_int_equal(pthread_create(&t, NULL, cut_socket, &fd), 0);
	must(sbx_db_run(db, NULL, &read, NULL, &r, &err), &err);
	pthread_join(t, NULL);
	assert_int_equal(sbx_res_i(r, 0, 1), 7);
	sbx_res_free(r);
	/* A write within a transaction: the transaction is lost, which is known. */
	must(sbx_db_begin(db, NULL, &err), &err);
	fd = PQsocket(db->pg);
	assert_int_equal(pthread_create(&t, NULL, cut_socket, &fd), 0);
	expect(db, &write, NULL, SBX_E_UNAVAILABLE, "");
	pthread_join(t, NULL);
	sbx_db_give(db);
	sbx_db_pool_free(pool);
}

static void test_pool_limit(void **state)
{
	(void)state;
	struct sbx_err err = SBX_ERR_INIT;
	int in_use = 0, open = 0;
	struct sbx_db_pool *pool = it_pool("sbx_worker", 2);
	struct sbx_db *a = sbx_db_take(pool, 0, &err), *b = sbx_db_take(pool, 0, &err);
	assert_non_null(a);
	assert_non_null(b);
	int64_t start = sbx_mono_ms();
	assert_null(sbx_db_take(pool, 120, &err));
	assert_in_range(sbx_mono_ms() - start, 110, 2000);
	assert_int_equal(err.code, SBX_E_UNAVAILABLE);
	sbx_db_pool_counts(pool, &in_use, &open);
	assert_int_equal(in_use, 2);
	assert_int_equal(open, 2);
	sbx_db_give(a);
	sbx_db_pool_counts(pool, &in_use, &open);
	assert_int_equal(in_use, 1);
	assert_int_equal(open, 2);
	sbx_err_clear(&err);
	a = sbx_db_take(pool, 0, &err);
	assert_non_null(a);
	sbx_db_give(a);
	sbx_db_give(b);
	sbx_db_give(NULL);
	sbx_db_pool_free(pool);
}

struct crowd {
	struct sbx_db_pool *pool;
	const char *tenant, *box;
	int failures;
};

static void *crowd_member(void *arg)
{
	struct crowd *c = arg;
	for (int i = 0; i < 200; i++) {
		struct sbx_err err = SBX_ERR_INIT;
		sbx_auto_db struct sbx_db *db = sbx_db_take(c->pool, 5000, &err);
		sbx_auto_res struct sbx_res *r = NULL;
		if (db == NULL || sbx_db_run(db, c->tenant, &my_boxes, NULL, &r, &err) < 0 || sbx_res_rows(r) != 1 ||
			strcmp(sbx_res_z(r, 0, 0), c->box) != 0)
			c->failures++;
	}
	return NULL;
}

static void test_threads(void **state)
{
	(void)state;
	pthread_t t[6];
	struct sbx_db_pool *pool = it_pool("sbx_worker", 3);
	struct crowd crowd[6];
	for (size_t i = 0; i < SBX_ARRAY_LEN(t); i++) {
		crowd[i] = (struct crowd){ pool, i % 2 ? tenant_a : tenant_b,
			i % 2 ? "bdbaaaaaaaaaaaaaaaaaaaaaaaa" : "bdbbbbbbbbbbbbbbbbbbbbbbbbb", 0 };
		assert_int_equal(pthread_create(&t[i], NULL, crowd_member, &crowd[i]), 0);
	}
	for (size_t i = 0; i < SBX_ARRAY_LEN(t); i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(crowd[i].failures, 0);
	}
	sbx_db_pool_free(pool);
}

/* LISTEN */

struct heard {
	int connects, n;
	char last[200];
};

static void on_notify(void *arg, const char *channel, const char *payload)
{
	struct heard *h = arg;
	h->n++;
	snprintf(h->last, sizeof(h->last), "%s:%s", channel, payload);
}

static void on_connect(void *arg)
{
	((struct heard *)arg)->connects++;
}

/* Turns until the number reaches want; false when that takes longer than ms. */
static bool turn_until(struct sbx_listener *l, const int *number, int want, int ms)
{
	int64_t deadline = sbx_mono_ms() + ms;
	while (*number < want) {
		struct pollfd p = { .fd = -1 };
		int wait = 0;
		sbx_listener_turn(l, &p.fd, &p.events, &wait);
		assert_in_range(wait, 0, 60000);
		int left = sbx_ms_left(deadline);
		if (*number >= want)
			break;
		if (left == 0)
			return false;
		poll(&p, 1, wait < left ? wait : left);
	}
	return true;
}

static const char *const channels[] = { "sbx_ops", "it channel", NULL };

static struct sbx_listener *listener(struct heard *h)
{
	char conninfo[IT_TEXT];
	struct sbx_listener *l = sbx_listener_new(
		it_conninfo("sbx_worker", conninfo), "sbx-listen", channels, on_notify, on_connect, h);
	assert_non_null(l);
	return l;
}

static void test_listener(void **state)
{
	(void)state;
	struct heard h = { 0 };
	struct sbx_listener *l = listener(&h);
	assert_false(sbx_listener_connected(l));
	assert_true(turn_until(l, &h.connects, 1, 5000));
	assert_true(sbx_listener_connected(l));
	it_value(owner, "notify sbx_ops, 'h1'");
	assert_true(turn_until(l, &h.n, 1, 5000));
	assert_string_equal(h.last, "sbx_ops:h1");
	it_value(owner, "notify \"it channel\"");
	assert_true(turn_until(l, &h.n, 2, 5000));
	assert_string_equal(h.last, "it channel:");
	/* Cut off: it comes back by itself and says so. */
	PGconn *super = it_connect("postgres");
	it_value(super,
		"select pg_terminate_backend(pid, 5000) from pg_stat_activity where"
		" application_name = 'sbx-listen'");
	PQfinish(super);
	assert_true(turn_until(l, &h.connects, 2, 5000));
	it_value(owner, "notify sbx_ops, 'h2'");
	assert_true(turn_until(l, &h.n, 3, 5000));
	assert_string_equal(h.last, "sbx_ops:h2");
	sbx_listener_free(l);
	sbx_listener_free(NULL);
}

/* The server goes away for a while, under pool and listener. */
static void test_server_down(void **state)
{
	(void)state;
	struct sbx_err err = SBX_ERR_INIT;
	struct heard h = { 0 };
	struct sbx_listener *l = listener(&h);
	struct sbx_db_pool *pool = it_pool("sbx_worker", 2);
	struct sbx_db *db = sbx_db_take(pool, 0, &err);
	expect_boxes(db, tenant_a, "bdbaaaaaaaaaaaaaaaaaaaaaaaa");
	sbx_db_give(db);
	assert_true(turn_until(l, &h.connects, 1, 5000));
	it_server("stop");

	int64_t start = sbx_mono_ms();
	for (int i = 0; i < 50; i++) {
		sbx_err_clear(&err);
		assert_null(sbx_db_take(pool, 1000, &err));
		assert_int_equal(err.code, SBX_E_UNAVAILABLE);
		assert_true(sbx_code_retryable(err.code));
	}
	assert_in_range(sbx_mono_ms() - start, 0, 1000);
	int never = 0;
	assert_false(turn_until(l, &never, 1, 300));
	assert_false(sbx_listener_connected(l));

	it_server("start");
	PQreset(owner);
	int64_t deadline = sbx_mono_ms() + 5000;
	for (db = NULL; db == NULL && sbx_ms_left(deadline) > 0; usleep(20000))
		db = sbx_db_take(pool, 1000, NULL);
	assert_non_null(db);
	expect_boxes(db, tenant_a, "bdbaaaaaaaaaaaaaaaaaaaaaaaa");
	assert_true(turn_until(l, &h.connects, 2, 15000));
	/* And when it restarts while a connection rests in the pool. */
	sbx_db_give(db);
	it_server("restart");
	db = sbx_db_take(pool, 1000, &err);
	assert_non_null(db);
	expect_boxes(db, tenant_b, "bdbbbbbbbbbbbbbbbbbbbbbbbbb");
	sbx_db_give(db);
	sbx_listener_free(l);
	sbx_db_pool_free(pool);
}

/* Settings of each connection, whatever the server's configuration says. */
static void test_settings(void **state)
{
	(void)state;
	static const struct sbx_stmt settings = { "it_settings",
		"select string_agg(current_setting(s), ' ' order by i) as v from "
		"unnest(array['search_path',"
		" 'statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', "
		"'client_encoding',"
		" 'TimeZone', 'application_name', 'transaction_isolation']) with ordinality x(s, "
		"i)",
		0, "v" };
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_db_pool *pool = it_pool("sbx_worker", 1);
	struct sbx_db *db = sbx_db_take(pool, 0, &err);
	struct sbx_res *r = NULL;
	must(sbx_db_run(db, NULL, &settings, NULL, &r, &err), &err);
	assert_string_equal(sbx_res_z(r, 0, 0), "sbx 10s 5s 15s UTF8 UTC sbx-test read committed");
	sbx_res_free(r);
	sbx_db_give(db);
	sbx_db_pool_free(pool);
}

static int setup(void **state)
{
	(void)state;
	owner = it_connect("sbx_owner");
	it_tenant(owner, "db-a", tenant_a);
	it_tenant(owner, "db-b", tenant_b);
	it_box(owner, tenant_a, "bdbaaaaaaaaaaaaaaaaaaaaaaaa");
	it_box(owner, tenant_b, "bdbbbbbbbbbbbbbbbbbbbbbbbbb");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	PQfinish(owner);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_settings),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_tenants_share_a_connection),
		cmocka_unit_test(test_transactions),
		cmocka_unit_test(test_script),
		cmocka_unit_test(test_stale_connection),
		cmocka_unit_test(test_killed_while_running),
		cmocka_unit_test(test_cut_while_running),
		cmocka_unit_test(test_pool_limit),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_listener),
		cmocka_unit_test(test_server_down),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
