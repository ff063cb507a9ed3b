/*
 * A machine's slot: a number on its host from which everything that must not clash there follows:
 * addresses, tap names, MAC addresses, and the uid that its QEMU runs under.
 *
 * The range of the instance (box_cidr) is cut into blocks of four addresses; slot n has the n-th:
 *     +0 host side of the control link   +1 boxd's side
 *     +2 host side of the user link      +3 the box's side
 * Slot 0 is no machine's: the resolver that boxes ask listens on the second address of its block.
 * A tap is "s" TAG "c" SLOT (control) or "s" TAG "u" SLOT (user), so one constant set of firewall
 * rules matches all of an instance by prefix.
 *
 * Pure functions over plain data.
 */
#ifndef SBX_SLOT_H
#define SBX_SLOT_H

#include <sys/types.h>

#include "sbx/err.h"

#define SBX_ADDR_SIZE 16 /* dotted IPv4 and its NUL */
#define SBX_MAC_SIZE 18
#define SBX_TAP_SIZE 16 /* IFNAMSIZ */

struct sbx_slot_space {
	uint32_t base;  /* first address, host order */
	int prefix;     /* 9 to 29 bits */
	uint32_t slots; /* numbers of machines are 1 to slots - 1 */
	uint32_t uid_base;
	char tag[3];
	char resolver[SBX_ADDR_SIZE];
};

struct sbx_slot {
	uint32_t slot;
	uint32_t uid;
	char control_host[SBX_ADDR_SIZE], control_guest[SBX_ADDR_SIZE];
	char user_host[SBX_ADDR_SIZE], user_guest[SBX_ADDR_SIZE];
	char control_mac[SBX_MAC_SIZE], user_mac[SBX_MAC_SIZE];
	char control_tap[SBX_TAP_SIZE], user_tap[SBX_TAP_SIZE];
};

/* cidr "100.64.0.0/16", tag two characters of a-z 0-9, uid_base the uid of slot 0. */
int sbx_slot_space_init(struct sbx_slot_space *space, const char *cidr, const char *tag, int64_t uid_base,
	struct sbx_err *err) SBX_MUST_CHECK;
int sbx_slot_at(const struct sbx_slot_space *space, int64_t slot, struct sbx_slot *ret, struct sbx_err *err)
	SBX_MUST_CHECK;
/* The slot that a tap of this instance belongs to, or -1 when it is none of ours. */
int64_t sbx_slot_of_tap(const struct sbx_slot_space *space, const char *ifname);

#endif
