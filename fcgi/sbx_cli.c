#include "sbx_cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define OUT_MAX (64u << 20)
#define GAP 2

int cli_connect(struct cli *cli, const char *role, struct sbx_err *err)
{
	sbx_auto_buf struct sbx_buf conninfo;
	sbx_buf_init(&conninfo, 4096);
	sbx_buf_addf(&conninfo, "%s user=%s", cli->conf->db, role);
	if (sbx_buf_ok(&conninfo, err) < 0)
		return -1;
	sbx_db_give(cli->db);
	sbx_db_pool_free(cli->pool);
	cli->db = NULL;
	cli->pool = sbx_db_pool_new(sbx_buf_z(&conninfo), "sbx", 1);
	if (cli->pool == NULL)
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	cli->db = sbx_db_take(cli->pool, 0, err);
	return cli->db != NULL ? 0 : -1;
}

int cli_put(const struct sbx_buf *b, struct sbx_err *err)
{
	if (sbx_buf_ok(b, err) < 0)
		return -1;
	if ((b->n > 0 && fwrite(b->p, 1, b->n, stdout) != b->n) || fflush(stdout) != 0)
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot write to standard output.");
	return 0;
}

int cli_put_value(const struct cli *cli, const char *name, const char *value, struct sbx_err *err)
{
	sbx_auto_buf struct sbx_buf out;
	struct sbx_jw w;
	sbx_buf_init(&out, OUT_MAX);
	if (cli->opt[OPT_JSON] != NULL) {
		sbx_jw_init(&w, &out);
		sbx_jw_obj(&w, NULL);
		sbx_jw_z(&w, name, value);
		sbx_jw_end(&w);
	} else {
		sbx_buf_addz(&out, value);
	}
	sbx_buf_addc(&out, '\n');
	return cli_put(&out, err);
}

/* PostgreSQL's "2026-11-30 23:01:14.123456+00" (the connection's zone is UTC) as RFC 3339. */
static void put_time(struct sbx_buf *b, const char *z, bool is_short)
{
	struct sbx_str s = sbx_str_of(z);
	if (s.n < 22 || s.p[10] != ' ' || strcmp(s.p + s.n - 3, "+00") != 0) {
		sbx_buf_adds(b, s);
		return;
	}
	sbx_buf_add(b, s.p, 10);
	sbx_buf_addc(b, 'T');
	sbx_buf_add(b, s.p + 11, is_short ? 8 : s.n - 14);
	sbx_buf_addc(b, 'Z');
}

static void json_value(struct sbx_jw *w, const struct cli_column *c, const struct sbx_res *r, int row, int col)
{
	sbx_auto_buf struct sbx_buf time;
	sbx_buf_init(&time, 64);
	if (sbx_res_null(r, row, col)) {
		sbx_jw_null(w, c->json);
	} else if (c->kind == CLI_INT) {
		sbx_jw_i(w, c->json, sbx_res_i(r, row, col));
	} else if (c->kind == CLI_BOOL) {
		sbx_jw_bool(w, c->json, sbx_res_bool(r, row, col));
	} else if (c->kind == CLI_TIME) {
		put_time(&time, sbx_res_z(r, row, col), false);
		sbx_jw_s(w, c->json, sbx_buf_str(&time));
	} else {
		sbx_jw_z(w, c->json, sbx_res_z(r, row, col));
	}
}

static void put_json(struct sbx_buf *out, const struct sbx_res *r, const struct cli_column *columns, int n)
{
	struct sbx_jw w;
	sbx_jw_init(&w, out);
	sbx_jw_arr(&w, NULL);
	for (int row = 0; row < sbx_res_rows(r); row++) {
		sbx_jw_obj(&w, NULL);
		for (int col = 0; col < n; col++)
			json_value(&w, &columns[col], r, row, col);
		sbx_jw_end(&w);
	}
	sbx_jw_end(&w);
	sbx_buf_addc(out, '\n');
}

/* What a cell shows; control characters, which a client may have put there, do not reach the
 * terminal. */
static void cell(struct sbx_buf *b, const struct cli_column *c, const struct sbx_res *r, int row, int col)
{
	const char *z = row < 0 ? c->title : sbx_res_z(r, row, col);
	sbx_buf_reset(b);
	if (z == NULL || z[0] == 0) {
		sbx_buf_addc(b, '-');
	} else if (row >= 0 && c->kind == CLI_BOOL) {
		sbx_buf_addz(b, sbx_res_bool(r, row, col) ? "yes" : "no");
	} else if (row >= 0 && c->kind == CLI_TIME) {
		put_time(b, z, true);
	} else {
		for (; *z != 0; z++) {
			unsigned char ch = (unsigned char)*z;
			/* U+0080 to U+009F, two bytes in UTF-8, are control characters too. */
			bool is_c1 = ch == 0xC2 && (unsigned char)z[1] >= 0x80 && (unsigned char)z[1] <= 0x9F;
			sbx_buf_addc(b, ch < 0x20 || ch == 0x7F || is_c1 ? '?' : *z);
			z += is_c1;
		}
	}
}

/* Characters, near enough to columns for alignment. */
static int width(const struct sbx_buf *b)
{
	int n = 0;
	for (size_t i = 0; i < b->n; i++)
		n += (b->p[i] & 0xC0) != 0x80;
	return n;
}

static void put_table(struct sbx_buf *out, const struct sbx_res *r, const struct cli_column *columns, int n)
{
	sbx_auto_buf struct sbx_buf b;
	int widths[32] = { 0 }, last = 0;
	SBX_ASSERT(n <= (int)SBX_ARRAY_LEN(widths));
	sbx_buf_init(&b, 1 << 20);
	for (int col = 0; col < n; col++) {
		if (columns[col].title == NULL)
			continue;
		last = col;
		for (int row = -1; row < sbx_res_rows(r); row++) {
			cell(&b, &columns[col], r, row, col);
			if (width(&b) > widths[col])
				widths[col] = width(&b);
		}
	}
	for (int row = -1; row < sbx_res_rows(r); row++) {
		for (int col = 0; col <= last; col++) {
			if (columns[col].title == NULL)
				continue;
			cell(&b, &columns[col], r, row, col);
			int pad = col == last ? 0 : widths[col] - width(&b) + GAP;
			/* Numbers to the right, with the gap behind them. */
			if (columns[col].kind == CLI_INT && col != last)
				sbx_buf_addf(out, "%*s", pad - GAP, "");
			sbx_buf_adds(out, sbx_buf_str(&b));
			sbx_buf_addf(out, "%*s", columns[col].kind == CLI_INT && pad > 0 ? GAP : pad, "");
		}
		sbx_buf_addc(out, '\n');
	}
}

int cli_print(
	const struct cli *cli, const struct sbx_res *r, const struct cli_column *columns, int n, struct sbx_err *err)
{
	sbx_auto_buf struct sbx_buf out;
	sbx_buf_init(&out, OUT_MAX);
	if (cli->opt[OPT_JSON] != NULL)
		put_json(&out, r, columns, n);
	else
		put_table(&out, r, columns, n);
	return cli_put(&out, err);
}
