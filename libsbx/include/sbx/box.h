/*
 * What a box is: starting, finding and stopping one, and speaking to its boxd.
 * Functions that take a db run one statement or one transaction as the given tenant. Unknown ids and
 * ids of other tenants fail alike, with SBX_E_NOT_FOUND.
 */
#ifndef SBX_BOX_H
#define SBX_BOX_H

#include "sbx/boxtoken.h"
#include "sbx/boxwire.h"
#include "sbx/call.h"

#define SBX_BOX_ID_SIZE 28
#define SBX_DEFAULT_ENVIRONMENT "desktop"

struct sbx_service {
	const char *name;
	struct {
		bool set;
		int64_t v;
	} port;
};

/* A row of boxes with its machine; strings live in the arena it was read into. */
struct sbx_box {
	const char *id, *state, *op; /* op NULL when nothing is under way */
	const char *environment, *services, *external_base_url, *started_from, *note;
	const char *reason_code, *reason;
	const char *created_at, *ready_at, *ended_at, *last_used_at; /* RFC 3339, or NULL */
	int64_t idle_timeout_min;                                    /* 0: none */
	int64_t vcpu, memory_mib, disk_gib;
	const char *control_address; /* NULL without a machine */
	uint8_t machine[SBX_MACHINE_ID_SIZE];
	uint32_t epoch;
	int kid;
};

struct sbx_box_order {
	const char *services; /* JSON array */
	const char *external_base_url, *environment, *idempotency_key, *client;
	int64_t idle_timeout_min; /* 0: none */
};

/*
 * One transaction: checks the plan's limit and the environment, takes a slot of a host with room, and
 * writes box, machine, op and event. SBX_E_LIMIT names limit, plan and the boxes that run;
 * SBX_E_UNAVAILABLE when no host has room. With an idempotency key that was used within 24 h it gives
 * that box and makes none.
 */
int sbx_box_create(struct sbx_db *db, const struct sbx_call *call, const struct sbx_box_order *order,
	char ret_id[SBX_BOX_ID_SIZE], struct sbx_err *err) SBX_MUST_CHECK;
/* Reads a box. use: counts as use of it, and sets its note when one is given. */
int sbx_box_find(struct sbx_db *db, const struct sbx_call *call, const char *id, bool use, const char *note,
	struct sbx_box *ret, struct sbx_err *err) SBX_MUST_CHECK;
/* Asks for the end of a box. Stopping what is stopped is a success. */
int sbx_box_stop(struct sbx_db *db, const struct sbx_call *call, const char *id, struct sbx_err *err) SBX_MUST_CHECK;
/* 0 when commands can run in it, else what its state means for the caller. */
int sbx_box_usable(const struct sbx_box *box, struct sbx_err *err) SBX_MUST_CHECK;

/* The answer of boxd to exec and result, collected frame by frame. */
struct sbx_exec_answer {
	struct sbx_buf raw, out, err;
	struct sbx_wire_end end;
	bool ended, broken;
};

/*
 * Fills call->wait with a request to the boxd of box. query is "id=…" or NULL. The request, the token
 * and what it points at live in call->arena.
 */
int sbx_boxd_request(struct sbx_call *call, const struct sbx_box *box, enum sbx_boxtoken_purpose purpose,
	const char *path, struct sbx_str body, int64_t timeout_ms, struct sbx_err *err) SBX_MUST_CHECK;
/* A sink for frames; arg is a struct sbx_exec_answer made by sbx_exec_answer_new(). */
struct sbx_exec_answer *sbx_exec_answer_new(struct sbx_arena *a);
void sbx_exec_answer_reset(struct sbx_exec_answer *x);
int sbx_exec_answer_sink(void *arg, long status, struct sbx_str piece);
/* What a request that was answered with an error, or not at all, means. */
int sbx_boxd_failure(struct sbx_call *call, const struct sbx_box_request *r, struct sbx_str body, struct sbx_err *err);

#endif
