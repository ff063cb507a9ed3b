#include "sbx/auth.h"

#include <openssl/crypto.h>
#include <string.h>

#include "db/stmts.h"
#include "sbx/enc.h"

#define KEY_LEAD "sbx_"
#define KEY_BYTES 32u

static const char *const scope_names[] = {
	[SBX_SCOPE_READ] = "read",
	[SBX_SCOPE_AGENT] = "agent",
	[SBX_SCOPE_FULL] = "full",
};

const char *sbx_scope_name(enum sbx_scope scope)
{
	return scope_names[scope];
}

bool sbx_scope_parse(const char *name, enum sbx_scope *ret)
{
	for (size_t i = 0; i < SBX_ARRAY_LEN(scope_names); i++) {
		if (sbx_streq(name, scope_names[i])) {
			*ret = (enum sbx_scope)i;
			return true;
		}
	}
	return false;
}

bool sbx_auth_is_key(struct sbx_str text)
{
	uint8_t bytes[KEY_BYTES];
	if (text.n != SBX_KEY_TEXT || !sbx_str_starts(text, KEY_LEAD))
		return false;
	struct sbx_str secret = { text.p + strlen(KEY_LEAD), text.n - strlen(KEY_LEAD) };
	bool is_key = sbx_base64url_decode(secret, bytes, sizeof(bytes));
	OPENSSL_cleanse(bytes, sizeof(bytes));
	return is_key;
}

int sbx_auth_make_key(char ret_key[SBX_KEY_TEXT + 1], uint8_t ret_hash[SBX_SHA256_SIZE], struct sbx_err *err)
{
	uint8_t bytes[KEY_BYTES];
	sbx_auto_buf struct sbx_buf text;
	sbx_buf_init(&text, SBX_KEY_TEXT);
	if (sbx_random(bytes, sizeof(bytes), err) < 0)
		return -1;
	sbx_buf_addz(&text, KEY_LEAD);
	sbx_buf_base64url(&text, bytes, sizeof(bytes));
	OPENSSL_cleanse(bytes, sizeof(bytes));
	int rc = sbx_buf_ok(&text, err);
	if (rc == 0)
		rc = sbx_sha256(text.p, text.n, ret_hash, err);
	if (rc == 0)
		SBX_ASSERT(sbx_str_copyz(sbx_buf_str(&text), ret_key, SBX_KEY_TEXT + 1));
	if (text.p != NULL)
		OPENSSL_cleanse(text.p, text.n);
	return rc;
}

static int refuse(struct sbx_err *err)
{
	return SBX_FAIL(err, SBX_E_AUTH, "The API key is not valid.");
}

static bool take_text(const struct sbx_res *r, int col, char *to, size_t cap)
{
	return sbx_str_copyz(sbx_str_of(sbx_res_z(r, 0, col)), to, cap);
}

int sbx_auth_check(struct sbx_db *db, struct sbx_str bearer_key, struct sbx_principal *ret, struct sbx_err *err)
{
	uint8_t hash[SBX_SHA256_SIZE];
	struct sbx_principal who = { .max_boxes = 0 };
	sbx_auto_res struct sbx_res *r = NULL;
	if (!sbx_auth_is_key(bearer_key))
		return refuse(err);
	if (sbx_sha256(bearer_key.p, bearer_key.n, hash, err) < 0 ||
		sbx_db_run(db, NULL, &sbx_stmt_key_auth, SBX_PARAMS(sbx_p_bytes(hash, sizeof(hash))), &r, err) < 0)
		return -1;
	if (sbx_res_rows(r) != 1)
		return refuse(err);
	if (!take_text(r, 0, who.key_id, sizeof(who.key_id)) ||
		!take_text(r, 1, who.tenant_id, sizeof(who.tenant_id)) ||
		!take_text(r, 2, who.tenant, sizeof(who.tenant)) || !sbx_scope_parse(sbx_res_z(r, 0, 3), &who.scope) ||
		!take_text(r, 4, who.plan, sizeof(who.plan)))
		return SBX_FAIL(err, SBX_E_INTERNAL, "The API key has a row that is not understood.");
	who.max_boxes = (int)sbx_res_i(r, 0, 5);
	*ret = who;
	return 0;
}
