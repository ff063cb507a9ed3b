/*
 * What init (process 1), its spawner and runners, and boxd know of each other inside a box.
 *
 *     init ─┬─ spawner ── runner (one a command) ── bash -c CMD
 *           ├─ boxd
 *           └─ services of the image
 *
 * boxd makes SBX_EXEC_DIR/ID and sends one datagram to the spawner, which forks a runner. From then on
 * the two meet only in files, so each may die and be started again without the other:
 *     exec/ID/out, err   the first SBX_EXEC_STREAM_MAX bytes of each stream, once there are any
 *     exec/ID/end        struct run_end, renamed into place when all the command itself printed is there
 *     live/ID.run        struct run_state; the runner holds a lock on it while the command runs
 *     live/ID.req        the request, when it is too long for the datagram
 * boxd watches only exec/ID: every notice wakes it, and on one CPU takes time from the command.
 * The spawner is a small process with one thread: forking it is cheap, which boxd is not.
 */
#ifndef SBX_GUEST_H
#define SBX_GUEST_H

#include "sbx/boxwire.h"

#define SBX_RUN_DIR "/run/sbx"
#define SBX_CONFIG SBX_RUN_DIR "/config.json"
#define SBX_BOXD SBX_RUN_DIR "/bin/boxd"
#define SBX_SPAWN_SOCKET SBX_RUN_DIR "/spawn.sock"
#define SBX_EXEC_DIR SBX_RUN_DIR "/exec"
#define SBX_LIVE_DIR SBX_RUN_DIR "/live"
#define SBX_WORK "/work"
#define SBX_LOG_DIR ".sbx" /* in SBX_WORK */
#define SBX_CGROUPS "/sys/fs/cgroup"
#define SBX_CMD_CGROUPS SBX_CGROUPS "/cmd"

#define SBX_CONFIG_MAX 65536u
#define SBX_READY_ENV "SBX_READY_FD" /* boxd writes a byte there when it can be asked */
#define SBX_GRACE_MS 2000            /* between TERM and KILL */

/* The head of a datagram to the spawner. After SPAWN_RUN: the request frames, or nothing when they are in live/. */
struct spawn_msg {
	char verb; /* SPAWN_RUN, SPAWN_KILL */
	char id[SBX_EXEC_ID_LEN + 1];
};

#define SPAWN_INLINE_MAX 32768u

enum { SPAWN_RUN = 'R', SPAWN_KILL = 'K' };

#define RUN_MAGIC 0x73627831u

struct run_state {
	uint32_t magic;
	uint32_t background;
	int64_t start_boot_ms;
	uint64_t total[2]; /* bytes printed so far: out, err */
};

enum {
	RUN_TIMED_OUT = 1,
	RUN_LOST = 2,    /* its runner died; nobody can know how it ended */
	RUN_REFUSED = 4, /* it was never started: no process could be made */
};

struct run_end {
	uint32_t magic;
	uint32_t exit_code, flags, spare;
	int64_t end_boot_ms;
	uint64_t duration_ms;
	uint64_t total[2], kept[2];
};

#endif
