#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sbx/auth.h"
#include "sbx/clock.h"
#include "sbx/enc.h"
#include "sbx/fd.h"

#define KEYS_MAX 2
#define FILE_MAX 4096u
#define BOXD_LABEL "sbx boxd"

struct sbx_keyring {
	size_t n;
	int kid[KEYS_MAX];
	uint8_t key[KEYS_MAX][32];
};

static int add_line(struct sbx_keyring *kr, struct sbx_str line, int number, struct sbx_err *err)
{
	struct sbx_str kid_text, rest = sbx_str_trim(line);
	int64_t kid = 0;
	if (rest.n == 0 || rest.p[0] == '#')
		return 0;
	if (kr->n == KEYS_MAX)
		return SBX_FAIL(err, SBX_E_INVALID, "line %d: more than two keys", number);
	if (!sbx_str_split(&rest, ' ', &kid_text) || !sbx_str_i64(kid_text, 1, 255, &kid) ||
		!sbx_hex_decode(sbx_str_trim(rest), kr->key[kr->n], sizeof(kr->key[0])))
		return SBX_FAIL(err, SBX_E_INVALID,
			"line %d is not a number from 1 to 255, a space and 64 hexadecimal digits", number);
	if (kr->n == 1 && kr->kid[0] == kid)
		return SBX_FAIL(err, SBX_E_INVALID, "line %d: both keys have the same number", number);
	kr->kid[kr->n++] = (int)kid;
	return 0;
}

static int parse(struct sbx_keyring *kr, struct sbx_str text, struct sbx_err *err)
{
	struct sbx_str line;
	for (int number = 1; sbx_str_split(&text, '\n', &line); number++)
		if (add_line(kr, line, number, err) < 0)
			return -1;
	return kr->n > 0 ? 0 : SBX_FAIL(err, SBX_E_INVALID, "no key in it");
}

/* Reads into text, which the caller wipes. */
static int read_private(const char *path, char *text, size_t cap, size_t *ret_n, struct sbx_err *err)
{
	struct stat st;
	sbx_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0)
		return SBX_FAIL_SYS(err, SBX_E_NOT_FOUND, "Cannot read the master key file %s.", path);
	if (!S_ISREG(st.st_mode))
		return SBX_FAIL(err, SBX_E_INVALID, "The master key file %s is not a regular file.", path);
	if ((st.st_mode & S_IRWXO) != 0)
		return SBX_FAIL(err, SBX_E_FORBIDDEN,
			"Everybody may read the master key file %s: chmod 0640 it, replace the key.", path);
	ssize_t n = sbx_fd_read_full(fd, text, cap);
	if (n < 0)
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot read the master key file %s.", path);
	if ((size_t)n == cap)
		return SBX_FAIL(err, SBX_E_INVALID, "The master key file %s is too long.", path);
	*ret_n = (size_t)n;
	return 0;
}

struct sbx_keyring *sbx_keyring_open(const char *path, struct sbx_err *err)
{
	char text[FILE_MAX];
	size_t n = 0;
	struct sbx_keyring *kr = calloc(1, sizeof(*kr));
	if (kr == NULL) {
		SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
		return NULL;
	}
	if (read_private(path, text, sizeof(text), &n, err) < 0) {
		sbx_keyring_free(kr);
		kr = NULL;
	} else if (parse(kr, (struct sbx_str){ text, n }, err) < 0) {
		sbx_err_wrap(err, "The master key file %s", path);
		sbx_keyring_free(kr);
		kr = NULL;
	}
	OPENSSL_cleanse(text, sizeof(text));
	return kr;
}

void sbx_keyring_free(struct sbx_keyring *kr)
{
	if (kr != NULL)
		OPENSSL_clear_free(kr, sizeof(*kr));
}

int sbx_keyring_current_kid(const struct sbx_keyring *kr)
{
	return kr->kid[0];
}

static void put_be32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (24 - 8 * i));
}

int sbx_keyring_boxd_key(const struct sbx_keyring *kr, int kid, const uint8_t machine[SBX_MACHINE_ID_SIZE],
	uint32_t epoch, uint8_t ret_key[SBX_BOXD_KEY_SIZE], struct sbx_err *err)
{
	uint8_t info[sizeof(BOXD_LABEL) - 1 + SBX_MACHINE_ID_SIZE + 4];
	const size_t label_n = sizeof(BOXD_LABEL) - 1;
	memcpy(info, BOXD_LABEL, label_n);
	memcpy(info + label_n, machine, SBX_MACHINE_ID_SIZE);
	put_be32(info + label_n + SBX_MACHINE_ID_SIZE, epoch);
	for (size_t i = 0; i < kr->n; i++)
		if (kr->kid[i] == kid)
			return sbx_hkdf_sha256((struct sbx_str){ (const char *)kr->key[i], sizeof(kr->key[i]) },
				(struct sbx_str){ NULL, 0 }, (struct sbx_str){ (const char *)info, sizeof(info) },
				ret_key, SBX_BOXD_KEY_SIZE, err);
	return SBX_FAIL(err, SBX_E_NOT_FOUND, "Master key %d is not in the master key file.", kid);
}

int sbx_keyring_boxd_token(const struct sbx_keyring *kr, enum sbx_boxtoken_purpose purpose, int kid,
	const uint8_t machine[SBX_MACHINE_ID_SIZE], uint32_t epoch, uint32_t ttl_ms,
	char ret_text[SBX_BOXTOKEN_TEXT + 1], struct sbx_err *err)
{
	uint8_t key[SBX_BOXD_KEY_SIZE], raw[SBX_BOXTOKEN_SIZE];
	sbx_auto_buf struct sbx_buf text;
	struct sbx_boxtoken t = { .purpose = (uint8_t)purpose, .kid = (uint8_t)kid, .epoch = epoch, .ttl_ms = ttl_ms };
	sbx_buf_init(&text, SBX_BOXTOKEN_TEXT);
	if (sbx_keyring_boxd_key(kr, kid, machine, epoch, key, err) < 0)
		return -1;
	memcpy(t.machine, machine, sizeof(t.machine));
	int rc = sbx_random(t.nonce, sizeof(t.nonce), err);
	t.issued_at_us = sbx_wall_us();
	sbx_boxtoken_put(&t, raw);
	if (rc == 0)
		rc = sbx_hmac_sha256(key, sizeof(key), raw, SBX_BOXTOKEN_SIGNED, t.mac, err);
	OPENSSL_cleanse(key, sizeof(key));
	sbx_boxtoken_put(&t, raw);
	sbx_buf_base64url(&text, raw, sizeof(raw));
	if (rc < 0 || sbx_buf_ok(&text, err) < 0)
		return -1;
	SBX_ASSERT(sbx_str_copyz(sbx_buf_str(&text), ret_text, SBX_BOXTOKEN_TEXT + 1));
	return 0;
}
