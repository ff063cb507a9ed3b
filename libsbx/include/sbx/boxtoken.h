/*
 * Tokens that let the control plane speak to boxd: one request each.
 *
 * Fixed 84 bytes, sent as base64url (112 characters) in `Authorization: Sbx TOKEN`:
 *     0 version (1) | 1 purpose | 2 kid of the master key | 3 zero | 4 epoch be32 |
 *     8 issued_at_us be64 | 16 ttl_ms be32 | 20 machine id (16) | 36 nonce (16) | 52 MAC (32)
 * MAC = HMAC-SHA256 (RFC 2104) over the first 52 bytes, under the key of that machine and epoch.
 * Key = HKDF-SHA256 (RFC 5869) of the master key, info "sbx boxd" | machine id | epoch be32: no key
 * is stored on the host, and a new epoch re-keys the machine.
 *
 * This module lays bytes out; the MAC itself comes from the caller (OpenSSL on the host, nettle in
 * the guest), because core links libc alone.
 */
#ifndef SBX_BOXTOKEN_H
#define SBX_BOXTOKEN_H

#include "sbx/str.h"

#define SBX_BOXTOKEN_SIGNED 52u
#define SBX_BOXTOKEN_MAC 32u
#define SBX_BOXTOKEN_SIZE (SBX_BOXTOKEN_SIGNED + SBX_BOXTOKEN_MAC)
#define SBX_BOXTOKEN_TEXT 112u
#define SBX_BOXD_KEY_SIZE 32u
#define SBX_MACHINE_ID_SIZE 16u

enum sbx_boxtoken_purpose {
	SBX_BOXTOKEN_EXEC = 1,
	SBX_BOXTOKEN_RESULT = 2,
	SBX_BOXTOKEN_KILL = 3,
	SBX_BOXTOKEN_STATUS = 4,
};

struct sbx_boxtoken {
	uint8_t purpose, kid;
	uint32_t epoch;
	int64_t issued_at_us;
	uint32_t ttl_ms;
	uint8_t machine[SBX_MACHINE_ID_SIZE];
	uint8_t nonce[16];
	uint8_t mac[SBX_BOXTOKEN_MAC];
};

/* Lays out all 84 bytes; the first SBX_BOXTOKEN_SIGNED are what the MAC covers. */
void sbx_boxtoken_put(const struct sbx_boxtoken *t, uint8_t out[SBX_BOXTOKEN_SIZE]);
/* Reads 112 characters; raw keeps the bytes for the MAC check. False when it is not such a token. */
bool sbx_boxtoken_parse(struct sbx_str text, struct sbx_boxtoken *ret, uint8_t raw[SBX_BOXTOKEN_SIZE]);

/*
 * The receiver's clock and memory. Its notion of now is the highest issued_at accepted plus the
 * boot-time clock since, so neither a wrong wall clock nor a thaw can lock the control plane out,
 * and a token is never accepted twice: the last `nonces` of them are remembered, and everything
 * issued no later than one that was forgotten is refused.
 * Not thread-safe: the caller locks.
 */
struct sbx_boxtoken_gate;
struct sbx_boxtoken_gate *sbx_boxtoken_gate_new(size_t nonces); /* NULL: out of memory */
void sbx_boxtoken_gate_free(struct sbx_boxtoken_gate *g);
/* For a token whose MAC was checked: NULL when it may be used now, else "expired", "stale" or "used". */
const char *sbx_boxtoken_gate_pass(struct sbx_boxtoken_gate *g, const struct sbx_boxtoken *t, int64_t boot_ms);

#endif
