/*
 * The statements, declared. To add one: a `const struct sbx_stmt sbx_stmt_<name>` in db_<group>.c
 * and a line in stmts.def; run it with sbx_db_run(db, tenant, &sbx_stmt_<name>, SBX_PARAMS(…),
 * &res, err).
 *
 * Rules. Each $n has a cast at its first use, so that its type does not depend on the context.
 * Columns are named in `columns` in the order of the result and read by that position. search_path
 * is sbx; other schemas are written out. A statement whose text starts with "select" may be
 * repeated when the connection breaks under it: a function with effects that is called by select
 * must be idempotent; everything else starts with insert, update, delete or with, and is never
 * repeated.
 */
#ifndef SBX_DB_STMTS_H
#define SBX_DB_STMTS_H

#include "sbx/db.h"

#define X(name, role) extern const struct sbx_stmt sbx_stmt_##name;
#include "db/stmts.def"
#undef X

#endif
