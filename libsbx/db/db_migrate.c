/*
 * Forward-only migrations. Each file is one transaction that first takes the advisory lock and then
 * looks whether the file is still missing, so that two runs at once, or one that is killed, do no
 * harm.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "db/stmts.h"
#include "sbx/buf.h"
#include "sbx/fd.h"

#define MAX_FILE_BYTES (4u << 20)

const struct sbx_stmt sbx_stmt_migration_roles = {
	.name = "migration_roles",
	.sql = "select name from"
	       " unnest(array['sbx_owner', 'sbx_worker', 'sbx_keeper', 'sbx_admin']) as name"
	       " where name not in (select rolname from pg_roles)",
	.params = 0,
	.columns = "name",
};

const struct sbx_stmt sbx_stmt_migration_latest = {
	.name = "migration_latest",
	.sql = "select coalesce(max(version), 0) as version from schema_migrations",
	.params = 0,
	.columns = "version",
};

/* $1 version, $2 file name, $3 content. */
const struct sbx_stmt sbx_stmt_migration_check = {
	.name = "migration_check",
	.sql = "select name = $2::text and sha256 = sha256($3::bytea) as is_same"
	       " from schema_migrations where version = $1::integer",
	.params = 3,
	.columns = "is_same",
};

const struct sbx_stmt sbx_stmt_migration_put = {
	.name = "migration_put",
	.sql = "insert into schema_migrations (version, name, sha256)"
	       " values ($1::integer, $2::text, sha256($3::bytea))",
	.params = 3,
	.columns = "",
};

/* Whether this is still the transaction that lock_sql began: a file must not end it. */
const struct sbx_stmt sbx_stmt_migration_within = {
	.name = "migration_within",
	.sql = "select coalesce(current_setting('sbx.migrating', true) = 'yes', false)"
	       " as is_within",
	.params = 0,
	.columns = "is_within",
};

/*
 * A migration may take long, but must not queue behind a long transaction with everybody behind it.
 */
static const char lock_sql[] = "set local statement_timeout = 0; set local lock_timeout = 0;"
			       "select pg_advisory_xact_lock(hashtext('sbx migrate'));"
			       "set local sbx.migrating = 'yes';"
			       "set local lock_timeout = '10s'";

static const char table_sql[] =
	"create schema if not exists sbx;"
	"comment on schema sbx is 'Tables of sbx. Operators use schema admin.';"
	"create table if not exists sbx.schema_migrations ("
	" version integer primary key check (version > 0),"
	" name text not null,"
	" sha256 bytea not null check (octet_length(sha256) = 32),"
	" applied_at timestamptz not null default now());"
	"comment on table sbx.schema_migrations is 'Migrations that were applied.';"
	"comment on column sbx.schema_migrations.version is 'Number of the file.';"
	"comment on column sbx.schema_migrations.name is 'Name of the file.';"
	"comment on column sbx.schema_migrations.sha256 is 'Of its content: an applied file never "
	"changes.';"
	"comment on column sbx.schema_migrations.applied_at is 'When.';";

struct files {
	struct dirent **entry;
	int n;
};

static void files_done(struct files *f)
{
	for (int i = 0; i < f->n; i++)
		free(f->entry[i]);
	free(f->entry);
}

static int is_migration(const struct dirent *d)
{
	size_t n = strlen(d->d_name);
	return d->d_name[0] >= '0' && d->d_name[0] <= '9' && n > 4 && strcmp(d->d_name + n - 4, ".sql") == 0;
}

/* The files in order; their numbers are 0001, 0002, … without a gap. */
static int list_files(const char *dir, struct files *ret, struct sbx_err *err)
{
	ret->n = scandir(dir, &ret->entry, is_migration, alphasort);
	if (ret->n < 0) {
		*ret = (struct files){ 0 };
		return SBX_FAIL_SYS(err, SBX_E_NOT_FOUND, "Cannot read the migrations in %s.", dir);
	}
	for (int i = 0; i < ret->n; i++) {
		const char *name = ret->entry[i]->d_name;
		int64_t version = 0;
		if (!sbx_str_i64((struct sbx_str){ name, 4 }, 0, 9999, &version) || name[4] != '_' || version != i + 1)
			return SBX_FAIL(err, SBX_E_CONFLICT,
				"Migration %s is not number %04d: numbers have four digits, no gap "
				"and no double.",
				name, i + 1);
	}
	if (ret->n == 0)
		return SBX_FAIL(err, SBX_E_NOT_FOUND, "There are no migrations in %s.", dir);
	return 0;
}

static int slurp(const char *dir, const char *name, struct sbx_buf *out, struct sbx_err *err)
{
	sbx_auto_buf struct sbx_buf path;
	sbx_buf_init(&path, 4096);
	sbx_buf_addf(&path, "%s/%s", dir, name);
	if (sbx_buf_ok(&path, err) < 0 || sbx_fd_slurp(sbx_buf_z(&path), out, err) < 0)
		return sbx_err_wrap(err, "%s", name);
	if (out->n > 0 && memchr(out->p, 0, out->n) != NULL)
		return SBX_FAIL(err, SBX_E_INVALID, "%s is not a text file.", name);
	return 0;
}

