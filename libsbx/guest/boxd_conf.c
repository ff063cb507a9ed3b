#include "guest/boxd.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "sbx/enc.h"
#include "sbx/fd.h"

static void json_done(cJSON **j)
{
	cJSON_Delete(*j);
}

static const char *text_of(const cJSON *o, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

	return cJSON_IsString(v) ? v->valuestring : NULL;
}

static bool hex_of(const cJSON *o, const char *key, uint8_t *out, size_t n)
{
	return sbx_hex_decode(sbx_str_of(text_of(o, key)), out, n);
}

static bool number_of(const cJSON *o, const char *key, uint32_t max, uint32_t *ret)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

	if (!cJSON_IsNumber(v) || v->valuedouble < 0 || v->valuedouble > max)
		return false;
	*ret = (uint32_t)v->valuedouble;
	return *ret == v->valuedouble;
}

static bool address_of(const char *z, struct in_addr *ret)
{
	return z && inet_pton(AF_INET, z, ret) == 1;
}

static bool mac_of(const char *z, uint8_t mac[6])
{
	struct sbx_str rest = sbx_str_of(z), part;
	size_t n = 0;

	while (sbx_str_split(&rest, ':', &part)) {
		if (n == 6 || !sbx_hex_decode(part, &mac[n], 1))
			return false;
		n++;
	}
	return n == 6;
}

static bool nic_of(const cJSON *o, struct boxd_nic *nic)
{
	const cJSON *dns, *item;

	if (!mac_of(text_of(o, "mac"), nic->mac) || !address_of(text_of(o, "address"), &nic->address) ||
		!address_of(text_of(o, "host"), &nic->host))
		return false;
	dns = cJSON_GetObjectItemCaseSensitive(o, "dns");
	cJSON_ArrayForEach(item, dns) {
		if (nic->dns_n < SBX_ARRAY_LEN(nic->dns)) {
			if (!cJSON_IsString(item) || !address_of(item->valuestring, &nic->dns[nic->dns_n]))
				return false;
			nic->dns_n++;
		}
	}
	nic->present = true;
	return true;
}

static bool hostname_ok(const char *z)
{
	size_t n = z ? strlen(z) : 0;

	for (size_t i = 0; i < n; i++) {
		if (!isalnum((unsigned char)z[i]) && (z[i] != '-' || i == 0))
			return false;
	}
	return n > 0 && n < 64;
}

int boxd_conf_parse(struct sbx_str json, struct boxd_conf *ret, struct sbx_err *err)
{
	SBX_CLEANUP(json_done) cJSON *o = cJSON_ParseWithLength(json.p, json.n);
	struct boxd_conf c = { 0 };
	const cJSON *user;
	uint32_t version, kid;

	if (!cJSON_IsObject(o))
		return SBX_FAIL(err, SBX_E_INVALID, "The config drive holds no JSON object");
	if (!number_of(o, "version", UINT32_MAX, &version) || version != 1)
		return SBX_FAIL(err, SBX_E_INVALID, "The config drive has a version not known here");
	if (!hex_of(o, "machineId", c.machine, sizeof(c.machine)) || !hex_of(o, "key", c.key, sizeof(c.key)) ||
		!number_of(o, "epoch", UINT32_MAX, &c.epoch) || !number_of(o, "kid", 255, &kid))
		return SBX_FAIL(err, SBX_E_INVALID, "The config drive's machineId, key, epoch or kid is wrong");
	c.kid = (uint8_t)kid;
	sbx_hexz(c.machine, sizeof(c.machine), c.machine_hex);
	if (!hostname_ok(text_of(o, "hostname")) ||
		!sbx_str_copyz(sbx_str_of(text_of(o, "hostname")), c.hostname, sizeof(c.hostname)))
		return SBX_FAIL(err, SBX_E_INVALID, "The config drive's hostname is wrong");
	if (!nic_of(cJSON_GetObjectItemCaseSensitive(o, "control"), &c.control))
		return SBX_FAIL(err, SBX_E_INVALID, "The config drive's control interface is wrong");
	user = cJSON_GetObjectItemCaseSensitive(o, "user");
	if (user && !cJSON_IsNull(user) && !nic_of(user, &c.user))
		return SBX_FAIL(err, SBX_E_INVALID, "The config drive's user interface is wrong");
	*ret = c;
	return 0;
}

int boxd_conf_read(struct boxd_conf *ret, struct sbx_err *err)
{
	sbx_auto_buf struct sbx_buf b;

	sbx_buf_init(&b, SBX_CONFIG_MAX);
	if (sbx_fd_slurp(SBX_CONFIG, &b, err) < 0)
		return -1;
	return boxd_conf_parse(sbx_buf_str(&b), ret, err);
}
