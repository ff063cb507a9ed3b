/*
 * Parameters and results.
 */
#include "sbx/db.h"

#include <stdlib.h>
#include <string.h>

#include "db/db_conn.h"

struct sbx_param sbx_p_null(void)
{
	return (struct sbx_param){ .kind = SBX_P_NULL };
}

struct sbx_param sbx_p_z(const char *z)
{
	return z == NULL ? sbx_p_null() : sbx_p_s(sbx_str_of(z));
}

struct sbx_param sbx_p_s(struct sbx_str s)
{
	return (struct sbx_param){ .kind = SBX_P_TEXT, .s = s };
}

struct sbx_param sbx_p_i(int64_t i)
{
	return (struct sbx_param){ .kind = SBX_P_INT, .i = i };
}

struct sbx_param sbx_p_bool(bool v)
{
	return (struct sbx_param){ .kind = SBX_P_BOOL, .i = v };
}

struct sbx_param sbx_p_bytes(const void *p, size_t n)
{
	return (struct sbx_param){ .kind = SBX_P_BYTES, .s = { p, n } };
}

int sbx_res_rows(const struct sbx_res *r)
{
	return PQntuples(r->pg);
}

int64_t sbx_res_affected(const struct sbx_res *r)
{
	int64_t n = 0;
	return sbx_str_i64(sbx_str_of(PQcmdTuples(r->pg)), 0, INT64_MAX, &n) ? n : 0;
}

bool sbx_res_null(const struct sbx_res *r, int row, int col)
{
	return PQgetisnull(r->pg, row, col) == 1;
}

const char *sbx_res_z(const struct sbx_res *r, int row, int col)
{
	return sbx_res_null(r, row, col) ? NULL : PQgetvalue(r->pg, row, col);
}

int64_t sbx_res_i(const struct sbx_res *r, int row, int col)
{
	int64_t i = 0;
	return sbx_str_i64(sbx_str_of(sbx_res_z(r, row, col)), INT64_MIN, INT64_MAX, &i) ? i : 0;
}

bool sbx_res_bool(const struct sbx_res *r, int row, int col)
{
	return sbx_streq(sbx_res_z(r, row, col), "t");
}

void sbx_res_free(struct sbx_res *r)
{
	if (r == NULL)
		return;
	PQclear(r->pg);
	free(r);
}

void sbx_res_auto(struct sbx_res **r)
{
	sbx_res_free(*r);
}
