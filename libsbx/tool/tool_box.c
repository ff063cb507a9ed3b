/* Tools about the life of a box: start, status, stop, environments. */
#include <cjson/cJSON.h>
#include <string.h>

#include "db/stmts.h"
#include "sbx/box.h"
#include "sbx/clock.h"
#include "sbx/tool.h"

#define DB_TAKE_MS 3000
#define HEALTH_TIMEOUT_MS 3000
#define RECHECK_MS 1000
#define START_GRACE_S 30 /* what a queue of ops may add to making one machine */
#define SERVICES_MAX 32

static enum sbx_step fail(struct sbx_err *err)
{
	SBX_ASSERT(!err || err->code != SBX_OK);
	return SBX_FAILED;
}

static int find(struct sbx_call *call, const char *id, struct sbx_box *ret, struct sbx_err *err)
{
	sbx_auto_db struct sbx_db *db = sbx_db_take(call->app->pool, DB_TAKE_MS, err);

	return db ? sbx_box_find(db, call, id, false, NULL, ret, err) : -1;
}

/* sandbox_start */

struct service_args {
	const char *name;
	struct sbx_opt_int port;
};

struct start_args {
	struct sbx_objs services;
	const char *external_base_url, *environment, *idempotency_key;
	struct sbx_strs secrets;
	struct sbx_opt_int idle_timeout_min;
};

