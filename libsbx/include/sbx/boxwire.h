/*
 * The protocol between the control plane and boxd, version 1: HTTP/1.1 on the box's control address,
 * port SBX_BOXD_PORT. Workers speak the current version and the one before.
 *
 *     GET  /healthz                     no token   200 JSON {"ok","protocol","build","uptimeMs","running"}
 *     POST /v1/exec?id=ID               EXEC       body: request frames; answer: a stream of frames
 *     GET  /v1/result?id=ID&waitMs=N    RESULT     answer: a stream of frames
 *     POST /v1/kill?id=ID               KILL       204; ends all of the command
 *
 * ID is 32 lower-case hex digits chosen by the caller. A second exec with the same ID starts nothing
 * and joins the first, so a caller whose connection broke may simply ask again.
 * exec answers when the command has ended; with BACKGROUND at once, by an END that says running. result
 * answers when it has ended or after waitMs (at most 3600000, default 0), with all output from the start.
 * A caller that goes away ends nothing. A result is kept for SBX_EXEC_KEPT_S, or less when very many or
 * very large ones crowd it out; after that the ID is unknown (404).
 * What an answer cannot carry, and all a background command prints, is in /work/.sbx/ID.out and ID.err.
 * Errors are JSON {"code","error"} with the HTTP status of that code (sbx/codes.def).
 *
 * Request frames (sbx/frame.h), each at most once unless said: CMD, CWD, ENV (any number, "K=V"),
 * TIMEOUT_MS u64, BACKGROUND (empty), NOTE.
 * Answer frames: any number of OUT and ERR (at most SBX_EXEC_STREAM_MAX bytes a stream), KEEP (empty,
 * every 10 s of silence), then exactly one END. An answer without END is a broken transport: the
 * command may have run.
 */
#ifndef SBX_BOXWIRE_H
#define SBX_BOXWIRE_H

#include "sbx/frame.h"

#define SBX_BOXD_PORT 7080
#define SBX_BOXD_PROTOCOL 1
#define SBX_BOXD_FRAMES_TYPE "application/x-sbx-frames"
#define SBX_EXEC_ID_LEN 32u
#define SBX_EXEC_STREAM_MAX (1024u * 1024u)       /* bytes of each stream that an answer carries */
#define SBX_EXEC_REQUEST_MAX (2u * 1024u * 1024u) /* bytes of request frames */
#define SBX_EXEC_FRAME_MAX (1024u * 1024u)
#define SBX_EXEC_KEEP_MS 10000
#define SBX_EXEC_TIMEOUT_MAX_S 3600
#define SBX_EXEC_KEPT_S 3600 /* a result is kept so long after the end */

enum sbx_wire_request {
	SBX_WIRE_CMD = 'c',
	SBX_WIRE_CWD = 'd',
	SBX_WIRE_ENV = 'v',
	SBX_WIRE_TIMEOUT_MS = 't',
	SBX_WIRE_BACKGROUND = 'b',
	SBX_WIRE_NOTE = 'n',
};

enum sbx_wire_answer {
	SBX_WIRE_OUT = 'o',
	SBX_WIRE_ERR = 'e',
	SBX_WIRE_KEEP = 'k',
	SBX_WIRE_END = 'x',
};

/* The END frame's payload, 32 bytes: exit_code be32 | flags be32 | duration_ms be64 | totals be64 × 2. */
#define SBX_WIRE_END_SIZE 32u
struct sbx_wire_end {
	uint32_t exit_code; /* 0 to 255; 128 + signal when a signal ended it; 124 on time-out */
	bool running;       /* not ended yet: exit_code means nothing */
	bool timed_out;
	bool truncated; /* more was printed than the answer carries; whole in the log files */
	uint64_t duration_ms;
	uint64_t out_bytes, err_bytes; /* printed so far */
};

void sbx_wire_end_add(struct sbx_buf *b, const struct sbx_wire_end *e);
bool sbx_wire_end_read(const struct sbx_frame *f, struct sbx_wire_end *ret);
/* True for 32 lower-case hex digits. */
bool sbx_exec_id_ok(struct sbx_str id);

#endif
