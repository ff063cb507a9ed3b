/*
 * OpenSSL 3: algorithms are fetched once a process, the first time one is needed.
 */
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <string.h>

#include "sbx/auth.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static EVP_MD *sha256;
static EVP_MAC *hmac;
static EVP_KDF *hkdf;

static void fetch(void)
{
	sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
	hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
	hkdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
}

static int ready(struct sbx_err *err)
{
	/* What an earlier call left in this thread's queue is not our failure. */
	ERR_clear_error();
	pthread_once(&once, fetch);
	if (sha256 != NULL && hmac != NULL && hkdf != NULL)
		return 0;
	return SBX_FAIL(err, SBX_E_INTERNAL, "OpenSSL lacks SHA-256, HMAC or HKDF.");
}

static int fail(struct sbx_err *err, const char *what)
{
	char text[160] = "";
	unsigned long e = ERR_get_error();
	ERR_error_string_n(e, text, sizeof(text));
	ERR_clear_error();
	SBX_FAIL(err, SBX_E_INTERNAL, "%s failed.", what);
	sbx_err_detail(err, "%s", text);
	return -1;
}

int sbx_random(void *p, size_t n, struct sbx_err *err)
{
	ERR_clear_error();
	return RAND_bytes_ex(NULL, p, n, 0) == 1 ? 0 : fail(err, "The random generator");
}

int sbx_sha256(const void *p, size_t n, uint8_t ret[SBX_SHA256_SIZE], struct sbx_err *err)
{
	if (ready(err) < 0)
		return -1;
	return EVP_Digest(p, n, ret, NULL, sha256, NULL) == 1 ? 0 : fail(err, "SHA-256");
}

int sbx_hmac_sha256(
	const void *key, size_t key_n, const void *p, size_t n, uint8_t ret[SBX_SHA256_SIZE], struct sbx_err *err)
{
	char digest[] = "SHA256";
	size_t got = 0;
	const OSSL_PARAM params[] = { OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
		OSSL_PARAM_construct_end() };
	if (ready(err) < 0)
		return -1;
	EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(hmac);
	bool is_good = ctx != NULL && EVP_MAC_init(ctx, key, key_n, params) == 1 && EVP_MAC_update(ctx, p, n) == 1 &&
		EVP_MAC_final(ctx, ret, &got, SBX_SHA256_SIZE) == 1 && got == SBX_SHA256_SIZE;
	EVP_MAC_CTX_free(ctx);
	return is_good ? 0 : fail(err, "HMAC");
}

/* OpenSSL's parameters are not const; it only reads them. */
static OSSL_PARAM octets(const char *name, struct sbx_str s)
{
	union {
		const char *in;
		void *out;
	} p = { .in = s.p };
	return OSSL_PARAM_construct_octet_string(name, p.out, s.n);
}

int sbx_hkdf_sha256(
	struct sbx_str key, struct sbx_str salt, struct sbx_str info, void *ret, size_t ret_n, struct sbx_err *err)
{
	char digest[] = "SHA256";
	OSSL_PARAM params[5];
	size_t n = 0;
	params[n++] = OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0);
	params[n++] = octets(OSSL_KDF_PARAM_KEY, key);
	if (salt.n > 0)
		params[n++] = octets(OSSL_KDF_PARAM_SALT, salt);
	if (info.n > 0)
		params[n++] = octets(OSSL_KDF_PARAM_INFO, info);
	params[n] = OSSL_PARAM_construct_end();
	if (ready(err) < 0)
		return -1;
	EVP_KDF_CTX *ctx = EVP_KDF_CTX_new(hkdf);
	bool is_good = ctx != NULL && EVP_KDF_derive(ctx, ret, ret_n, params) == 1;
	EVP_KDF_CTX_free(ctx);
	return is_good ? 0 : fail(err, "HKDF");
}

int sbx_uuid_new(char ret[SBX_UUID_SIZE], struct sbx_err *err)
{
	static const char digits[] = "0123456789abcdef";
	uint8_t b[16];
	char *at = ret;
	if (sbx_random(b, sizeof(b), err) < 0)
		return -1;
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	for (size_t i = 0; i < sizeof(b); i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*at++ = '-';
		*at++ = digits[b[i] >> 4];
		*at++ = digits[b[i] & 15];
	}
	*at = 0;
	return 0;
}

int sbx_box_id_new(char ret[SBX_BOX_ID_CHARS + 1], struct sbx_err *err)
{
	static const char digits[] = "abcdefghijklmnopqrstuvwxyz234567";
	uint8_t b[16];
	uint32_t bits = 0;
	unsigned have = 0;
	char *at = ret;
	if (sbx_random(b, sizeof(b), err) < 0)
		return -1;
	*at++ = 'b';
	for (size_t i = 0; i < sizeof(b); i++) {
		bits = bits << 8 | b[i];
		for (have += 8; have >= 5; have -= 5)
			*at++ = digits[bits >> (have - 5) & 31];
	}
	/* 128 = 25 × 5 + 3: the last character has three bits. */
	*at++ = digits[bits << (5 - have) & 31];
	*at = 0;
	SBX_ASSERT(at == ret + SBX_BOX_ID_CHARS);
	return 0;
}
