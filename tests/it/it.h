/*
 * What the tests against a database share. tests/it/run starts a cluster and says where:
 * SBX_TEST_DIR, SBX_TEST_DB (a conninfo without user). Failures are cmocka failures, so call from
 * the main thread.
 */
#ifndef IT_H
#define IT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <libpq-fe.h>

#include "db/stmts.h"

#define IT_TEXT 4096

/* "… user=role" of the test database, or of another one of the cluster. */
const char *it_conninfo(const char *role, char out[IT_TEXT]);
const char *it_conninfo_of(const char *database, const char *role, char out[IT_TEXT]);
struct sbx_db_pool *it_pool(const char *role, int max);
/* A plain connection beside the layer under test. */
PGconn *it_connect(const char *role);
/*
 * First value of the first row, "" for none or NULL. In static memory, valid until the next call.
 */
const char *it_value(PGconn *pg, const char *sql);
/* SQLSTATE of a statement that is to fail; "" when it does not. */
const char *it_sqlstate(PGconn *pg, const char *sql);
/* tests/it/pg verb. */
void it_server(const char *verb);
/* A tenant with a name of its own; its id. */
void it_tenant(PGconn *owner, const char *name, char ret_id[37]);
/* A host, an image, a machine of it and a ready box of the tenant; made once a name. */
void it_box(PGconn *owner, const char *tenant_id, const char *box_id);

#endif
