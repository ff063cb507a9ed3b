#include "sbx/slot.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "sbx/str.h"

static void addr_text(uint32_t addr, char z[SBX_ADDR_SIZE])
{
	struct in_addr in = { .s_addr = htonl(addr) };

	SBX_ASSERT(inet_ntop(AF_INET, &in, z, SBX_ADDR_SIZE));
}

static bool tag_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static int parse_cidr(const char *cidr, uint32_t *ret_base, int *ret_prefix, struct sbx_err *err)
{
	struct sbx_str rest = sbx_str_of(cidr), part;
	char address[SBX_ADDR_SIZE];
	struct in_addr in;
	int64_t prefix;

	if (!sbx_str_split(&rest, '/', &part) || !sbx_str_copyz(part, address, sizeof(address)) ||
		inet_pton(AF_INET, address, &in) != 1 || !sbx_str_i64(rest, 0, 32, &prefix))
		return SBX_FAIL(err, SBX_E_INVALID, "'%s' is not an IPv4 range such as 100.64.0.0/16", cidr);
	if (prefix < 9 || prefix > 29)
		return SBX_FAIL(err, SBX_E_INVALID, "The range %s must have a prefix of 9 to 29 bits", cidr);
	*ret_base = ntohl(in.s_addr);
	*ret_prefix = (int)prefix;
	if (*ret_base & (UINT32_MAX >> prefix))
		return SBX_FAIL(err, SBX_E_INVALID, "The range %s has bits set beyond its prefix", cidr);
	return 0;
}

int sbx_slot_space_init(
	struct sbx_slot_space *space, const char *cidr, const char *tag, int64_t uid_base, struct sbx_err *err)
{
	struct sbx_slot_space s = { 0 };
	uint32_t size;

	if (parse_cidr(cidr, &s.base, &s.prefix, err) < 0)
		return -1;
	if (!tag || strlen(tag) != 2 || !tag_char(tag[0]) || !tag_char(tag[1]))
		return SBX_FAIL(err, SBX_E_INVALID, "The instance tag must be two characters of a-z and 0-9");
	size = (uint32_t)1 << (32 - s.prefix);
	s.slots = size / 4;
	if (uid_base < 1000 || uid_base + s.slots >= INT32_MAX)
		return SBX_FAIL(err, SBX_E_INVALID, "Uids of boxes start at %lld: they must lie between 1000 and 2^31",
			(long long)uid_base);
	s.uid_base = (uint32_t)uid_base;
	memcpy(s.tag, tag, sizeof(s.tag));
	addr_text(s.base + 1, s.resolver);
	*space = s;
	return 0;
}

/* Locally administered, unicast: 02:73, a byte of the tag, then slot and role in 24 bits. */
static void mac_text(const struct sbx_slot_space *space, uint32_t slot, uint32_t role, char z[SBX_MAC_SIZE])
{
	uint32_t n = slot * 2 + role;
	unsigned tag = ((unsigned)(unsigned char)space->tag[0] * 31 + (unsigned char)space->tag[1]) & 0xff;

	snprintf(z, SBX_MAC_SIZE, "02:73:%02x:%02x:%02x:%02x", tag, (n >> 16) & 0xff, (n >> 8) & 0xff, n & 0xff);
}

int sbx_slot_at(const struct sbx_slot_space *space, int64_t slot, struct sbx_slot *ret, struct sbx_err *err)
{
	uint32_t n, first;

	if (slot < 1 || slot >= space->slots)
		return SBX_FAIL(err, SBX_E_LIMIT, "Slot %lld is outside of the range for boxes, 1 to %u",
			(long long)slot, space->slots - 1);
	n = (uint32_t)slot;
	first = space->base + 4 * n;
	ret->slot = n;
	ret->uid = space->uid_base + n;
	addr_text(first, ret->control_host);
	addr_text(first + 1, ret->control_guest);
	addr_text(first + 2, ret->user_host);
	addr_text(first + 3, ret->user_guest);
	mac_text(space, n, 0, ret->control_mac);
	mac_text(space, n, 1, ret->user_mac);
	snprintf(ret->control_tap, sizeof(ret->control_tap), "s%sc%u", space->tag, n);
	snprintf(ret->user_tap, sizeof(ret->user_tap), "s%su%u", space->tag, n);
	return 0;
}

int64_t sbx_slot_of_tap(const struct sbx_slot_space *space, const char *ifname)
{
	struct sbx_str name = sbx_str_of(ifname);
	int64_t slot;

	if (name.n < 5 || name.p[0] != 's' || memcmp(name.p + 1, space->tag, 2) != 0 ||
		(name.p[3] != 'c' && name.p[3] != 'u'))
		return -1;
	name = (struct sbx_str){ name.p + 4, name.n - 4 };
	return sbx_str_i64(name, 1, (int64_t)space->slots - 1, &slot) ? slot : -1;
}