/* A DNS label: it becomes a host name in the box and part of the scene URL, where "--" separates. */
static bool service_name_ok(const char *v)
{
	size_t n = strlen(v);

	if (n < 1 || n > 32 || v[0] < 'a' || v[0] > 'z' || v[n - 1] == '-' || strstr(v, "--"))
		return false;
	return strspn(v, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

static bool http_url_ok(const char *v)
{
	size_t scheme = strncmp(v, "https://", 8) == 0 ? 8 : strncmp(v, "http://", 7) == 0 ? 7 : 0;

	if (!scheme || !v[scheme] || strchr("/?#:", v[scheme]))
		return false;
	for (const char *p = v; *p; p++)
		if ((unsigned char)*p <= 0x20 || *p == 0x7f || strchr("\"<>\\^`{|}#@", *p))
			return false;
	return true;
}

static const struct sbx_field service_rows[] = {
	SBX_IN(struct service_args, name, "name", "what it is called: lower-case letters, digits, single hyphens",
		.required = true, .min = 1, .max = 32, .pattern = "^[a-z][a-z0-9]*(-[a-z0-9]+)*$",
		.check = service_name_ok),
	SBX_IN(struct service_args, port, "port", "TCP port it is published on, on the box itself", .required = true,
		.min = 1, .max = 65535),
};
static const struct sbx_fields service_fields = SBX_FIELDS(service_rows, struct service_args);

static const struct sbx_field start_in[] = {
	SBX_IN(struct start_args, services, "services",
		"names and ports that the repo publishes on the box, as `ports:` of a compose file does",
		.max = SERVICES_MAX, .items = &service_fields),
	SBX_IN(struct start_args, external_base_url, "externalBaseUrl",
		"where the services that were not changed live, say a staging host (http or https URL)", .min = 1,
		.max = 2000, .pattern = "^https?://", .check = http_url_ok),
	SBX_IN(struct start_args, secrets, "secrets",
		"names of your stored secrets that enter the box's environment; others do not", .max = 100),
	SBX_IN(struct start_args, idle_timeout_min, "idleTimeoutMin",
		"stop the box after so many minutes without use; without it the box runs until it is stopped", .min = 1,
		.max = 525600),
	SBX_IN(struct start_args, environment, "environment",
		"what the box is made of, see sandbox_environments; default \"" SBX_DEFAULT_ENVIRONMENT "\"", .min = 1,
		.max = 32),
	SBX_IN(struct start_args, idempotency_key, "idempotencyKey",
		"the same key within 24 hours gives the same box instead of another one", .min = 1, .max = 200),
};

static const char *const started_from[] = { "spare", "cold", NULL };
static const struct sbx_field start_out[] = {
	SBX_OUT("id", STR, "the box, for all other calls"),
	SBX_OUT("sceneUrl", STR, "URL of the first service, for people", .nullable = true),
	SBX_OUT("takeoverUrl", STR, "URL of the live screen, for people", .nullable = true),
	SBX_OUT("status", STR, "state of the box: ready"),
	SBX_OUT("startedFrom", STR, "spare = a waiting box was assigned; cold = a machine was booted for you",
		.choices = started_from),
};

/* Names must differ; the database keeps the list as JSON. */
static const char *services_json(struct sbx_call *call, const struct sbx_objs *list, struct sbx_err *err)
{
	const struct service_args *s = list->v;
	sbx_auto_buf struct sbx_buf b;
	struct sbx_jw w;
	const char *json;

	sbx_buf_init(&b, 64 * 1024);
	sbx_jw_init(&w, &b);
	sbx_jw_arr(&w, NULL);
	for (size_t i = 0; i < list->n; i++) {
		for (size_t k = 0; k < i; k++)
			if (strcmp(s[i].name, s[k].name) == 0) {
				SBX_FAIL(err, SBX_E_INVALID,
					"`services[%zu].name` is \"%s\" again: each service needs a name of its own", i,
					s[i].name);
				return NULL;
			}
		sbx_jw_obj(&w, NULL);
		sbx_jw_z(&w, "name", s[i].name);
		sbx_jw_i(&w, "port", s[i].port.v);
		sbx_jw_end(&w);
	}
	sbx_jw_end(&w);
	json = sbx_arena_dup(call->arena, sbx_buf_str(&b));
	if (!json)
		SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	return json;
}

struct starting {
	char id[SBX_BOX_ID_SIZE];
	int64_t deadline_ms;
};

static enum sbx_step start_wait(struct sbx_call *call)
{
	const struct starting *s = call->state;

	call->wait = (struct sbx_wait){ .kind = SBX_WAIT_BOX, .delay_ms = RECHECK_MS };
	memcpy(call->wait.box_id, s->id, sizeof(s->id));
	return SBX_WAITING;
}

static enum sbx_step start_check(struct sbx_call *call, struct sbx_jw *out, struct sbx_err *err)
{
	const struct starting *s = call->state;
	struct sbx_box box = { 0 };

	if (find(call, s->id, &box, err) < 0)
		return fail(err);
	if (sbx_streq(box.state, "claimed") && sbx_mono_ms() < s->deadline_ms)
		return start_wait(call);
	if (sbx_streq(box.state, "claimed")) {
		SBX_FAIL(err, SBX_E_TIMEOUT,
			"The box %s is still starting. sandbox_status tells when it is ready; sandbox_stop gives it up.",
			s->id);
		return fail(err);
	}
	if (sbx_box_usable(&box, err) < 0)
		return fail(err);
	sbx_jw_z(out, "id", box.id);
	sbx_jw_null(out, "sceneUrl");
	sbx_jw_null(out, "takeoverUrl");
	sbx_jw_z(out, "status", box.state);
	sbx_jw_z(out, "startedFrom", box.started_from);
	return SBX_DONE;
}

/* The caller closed its response: what was begun for it is undone. */
static enum sbx_step start_cancel(struct sbx_call *call, struct sbx_jw *out, struct sbx_err *err)
{
	const struct starting *s = call->state;
	sbx_auto_db struct sbx_db *db = sbx_db_take(call->app->pool, DB_TAKE_MS, err);

	(void)out;
	if (!db || sbx_box_stop(db, call, s->id, err) < 0)
		return fail(err);
	SBX_FAIL(err, SBX_E_GONE, "The caller gave up; the box was stopped.");
	return fail(err);
}

static enum sbx_step start(struct sbx_call *call, const void *v, struct sbx_jw *out, struct sbx_err *err)
{
	const struct start_args *a = v;
	sbx_auto_db struct sbx_db *db = NULL;
	struct starting *s = sbx_arena_alloc(call->arena, sizeof(*s));
	struct sbx_box_order order = {
		.external_base_url = a->external_base_url,
		.environment = a->environment ? a->environment : SBX_DEFAULT_ENVIRONMENT,
		.idempotency_key = a->idempotency_key,
		.client = call->client,
		.idle_timeout_min = a->idle_timeout_min.v,
	};

	(void)out;
	order.services = services_json(call, &a->services, err);
	if (!s || !order.services) {
		SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
		return fail(err);
	}
	if (a->secrets.n) {
		SBX_FAIL(err, SBX_E_INVALID,
			"There is no secret \"%.60s\". This installation stores no secrets; nothing was started.",
			a->secrets.v[0]);
		return fail(err);
	}
	db = sbx_db_take(call->app->pool, DB_TAKE_MS, err);
	if (!db || sbx_box_create(db, call, &order, s->id, err) < 0)
		return fail(err);
	s->deadline_ms = sbx_mono_ms() + (call->app->conf->op_timeout_s + START_GRACE_S) * 1000;
	call->state = s;
	call->resume = start_check;
	/* With an idempotency key the box may have been there before, or be somebody else's to wait for. */
	if (!a->idempotency_key)
		call->cancel = start_cancel;
	return start_wait(call);
}

const struct sbx_tool sbx_tool_sandbox_start = {
	.name = "sandbox_start",
	.title = "Start a box",
	.description = "Starts a box, a Linux machine of your own, and returns when it is usable.",
	.in = SBX_FIELDS(start_in, struct start_args),
	.out = SBX_OUT_FIELDS(start_out),
	.flags = SBX_TOOL_OPEN_WORLD,
	.run = start,
};

/* sandbox_status */

struct id_args {
	const char *id;
};

static const struct sbx_field id_in[] = {
	SBX_IN(struct id_args, id, "id", "the box, as sandbox_start gave it", .required = true, .min = 1, .max = 100),
};

static const char *const states[] = { "claimed", "ready", "takeover", "frozen", "stopping", "terminated", "interrupted",
	NULL };
static const struct sbx_field health_rows[] = {
	SBX_OUT("ok", BOOL, "boxd, which runs commands in the box, answers"),
	SBX_OUT("detail", STR, "what is wrong, or null", .nullable = true),
};
static const struct sbx_fields health_fields = SBX_OUT_FIELDS(health_rows);
static const struct sbx_field service_out_rows[] = {
	SBX_OUT("name", STR, NULL),
	SBX_OUT("port", INT, NULL),
};
static const struct sbx_fields service_out_fields = SBX_OUT_FIELDS(service_out_rows);
static const struct sbx_field status_out[] = {
	SBX_OUT("id", STR, "the box"),
	SBX_OUT("state", STR, "as in the life of a box", .choices = states),
	SBX_OUT("op", STR, "what is under way: starting, stopping, freezing, thawing, or null", .nullable = true),
	SBX_OUT("health", OBJ, "of boxd", .items = &health_fields),
	SBX_OUT("reason", STR, "why it was interrupted or ended, for people", .nullable = true),
	SBX_OUT("reasonCode", STR, "the same as a code", .nullable = true),
	SBX_OUT("environment", STR, "what it was made of"),
	SBX_OUT("services", OBJS, "as declared at start", .items = &service_out_fields),
	SBX_OUT("wiring", OBJS, "where each service leads", .nullable = true, .items = &service_out_fields),
	SBX_OUT("sceneUrl", STR, "URL of the first service, for people", .nullable = true),
	SBX_OUT("takeoverUrl", STR, "URL of the live screen, for people", .nullable = true),
	SBX_OUT("registry", STR, "login of the image registry", .nullable = true),
	SBX_OUT("startedFrom", STR, "spare or cold", .choices = started_from),
	SBX_OUT("note", STR, "what is being done now"),
	SBX_OUT("vcpu", INT, "virtual CPUs", .nullable = true),
	SBX_OUT("memoryMib", INT, "memory", .nullable = true),
	SBX_OUT("diskGib", INT, "disk", .nullable = true),
	SBX_OUT("idleTimeoutMin", INT, "stops after so many minutes without use", .nullable = true),
	SBX_OUT("createdAt", STR, "when it was asked for (RFC 3339)"),
	SBX_OUT("readyAt", STR, "when it became usable", .nullable = true),
	SBX_OUT("endedAt", STR, "when it ended", .nullable = true),
	SBX_OUT("lastUsedAt", STR, "last use", .nullable = true),
};

struct status {
	struct sbx_box box;
	struct sbx_buf body;
};

static void body_done(void *arg)
{
	sbx_buf_done(arg);
}

static int health_sink(void *arg, long status, struct sbx_str piece)
{
	struct status *s = arg;

	(void)status;
	sbx_buf_adds(&s->body, piece);
	return s->body.failed ? -1 : 0;
}

static void int_or_null(struct sbx_jw *w, const char *key, int64_t v)
{
	if (v)
		sbx_jw_i(w, key, v);
	else
		sbx_jw_null(w, key);
}

static void status_write(struct sbx_jw *w, const struct sbx_box *b, bool healthy, const char *detail)
{
	sbx_jw_z(w, "id", b->id);
	sbx_jw_z(w, "state", b->state);
	sbx_jw_z(w, "op", b->op);
	sbx_jw_obj(w, "health");
	sbx_jw_bool(w, "ok", healthy);
	sbx_jw_z(w, "detail", detail);
	sbx_jw_end(w);
	sbx_jw_z(w, "reason", b->reason);
	sbx_jw_z(w, "reasonCode", b->reason_code);
	sbx_jw_z(w, "environment", b->environment);
	sbx_jw_raw(w, "services", sbx_str_of(b->services));
	sbx_jw_null(w, "wiring");
	sbx_jw_null(w, "sceneUrl");
	sbx_jw_null(w, "takeoverUrl");
	sbx_jw_null(w, "registry");
	sbx_jw_z(w, "startedFrom", b->started_from);
	sbx_jw_z(w, "note", b->note);
	int_or_null(w, "vcpu", b->vcpu);
	int_or_null(w, "memoryMib", b->memory_mib);
	int_or_null(w, "diskGib", b->disk_gib);
	int_or_null(w, "idleTimeoutMin", b->idle_timeout_min);
	sbx_jw_z(w, "createdAt", b->created_at);
	sbx_jw_z(w, "readyAt", b->ready_at);
	sbx_jw_z(w, "endedAt", b->ended_at);
	sbx_jw_z(w, "lastUsedAt", b->last_used_at);
}

static enum sbx_step status_answered(struct sbx_call *call, struct sbx_jw *out, struct sbx_err *err)
{
	const struct status *s = call->state;
	const struct sbx_box_request *r = call->wait.request;
	bool ok = r->whole && r->status == 200;

	(void)err;
	status_write(out, &s->box, ok, ok ? NULL : "boxd does not answer; the box may be overloaded or going away");
	return SBX_DONE;
}

static enum sbx_step status(struct sbx_call *call, const void *v, struct sbx_jw *out, struct sbx_err *err)
{
	const struct id_args *a = v;
	struct status *s = sbx_arena_alloc(call->arena, sizeof(*s));

	if (!s) {
		SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
		return fail(err);
	}
	sbx_buf_init(&s->body, 64 * 1024);
	if (sbx_arena_defer(call->arena, body_done, &s->body) < 0 || find(call, a->id, &s->box, err) < 0)
		return fail(err);
	if (!sbx_streq(s->box.state, "ready") && !sbx_streq(s->box.state, "takeover")) {
		status_write(out, &s->box, false, "not running");
		return SBX_DONE;
	}
	if (sbx_boxd_request(call, &s->box, SBX_BOXTOKEN_STATUS, "/healthz", SBX_STR(""), HEALTH_TIMEOUT_MS, err) < 0)
		return fail(err);
	call->wait.request->sink = health_sink;
	call->wait.request->arg = s;
	call->state = s;
	call->resume = status_answered;
	return SBX_WAITING;
}

const struct sbx_tool sbx_tool_sandbox_status = {
	.name = "sandbox_status",
	.title = "Status of a box",
	.description = "Tells the state of a box, whether it answers, and why it was interrupted if it was.",
	.in = SBX_FIELDS(id_in, struct id_args),
	.out = SBX_OUT_FIELDS(status_out),
	.flags = SBX_TOOL_READ_ONLY | SBX_TOOL_IDEMPOTENT,
	.run = status,
};

/* sandbox_stop */

static const struct sbx_field stop_out[] = {
	SBX_OUT("ok", BOOL, "true: the box ends, and nothing on it remains"),
};

static enum sbx_step stop(struct sbx_call *call, const void *v, struct sbx_jw *out, struct sbx_err *err)
{
	const struct id_args *a = v;
	sbx_auto_db struct sbx_db *db = sbx_db_take(call->app->pool, DB_TAKE_MS, err);

	if (!db || sbx_box_stop(db, call, a->id, err) < 0)
		return fail(err);
	sbx_jw_bool(out, "ok", true);
	return SBX_DONE;
}

const struct sbx_tool sbx_tool_sandbox_stop = {
	.name = "sandbox_stop",
	.title = "Stop a box",
	.description = "Ends a box and everything on it. Stopping a box that has ended is no error.",
	.in = SBX_FIELDS(id_in, struct id_args),
	.out = SBX_OUT_FIELDS(stop_out),
	.flags = SBX_TOOL_DESTRUCTIVE | SBX_TOOL_IDEMPOTENT,
	.run = stop,
};

/* sandbox_environments */

struct no_args {
	char none;
};

static const struct sbx_field environment_rows[] = {
	SBX_OUT("name", STR, "for `environment` of sandbox_start"),
	SBX_OUT("description", STR, "what is in it"),
	SBX_OUT("vcpu", INT, "virtual CPUs"),
	SBX_OUT("memoryMib", INT, "memory, MiB"),
	SBX_OUT("diskGib", INT, "disk, GiB"),
	SBX_OUT("imageBytes", INT, "size of the image"),
	SBX_OUT("isDefault", BOOL, "taken when `environment` is left out"),
};
static const struct sbx_fields environment_fields = SBX_OUT_FIELDS(environment_rows);
static const struct sbx_field environments_out[] = {
	SBX_OUT("environments", OBJS, "the default first", .items = &environment_fields),
};

static enum sbx_step environments(struct sbx_call *call, const void *v, struct sbx_jw *out, struct sbx_err *err)
{
	sbx_auto_db struct sbx_db *db = sbx_db_take(call->app->pool, DB_TAKE_MS, err);
	sbx_auto_res struct sbx_res *r = NULL;

	(void)v;
	if (!db || sbx_db_run(db, call->who.tenant_id, &sbx_stmt_image_names, NULL, &r, err) < 0)
		return fail(err);
	sbx_jw_arr(out, "environments");
	for (int i = 0; i < sbx_res_rows(r); i++) {
		sbx_jw_obj(out, NULL);
		sbx_jw_z(out, "name", sbx_res_z(r, i, 0));
		sbx_jw_z(out, "description", sbx_res_z(r, i, 6));
		sbx_jw_i(out, "vcpu", sbx_res_i(r, i, 2));
		sbx_jw_i(out, "memoryMib", sbx_res_i(r, i, 3));
		sbx_jw_i(out, "diskGib", sbx_res_i(r, i, 4));
		sbx_jw_i(out, "imageBytes", sbx_res_i(r, i, 5));
		sbx_jw_bool(out, "isDefault", sbx_streq(sbx_res_z(r, i, 0), SBX_DEFAULT_ENVIRONMENT));
		sbx_jw_end(out);
	}
	sbx_jw_end(out);
	return SBX_DONE;
}

const struct sbx_tool sbx_tool_sandbox_environments = {
	.name = "sandbox_environments",
	.title = "Environments",
	.description = "Lists what a box can be made of.",
	.in = { NULL, 0, sizeof(struct no_args) },
	.out = SBX_OUT_FIELDS(environments_out),
	.flags = SBX_TOOL_READ_ONLY | SBX_TOOL_IDEMPOTENT,
	.run = environments,
};
