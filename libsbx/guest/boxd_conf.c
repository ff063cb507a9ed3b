#include "guest/boxd.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

#include "guest/boxd_json.h"
#include "sbx/enc.h"
#include "sbx/fd.h"

static struct sbx_str text_of(struct sbx_str o, const char *key)
{
	struct sbx_str value, text = { "", 0 };

	if (json_member(o, key, &value))
		(void)json_string(value, &text);
	return text;
}

static bool hex_of(struct sbx_str o, const char *key, uint8_t *out, size_t n)
{
	return sbx_hex_decode(text_of(o, key), out, n);
}

static bool number_of(struct sbx_str o, const char *key, uint32_t max, uint32_t *ret)
{
	struct sbx_str value;
	int64_t v;

	if (!json_member(o, key, &value) || !sbx_str_i64(value, 0, max, &v))
		return false;
	*ret = (uint32_t)v;
	return true;
}

static bool address_of(struct sbx_str s, struct in_addr *ret)
{
	char z[INET_ADDRSTRLEN];

	return sbx_str_copyz(s, z, sizeof(z)) && inet_pton(AF_INET, z, ret) == 1;
}

static bool mac_of(struct sbx_str rest, uint8_t mac[6])
{
	struct sbx_str part;
	size_t n = 0;

	while (sbx_str_split(&rest, ':', &part)) {
		if (n == 6 || !sbx_hex_decode(part, &mac[n], 1))
			return false;
		n++;
	}
	return n == 6;
}

static bool nic_of(struct sbx_str o, struct boxd_nic *nic)
{
	struct sbx_str dns, item, text;

	if (!mac_of(text_of(o, "mac"), nic->mac) || !address_of(text_of(o, "address"), &nic->address) ||
		!address_of(text_of(o, "host"), &nic->host))
		return false;
	if (!json_member(o, "dns", &dns))
		dns.n = 0;
	while (nic->dns_n < SBX_ARRAY_LEN(nic->dns) && json_item(&dns, &item)) {
		if (!json_string(item, &text) || !address_of(text, &nic->dns[nic->dns_n]))
			return false;
		nic->dns_n++;
	}
	nic->present = true;
	return true;
}

static bool hostname_ok(struct sbx_str s)
{
	for (size_t i = 0; i < s.n; i++) {
		if (!isalnum((unsigned char)s.p[i]) && (s.p[i] != '-' || i == 0))
			return false;
	}
	return s.n > 0 && s.n < 64;
}

int boxd_conf_parse(struct sbx_str o, struct boxd_conf *ret, struct sbx_err *err)
{
	struct boxd_conf c = { 0 };
	struct sbx_str sub;
	uint32_t version, kid;

	if (!json_is_object(o))
		return SBX_FAIL(err, SBX_E_INVALID, "The config drive holds no JSON object");
	if (!number_of(o, "version", UINT32_MAX, &version) || version != 1)
		return SBX_FAIL(err, SBX_E_INVALID, "The config drive has a version not known here");
	if (!hex_of(o, "machineId", c.machine, sizeof(c.machine)) || !hex_of(o, "key", c.key, sizeof(c.key)) ||
		!number_of(o, "epoch", UINT32_MAX, &c.epoch) || !number_of(o, "kid", 255, &kid))
		return SBX_FAIL(err, SBX_E_INVALID, "The config drive's machineId, key, epoch or kid is wrong");
	c.kid = (uint8_t)kid;
	sbx_hexz(c.machine, sizeof(c.machine), c.machine_hex);
	if (!hostname_ok(text_of(o, "hostname")) ||
		!sbx_str_copyz(text_of(o, "hostname"), c.hostname, sizeof(c.hostname)))
		return SBX_FAIL(err, SBX_E_INVALID, "The config drive's hostname is wrong");
	if (!json_member(o, "control", &sub) || !nic_of(sub, &c.control))
		return SBX_FAIL(err, SBX_E_INVALID, "The config drive's control interface is wrong");
	if (json_member(o, "user", &sub) && !sbx_str_eqz(sub, "null") && !nic_of(sub, &c.user))
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
