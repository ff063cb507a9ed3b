/*
 * sbx image add|list.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sbx/fd.h"
#include "sbx/schema.h"
#include "sbx_cli.h"

#define UNIT_JSON_MAX 65536u

/* unit.json of an image unit. */
struct unit {
	const char *name, *unit, *description;
	struct sbx_opt_int vcpu, memory_mib, disk_gib, bytes, protocol;
};

static const struct sbx_field unit_rows[] = {
	SBX_IN(struct unit, name, "name", "what sandbox_start calls it", .required = true, .min = 1, .max = 32),
	SBX_IN(struct unit, unit, "unit", "name of the folder", .required = true, .min = 1, .max = 128),
	SBX_IN(struct unit, vcpu, "vcpu", "virtual CPUs", .required = true, .min = 1, .max = 64),
	SBX_IN(struct unit, memory_mib, "memoryMib", "memory", .required = true, .min = 64, .max = 1048576),
	SBX_IN(struct unit, disk_gib, "diskGib", "root disk", .required = true, .min = 1, .max = 65536),
	SBX_IN(struct unit, bytes, "bytes", "space it takes", .required = true, .max = INT64_C(1) << 50),
	SBX_IN(struct unit, protocol, "protocol", "of its boxd", .required = true, .min = 1, .max = 1000),
	SBX_IN(struct unit, description, "description", "one line for people", .max = 500),
};
static const struct sbx_fields unit_fields = SBX_FIELDS(unit_rows, struct unit);

/* A unit is what its folder is called: keepers find it by that name. */
static int check_folder(const char *dir, const char *unit, struct sbx_err *err)
{
	static const char *const files[] = { "kernel", "initrd", "root.img" };
	char path[PATH_MAX];
	sbx_auto_free char *real = realpath(dir, NULL);
	if (real == NULL)
		return SBX_FAIL_SYS(err, SBX_E_NOT_FOUND, "Cannot read %s.", dir);
	const char *slash = strrchr(real, '/');
	if (slash == NULL || strcmp(slash + 1, unit) != 0)
		return SBX_FAIL(err, SBX_E_INVALID, "The folder %s has the unit %s in it: the names must be the same.",
			real, unit);
	for (size_t i = 0; i < SBX_ARRAY_LEN(files); i++) {
		if (snprintf(path, sizeof(path), "%s/%s", real, files[i]) >= (int)sizeof(path) ||
			access(path, R_OK) != 0)
			return SBX_FAIL_SYS(err, SBX_E_NOT_FOUND, "The unit has no %s.", files[i]);
	}
	return 0;
}

static int read_unit(struct sbx_arena *arena, const char *dir, struct unit *ret, struct sbx_err *err)
{
	sbx_auto_buf struct sbx_buf text;
	sbx_buf_init(&text, UNIT_JSON_MAX);
	const char *path = sbx_arena_printf(arena, "%s/unit.json", dir);
	if (path == NULL)
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	if (sbx_fd_slurp(path, &text, err) < 0)
		return -1;
	const struct cJSON *json = sbx_json_parse(arena, sbx_str_trim(sbx_buf_str(&text)), err);
	if (json == NULL || sbx_schema_decode(arena, json, &unit_fields, ret, err) < 0)
		return sbx_err_wrap(err, "%s", path);
	return check_folder(dir, ret->unit, err);
}

static int put_unit(struct sbx_db *db, const struct unit *u, struct sbx_err *err)
{
	if (sbx_db_begin(db, NULL, err) < 0)
		return -1;
	if (sbx_db_run(db, NULL, &sbx_stmt_image_retire, SBX_PARAMS(sbx_p_z(u->name), sbx_p_z(u->unit)), NULL, err) <
			0 ||
		sbx_db_run(db, NULL, &sbx_stmt_image_put,
			SBX_PARAMS(sbx_p_z(u->unit), sbx_p_z(u->name), sbx_p_i(u->vcpu.v), sbx_p_i(u->memory_mib.v),
				sbx_p_i(u->disk_gib.v), sbx_p_i(u->bytes.v), sbx_p_i(u->protocol.v),
				sbx_p_z(u->description != NULL ? u->description : "")),
			NULL, err) < 0)
		return -1;
	return sbx_db_commit(db, err);
}

int cmd_image_add(struct cli *cli, struct sbx_err *err)
{
	struct unit u = { .name = NULL };
	struct sbx_arena *arena = sbx_arena_new(4 << 20);
	if (arena == NULL)
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	int rc = read_unit(arena, cli->arg[0], &u, err);
	if (rc == 0)
		rc = cli_connect(cli, "sbx_owner", err);
	if (rc == 0)
		rc = put_unit(cli->db, &u, err);
	if (rc == 0)
		rc = cli_put_value(cli, "unit", u.unit, err);
	sbx_arena_free(arena);
	return rc;
}

int cmd_image_list(struct cli *cli, struct sbx_err *err)
{
	static const struct cli_column columns[] = {
		{ "unit", "UNIT", CLI_TEXT },
		{ "name", "NAME", CLI_TEXT },
		{ "isCurrent", "CURRENT", CLI_BOOL },
		{ "vcpu", "VCPU", CLI_INT },
		{ "memoryMib", "MEMORY", CLI_INT },
		{ "diskGib", "DISK", CLI_INT },
		{ "bytes", "BYTES", CLI_INT },
		{ "protocol", NULL, CLI_INT },
		{ "machines", "MACHINES", CLI_INT },
		{ "description", NULL, CLI_TEXT },
		{ "createdAt", "CREATED", CLI_TIME },
	};
	sbx_auto_res struct sbx_res *r = NULL;
	if (cli_connect(cli, "sbx_admin", err) < 0 ||
		sbx_db_run(cli->db, NULL, &sbx_stmt_admin_image_list, NULL, &r, err) < 0)
		return -1;
	return cli_print(cli, r, columns, SBX_ARRAY_LEN(columns), err);
}