static int check_within(struct sbx_db *db, struct sbx_err *err)
{
	sbx_auto_res struct sbx_res *r = NULL;
	if (sbx_db_run(db, NULL, &sbx_stmt_migration_within, NULL, &r, err) < 0)
		return -1;
	if (sbx_res_bool(r, 0, 0))
		return 0;
	return SBX_FAIL(err, SBX_E_CONFLICT,
		"It ends the transaction, so part of it may stay: take commit and rollback out of "
		"it and repair by hand.");
}

/* One locked transaction round a script. */
static int run_locked(struct sbx_db *db, const char *sql, struct sbx_err *err)
{
	if (sbx_db_begin(db, NULL, err) < 0)
		return -1;
	if (sbx_db_script(db, lock_sql, err) < 0 || sbx_db_script(db, sql, err) < 0 || check_within(db, err) < 0) {
		sbx_db_rollback(db);
		return -1;
	}
	return sbx_db_commit(db, err);
}

/*
 * Within the locked transaction: applies and records the file, or sees that it is there unchanged.
 */
static int apply_missing(
	struct sbx_db *db, int version, const char *name, struct sbx_buf *sql, bool *ret_applied, struct sbx_err *err)
{
	sbx_auto_res struct sbx_res *found = NULL;
	const struct sbx_param *params = SBX_PARAMS(sbx_p_i(version), sbx_p_z(name), sbx_p_bytes(sql->p, sql->n));
	if (sbx_db_run(db, NULL, &sbx_stmt_migration_check, params, &found, err) < 0)
		return -1;
	if (sbx_res_rows(found) > 0 && !sbx_res_bool(found, 0, 0))
		return SBX_FAIL(err, SBX_E_CONFLICT,
			"It was applied with another name or content. Applied migrations never "
			"change: restore the file and add a new one.");
	*ret_applied = sbx_res_rows(found) == 0;
	if (!*ret_applied)
		return 0;
	if (sbx_db_script(db, sbx_buf_z(sql), err) < 0 || check_within(db, err) < 0)
		return -1;
	return sbx_db_run(db, NULL, &sbx_stmt_migration_put, params, NULL, err);
}

static int apply_file(
	struct sbx_db *db, const char *dir, int version, const char *name, int *applied, struct sbx_err *err)
{
	bool was_applied = false;
	sbx_auto_buf struct sbx_buf sql;
	sbx_buf_init(&sql, MAX_FILE_BYTES);
	if (slurp(dir, name, &sql, err) < 0 || sbx_db_begin(db, NULL, err) < 0)
		return -1;
	if (sbx_db_script(db, lock_sql, err) < 0 || apply_missing(db, version, name, &sql, &was_applied, err) < 0) {
		sbx_db_rollback(db);
		return sbx_err_wrap(err, "%s", name);
	}
	if (sbx_db_commit(db, err) < 0)
		return sbx_err_wrap(err, "%s", name);
	*applied += was_applied;
	return 0;
}

static int run_file(struct sbx_db *db, const char *dir, const char *name, struct sbx_err *err)
{
	sbx_auto_buf struct sbx_buf sql;
	sbx_buf_init(&sql, MAX_FILE_BYTES);
	if (slurp(dir, name, &sql, err) < 0)
		return -1;
	if (run_locked(db, sbx_buf_z(&sql), err) < 0)
		return sbx_err_wrap(err, "%s", name);
	return 0;
}

static int check_roles(struct sbx_db *db, struct sbx_err *err)
{
	sbx_auto_res struct sbx_res *missing = NULL;
	if (sbx_db_run(db, NULL, &sbx_stmt_migration_roles, NULL, &missing, err) < 0)
		return -1;
	if (sbx_res_rows(missing) > 0)
		return SBX_FAIL(err, SBX_E_NOT_FOUND,
			"Role %s is missing: run sql/roles.sql once as the superuser of the "
			"cluster.",
			sbx_res_z(missing, 0, 0));
	return 0;
}

int sbx_db_migrate(struct sbx_db *db, const char *dir, int *ret_applied, struct sbx_err *err)
{
	SBX_CLEANUP(files_done) struct files files = { 0 };
	int applied = 0, latest = 0;
	if (list_files(dir, &files, err) < 0 || check_roles(db, err) < 0 || run_locked(db, table_sql, err) < 0 ||
		sbx_db_schema_version(db, &latest, err) < 0)
		return -1;
	if (latest > files.n)
		return SBX_FAIL(err, SBX_E_CONFLICT,
			"The database has migration %04d, but the newest file in %s is %04d: this "
			"program is too old for the database.",
			latest, dir, files.n);
	for (int i = 0; i < files.n; i++)
		if (apply_file(db, dir, i + 1, files.entry[i]->d_name, &applied, err) < 0)
			return -1;
	if (run_file(db, dir, "grants.sql", err) < 0 || run_file(db, dir, "views.sql", err) < 0)
		return -1;
	*ret_applied = applied;
	return 0;
}

int sbx_db_schema_version(struct sbx_db *db, int *ret, struct sbx_err *err)
{
	sbx_auto_res struct sbx_res *r = NULL;
	struct sbx_err own = SBX_ERR_INIT;
	if (sbx_db_run(db, NULL, &sbx_stmt_migration_latest, NULL, &r, &own) == 0) {
		*ret = (int)sbx_res_i(r, 0, 0);
		return 0;
	}
	/* No such table: nothing was ever applied. */
	if (sbx_streq(own.sqlstate, "42P01")) {
		*ret = 0;
		return 0;
	}
	if (err != NULL && err->code == SBX_OK)
		*err = own;
	return -1;
}
