/*
 * What the files of keeper/ share.
 *
 * Threads: main (signals, LISTEN), beat (host row, leases), watch (libvirt, reconcile), and the op
 * threads. keeper->lock guards the fields below it and is held over no call that waits; take_lock makes taking
 * an op one at a time.
 */
#ifndef SBX_KEEPER_PRIV_H
#define SBX_KEEPER_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "sbx/auth.h"
#include "sbx/db.h"
#include "sbx/keeper.h"
#include "sbx/vm.h"

#define KEEPER_THREADS_MAX 64
#define KEEPER_STOPPED_MAX 256
#define KEEPER_DB_WAIT_MS 3000

struct keeper {
	const struct sbx_conf *conf;
	char host[64];
	char id[SBX_UUID_SIZE];          /* of this process */
	char instance_id[SBX_UUID_SIZE]; /* of the installation */
	char own_dir[256];               /* what only the keeper writes: its id, profile and lock */
	char volume_dir[256], log_dir[256], image_dir[256], profile_path[256];
	struct sbx_slot_space space;
	enum sbx_accel accel;
	uint32_t kvm_gid;
	struct sbx_keyring *keys;
	struct sbx_db_pool *db;
	struct sbx_vm *vm;
	atomic_bool stopping, lost_host;
	atomic_uint news; /* raised by each notification: whoever waits looks again */
	int wake_fd;      /* eventfd that ends the main loop's poll */

	pthread_mutex_t take_lock;
	pthread_mutex_t profile_lock; /* guards the next two, and is held while libvirt is asked */
	struct sbx_vm_profile profile;
	bool has_profile;
	pthread_mutex_t lock;
	pthread_cond_t work, watch, beat, idle;
	uint64_t work_seq;
	int64_t retry_ms; /* monotonic: when the next op that waits may be taken; 0: none waits */
	bool want_reconcile;
	char stopped[KEEPER_STOPPED_MAX][SBX_UUID_SIZE]; /* domains that ended since watch looked */
	size_t stopped_n;
	int64_t active[KEEPER_THREADS_MAX]; /* ops in work, 0 where none */
	int active_n;
	char health_vm[160], health_state[240];
};

/* An op taken, with its machine. */
struct op {
	int64_t id;
	char machine[SBX_UUID_SIZE];
	bool is_start;
	int64_t generation, attempts, age_ms;
	char unit[129];
	int64_t slot_n, vcpu, memory_mib, disk_gib, epoch, kid;
	bool user_network;
	int64_t taken_ms; /* monotonic */
};

enum op_end {
	OP_DONE,     /* recorded */
	OP_STALE,    /* overtaken: a newer op is about the machine */
	OP_LOST,     /* the lease is somebody else's: nothing more may be done */
	OP_RELEASED, /* the keeper stops: the next one goes on */
	OP_RETRY,    /* not now; err says why */
	OP_FAILED,   /* recorded as failed; err says why */
};

/* keeper.c */
bool keeper_sleep(struct keeper *k, pthread_cond_t *cond, int ms); /* false when stopping */
void keeper_health(struct keeper *k, bool vm, const char *text);
int keeper_profile(struct keeper *k, struct sbx_vm_profile *ret, struct sbx_err *err);

/* ops.c */
void *keeper_op_thread(void *arg);
void keeper_ops_wake(struct keeper *k);
/* The ops in work as an array literal of SQL, "{1,2}"; the caller holds no lock. */
void keeper_active_text(struct keeper *k, struct sbx_buf *out);
/* 1: the op may go on, 0: it may not, and *ret says why; -1: the database does not answer. */
int keeper_op_check(struct keeper *k, const struct op *op, enum op_end *ret, struct sbx_err *err);
/* Copies an error whole into one that is not set yet; gives -1. */
int keeper_pass(struct sbx_err *err, const struct sbx_err *from);
/* Runs one statement on a connection of its own. */
int keeper_run(struct keeper *k, const struct sbx_stmt *stmt, const struct sbx_param *params, struct sbx_res **ret,
	struct sbx_err *err);

/* op_start.c, op_stop.c */
enum op_end keeper_start(struct keeper *k, const struct op *op, struct sbx_err *err);
enum op_end keeper_stop(struct keeper *k, const struct op *op, struct sbx_err *err);

/* machine.c */
int keeper_spec(struct keeper *k, const struct op *op, struct sbx_slot *slot, struct sbx_vm_profile *profile,
	struct sbx_arena *a, struct sbx_vm_spec *ret, struct sbx_err *err);
/* The JSON of the config drive. It holds a key: wiped by the caller. */
int keeper_config(
	struct keeper *k, const struct op *op, const struct sbx_slot *slot, struct sbx_buf *out, struct sbx_err *err);

/* probe.c: whether boxd answers at address, within budget_ms. */
bool keeper_probe(const char *address, int port, int budget_ms);

/* reconcile.c */
int keeper_reconcile(struct keeper *k, struct sbx_err *err);
/* One domain ended: what does the database say of it? */
int keeper_check_stopped(struct keeper *k, const char *machine, struct sbx_err *err);

#endif
