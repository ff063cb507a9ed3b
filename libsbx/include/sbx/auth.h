/*
 * Who a caller is, and the keys of the installation.
 *
 * API keys are "sbx_" and 43 base64url characters of 32 random bytes; the database has their
 * SHA-256. The master keys stand in one file; everything else that is secret is derived from them
 * (HKDF-SHA256, RFC 5869, a label a purpose) and names its key by `kid`, so that two can be valid
 * while one replaces the other. A keyring is immutable and shared by threads; nothing here is ever
 * logged.
 */
#ifndef SBX_AUTH_H
#define SBX_AUTH_H

#include "sbx/boxtoken.h"
#include "sbx/db.h"

#define SBX_KEY_TEXT 47u   /* characters of an API key */
#define SBX_KEY_PREFIX 10u /* of which people see these */
#define SBX_SHA256_SIZE 32u
#define SBX_UUID_SIZE 37u
#define SBX_BOX_ID_CHARS 27u

enum sbx_scope {
	SBX_SCOPE_READ,  /* nothing that changes */
	SBX_SCOPE_AGENT, /* tools and boxes, no keys */
	SBX_SCOPE_FULL,
};

const char *sbx_scope_name(enum sbx_scope scope);
/* False when it is none of full, agent, read. */
bool sbx_scope_parse(const char *name, enum sbx_scope *ret);

struct sbx_principal {
	char key_id[SBX_UUID_SIZE], tenant_id[SBX_UUID_SIZE];
	char tenant[64];
	enum sbx_scope scope;
	char plan[33];
	int max_boxes;
};

/*
 * Finds who holds a key. SBX_E_AUTH, always with the same words, when it is unknown, revoked,
 * expired or its tenant suspended; what is no key at all fails so without touching the database.
 */
int sbx_auth_check(struct sbx_db *db, struct sbx_str bearer_key, struct sbx_principal *ret, struct sbx_err *err)
	SBX_MUST_CHECK;
/* Whether it has the form of an API key. */
bool sbx_auth_is_key(struct sbx_str text);
/* A new API key and the hash to store. */
int sbx_auth_make_key(char ret_key[SBX_KEY_TEXT + 1], uint8_t ret_hash[SBX_SHA256_SIZE], struct sbx_err *err)
	SBX_MUST_CHECK;

/*
 * The master key file: lines "KID HEX64" (kid 1 to 255), the first is current, at most two; '#'
 * begins a comment. Refused when others than owner and group can read it.
 */
struct sbx_keyring;
struct sbx_keyring *sbx_keyring_open(const char *path, struct sbx_err *err);
void sbx_keyring_free(struct sbx_keyring *kr); /* wipes the keys; NULL is fine */
int sbx_keyring_current_kid(const struct sbx_keyring *kr);
/* The key of the boxd of a machine in an epoch. SBX_E_NOT_FOUND when the kid is not in the file. */
int sbx_keyring_boxd_key(const struct sbx_keyring *kr, int kid, const uint8_t machine[SBX_MACHINE_ID_SIZE],
	uint32_t epoch, uint8_t ret_key[SBX_BOXD_KEY_SIZE], struct sbx_err *err) SBX_MUST_CHECK;
/* A single-use token for that boxd (sbx/boxtoken.h), issued now. */
int sbx_keyring_boxd_token(const struct sbx_keyring *kr, enum sbx_boxtoken_purpose purpose, int kid,
	const uint8_t machine[SBX_MACHINE_ID_SIZE], uint32_t epoch, uint32_t ttl_ms,
	char ret_text[SBX_BOXTOKEN_TEXT + 1], struct sbx_err *err) SBX_MUST_CHECK;

/* From the operating system's generator, by OpenSSL. */
int sbx_random(void *p, size_t n, struct sbx_err *err) SBX_MUST_CHECK;
int sbx_sha256(const void *p, size_t n, uint8_t ret[SBX_SHA256_SIZE], struct sbx_err *err) SBX_MUST_CHECK;
int sbx_hmac_sha256(const void *key, size_t key_n, const void *p, size_t n, uint8_t ret[SBX_SHA256_SIZE],
	struct sbx_err *err) SBX_MUST_CHECK;
/* Extract and expand; salt may be empty. */
int sbx_hkdf_sha256(struct sbx_str key, struct sbx_str salt, struct sbx_str info, void *ret, size_t ret_n,
	struct sbx_err *err) SBX_MUST_CHECK;
/* A version 4 UUID as text (RFC 4122). */
int sbx_uuid_new(char ret[SBX_UUID_SIZE], struct sbx_err *err) SBX_MUST_CHECK;
/* 'b' and 128 random bits in lower-case base32 (RFC 4648 section 6, no padding): 27 characters. */
int sbx_box_id_new(char ret[SBX_BOX_ID_CHARS + 1], struct sbx_err *err) SBX_MUST_CHECK;

#endif
