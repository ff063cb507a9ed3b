/*
 * Interfaces by rtnetlink: two of them, known by MAC. The control interface lives in a network
 * namespace that only boxd is in, so no rule, route or daemon of the user's can cut boxd off.
 */
#include "guest/boxd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/if_ether.h>
#include <netinet/tcp.h>
#include <netpacket/packet.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sbx/fd.h"
#include "sbx/log.h"

#define CONTROL_NS SBX_RUN_DIR "/control.netns"
#define FIRST_DONE SBX_RUN_DIR "/first-start"
#define CONTROL_NAME "ctl0"
#define BACKLOG 256

static int main_ns = -1; /* the box's main namespace, until the first start is finished */

struct request {
	struct nlmsghdr h;
	char body[512];
};

static int nl_open(struct sbx_err *err)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	return fd < 0 ? SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot open rtnetlink") : fd;
}

static void *nl_begin(struct request *r, uint16_t type, uint16_t flags, size_t n)
{
	memset(r, 0, sizeof(*r));
	r->h.nlmsg_type = type;
	r->h.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
	r->h.nlmsg_len = (uint32_t)NLMSG_LENGTH(n);
	return r->body;
}

static void nl_add(struct request *r, uint16_t type, const void *p, size_t n)
{
	char *end = (char *)r + NLMSG_ALIGN(r->h.nlmsg_len);
	struct rtattr a = { .rta_type = type, .rta_len = (uint16_t)RTA_LENGTH(n) };

	SBX_ASSERT(NLMSG_ALIGN(r->h.nlmsg_len) + RTA_SPACE(n) <= sizeof(*r));
	memcpy(end, &a, sizeof(a));
	memcpy(end + RTA_LENGTH(0), p, n);
	r->h.nlmsg_len = (uint32_t)(NLMSG_ALIGN(r->h.nlmsg_len) + RTA_SPACE(n));
}

/* Sends and waits for the kernel's word: 0, or -1 with errno. */
static int nl_talk(int fd, struct request *r)
{
	char answer[4096];
	struct nlmsghdr h;
	struct nlmsgerr e;
	ssize_t n;

	if (send(fd, r, r->h.nlmsg_len, 0) < 0)
		return -1;
	n = recv(fd, answer, sizeof(answer), 0);
	if (n < (ssize_t)NLMSG_LENGTH(sizeof(e))) {
		errno = EPROTO;
		return -1;
	}
	memcpy(&h, answer, sizeof(h));
	memcpy(&e, answer + NLMSG_LENGTH(0), sizeof(e));
	if (h.nlmsg_type == NLMSG_ERROR && e.error == 0)
		return 0;
	errno = h.nlmsg_type == NLMSG_ERROR ? -e.error : EPROTO;
	return -1;
}

static bool link_has_mac(const struct nlmsghdr *h, const uint8_t mac[6], int *index)
{
	const struct ifinfomsg *info = (const struct ifinfomsg *)((const char *)h + NLMSG_LENGTH(0));
	const struct rtattr *a = (const struct rtattr *)((const char *)info + NLMSG_ALIGN(sizeof(*info)));
	size_t left = h->nlmsg_len - NLMSG_LENGTH(sizeof(*info));

	while (left >= sizeof(*a) && a->rta_len >= sizeof(*a) && a->rta_len <= left) {
		size_t step = RTA_ALIGN(a->rta_len);

		if (a->rta_type == IFLA_ADDRESS && a->rta_len == RTA_LENGTH(6) &&
			memcmp((const char *)a + RTA_LENGTH(0), mac, 6) == 0) {
			*index = info->ifi_index;
			return true;
		}
		if (step > left)
			break;
		left -= step;
		a = (const struct rtattr *)((const char *)a + step);
	}
	return false;
}

/* Index of the interface with that MAC in the socket's namespace, 0 when there is none. */
static int find_link(int fd, const uint8_t mac[6])
{
	_Alignas(struct nlmsghdr) char answer[32768];
	struct request r;
	struct ifinfomsg *info = nl_begin(&r, RTM_GETLINK, NLM_F_DUMP, sizeof(*info));
	int found = 0;

	if (send(fd, &r, r.h.nlmsg_len, 0) < 0)
		return 0;
	for (;;) {
		ssize_t n = recv(fd, answer, sizeof(answer), 0);
		const char *at = answer;

		if (n <= 0)
			return found;
		while (n >= (ssize_t)sizeof(struct nlmsghdr)) {
			const struct nlmsghdr *h = (const struct nlmsghdr *)at;
			ssize_t step = (ssize_t)NLMSG_ALIGN(h->nlmsg_len);

			if (h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR || step <= 0)
				return found;
			if (h->nlmsg_type == RTM_NEWLINK && step <= n)
				link_has_mac(h, mac, &found);
			at += step;
			n -= step;
		}
	}
}

/* flags: of those in change. */
static int set_link(int fd, int index, const char *name, int ns, unsigned int flags, unsigned int change)
{
	struct request r;
	struct ifinfomsg *info = nl_begin(&r, RTM_NEWLINK, 0, sizeof(*info));

	info->ifi_index = index;
	info->ifi_flags = flags;
	info->ifi_change = change;
	if (name)
		nl_add(&r, IFLA_IFNAME, name, strlen(name) + 1);
	if (ns >= 0)
		nl_add(&r, IFLA_NET_NS_FD, &ns, sizeof(ns));
	return nl_talk(fd, &r);
}

static int add_address(int fd, int index, struct in_addr a)
{
	struct request r;
	struct ifaddrmsg *m = nl_begin(&r, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, sizeof(*m));

	m->ifa_family = AF_INET;
	m->ifa_prefixlen = 32;
	m->ifa_index = (uint32_t)index;
	nl_add(&r, IFA_LOCAL, &a, sizeof(a));
	nl_add(&r, IFA_ADDRESS, &a, sizeof(a));
	return nl_talk(fd, &r);
}

/* To the host over the link, or everything by way of the host. */
static int add_route(int fd, int index, struct in_addr host, bool everything)
{
	struct request r;
	struct rtmsg *m = nl_begin(&r, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, sizeof(*m));

	m->rtm_family = AF_INET;
	m->rtm_table = RT_TABLE_MAIN;
	m->rtm_protocol = RTPROT_BOOT;
	m->rtm_type = RTN_UNICAST;
	m->rtm_scope = everything ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK;
	if (!everything) {
		m->rtm_dst_len = 32;
		nl_add(&r, RTA_DST, &host, sizeof(host));
	} else {
		nl_add(&r, RTA_GATEWAY, &host, sizeof(host));
	}
	nl_add(&r, RTA_OIF, &index, sizeof(index));
	return nl_talk(fd, &r);
}

static void sysctl_put(const char *family, const char *link, const char *key, const char *value)
{
	char path[128];
	sbx_auto_close int fd = -1;

	snprintf(path, sizeof(path), "/proc/sys/net/%s/conf/%s/%s", family, link, key);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		(void)!sbx_fd_write_full(fd, value, strlen(value));
}

/* The namespace of this process must be the one of the interface, for the sysctls. */
static int configure(int fd, const struct boxd_nic *nic, const char *name, bool is_control, struct sbx_err *err)
{
	int index = find_link(fd, nic->mac);
	/* At the box's start the control interface stays mute until boxd_net_announce(). */
	unsigned int up = is_control && main_ns >= 0 ? IFF_UP | IFF_NOARP : IFF_UP;

	if (index == 0)
		return SBX_FAIL(err, SBX_E_INTERNAL, "There is no interface for %s", name);
	set_link(fd, index, name, -1, 0, 0); /* has it already, or keeps the kernel's */
	if (is_control)
		sysctl_put("ipv6", name, "disable_ipv6", "1");
	else
		sysctl_put("ipv4", name, "arp_notify", "1");
	if (add_address(fd, index, nic->address) < 0 || set_link(fd, index, NULL, -1, up, IFF_UP | IFF_NOARP) < 0 ||
		add_route(fd, index, nic->host, false) < 0 ||
		(!is_control && add_route(fd, index, nic->host, true) < 0))
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot configure %s", name);
	return 0;
}

/* Enters the control namespace; made at the first start, found again after. */
static int enter_control(struct sbx_err *err)
{
	sbx_auto_close int ns = open(CONTROL_NS, O_RDONLY | O_CLOEXEC);

	if (ns >= 0) {
		if (setns(ns, CLONE_NEWNET) == 0)
			return 0;
		if (errno != EINVAL) /* EINVAL: the file is there, nothing is bound to it */
			return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot enter the control network");
	} else {
		ns = open(CONTROL_NS, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
	}
	if (ns < 0 || unshare(CLONE_NEWNET) < 0 || mount("/proc/self/ns/net", CONTROL_NS, NULL, MS_BIND, NULL) < 0)
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot make the control network");
	return 0;
}

static int control_up(const struct boxd_conf *c, int outer, struct sbx_err *err)
{
	sbx_auto_close int ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	sbx_auto_close int fd = nl_open(err);
	int index;

	if (fd < 0)
		return -1;
	index = find_link(outer, c->control.mac);
	if (index && set_link(outer, index, NULL, ns, 0, 0) < 0)
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot move the control interface");
	return configure(fd, &c->control, CONTROL_NAME, true, err);
}

static int write_text(const char *path, struct sbx_buf *b, struct sbx_err *err)
{
	/* Not replaced by a rename: some of these may be bind mounts of somebody's. */
	sbx_auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (sbx_buf_ok(b, err) < 0)
		return -1;
	if (fd < 0 || sbx_fd_write_full(fd, b->p, b->n) < 0)
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot write %s", path);
	return 0;
}

static int set_names(const struct boxd_conf *c, struct sbx_err *err)
{
	sbx_auto_buf struct sbx_buf b;
	char z[INET_ADDRSTRLEN];

	sbx_buf_init(&b, 4096);
	if (sethostname(c->hostname, strlen(c->hostname)) < 0)
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot set the host name");
	sbx_buf_addf(&b, "%s\n", c->hostname);
	if (write_text("/etc/hostname", &b, err) < 0)
		return -1;
	sbx_buf_reset(&b);
	sbx_buf_addf(&b, "%s\n", c->machine_hex);
	if (write_text("/etc/machine-id", &b, err) < 0)
		return -1;
	sbx_buf_reset(&b);
	sbx_buf_addf(&b, "127.0.0.1 localhost\n127.0.1.1 %s\n::1 localhost ip6-localhost ip6-loopback\n", c->hostname);
	if (write_text("/etc/hosts", &b, err) < 0)
		return -1;
	sbx_buf_reset(&b);
	for (size_t i = 0; i < c->user.dns_n; i++)
		sbx_buf_addf(&b, "nameserver %s\n", inet_ntop(AF_INET, &c->user.dns[i], z, sizeof(z)));
	return write_text("/etc/resolv.conf", &b, err);
}

int boxd_net_setup(const struct boxd_conf *c, struct sbx_err *err)
{
	sbx_auto_close int outer = nl_open(err);

	if (outer < 0)
		return -1;
	if (access(FIRST_DONE, F_OK) < 0) {
		main_ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
		if (main_ns < 0)
			return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot open the main network");
	}
	if (enter_control(err) < 0)
		return -1;
	return control_up(c, outer, err);
}

bool boxd_net_is_first(void)
{
	return main_ns >= 0;
}

int boxd_net_finish(const struct boxd_conf *c, struct sbx_err *err)
{
	sbx_auto_close int back = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	sbx_auto_close int fd = -1;
	int rc;

	if (main_ns < 0)
		return 0;
	if (back < 0 || setns(main_ns, CLONE_NEWNET) < 0)
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot enter the main network");
	fd = nl_open(err);
	rc = fd < 0 || (c->user.present && configure(fd, &c->user, "eth0", false, err) < 0) ? -1 : 0;
	if (setns(back, CLONE_NEWNET) < 0)
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot go back to the control network");
	if (rc < 0 || set_names(c, err) < 0 || sbx_fd_replace(FIRST_DONE, SBX_STR(""), 0600, false, err) < 0)
		return -1;
	close(main_ns);
	main_ns = -1;
	return 0;
}

/*
 * Answers ARP from now on, and tells the host our MAC unasked: it asks only once a second, and sends what
 * it has waiting as soon as it knows. Not earlier: a packet that came before there was a route to
 * answer by, or a listener, would be lost, and the host's TCP waits a second before it sends again.
 */
void boxd_net_announce(const struct boxd_conf *c)
{
	sbx_auto_close int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	sbx_auto_close int nl = nl_open(NULL);
	int index = (int)if_nametoindex(CONTROL_NAME);
	struct sockaddr_ll to = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_ARP),
		.sll_ifindex = index,
		.sll_halen = ETH_ALEN,
		.sll_addr = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff },
	};
	struct ether_arp arp = {
		.ea_hdr = { htons(ARPHRD_ETHER), htons(ETH_P_IP), ETH_ALEN, sizeof(struct in_addr),
			htons(ARPOP_REQUEST) },
	};

	memcpy(arp.arp_sha, c->control.mac, sizeof(arp.arp_sha));
	memcpy(arp.arp_spa, &c->control.address, sizeof(arp.arp_spa));
	memcpy(arp.arp_tpa, &c->control.address, sizeof(arp.arp_tpa));
	if (nl >= 0)
		set_link(nl, index, NULL, -1, 0, IFF_NOARP);
	if (fd >= 0)
		(void)!sendto(fd, &arp, sizeof(arp), 0, (struct sockaddr *)&to, sizeof(to));
}

int boxd_net_listen(const struct boxd_conf *c, struct sbx_err *err)
{
	sbx_auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_in at = {
		.sin_family = AF_INET,
		.sin_port = htons(SBX_BOXD_PORT),
		.sin_addr = c->control.address,
	};
	int ret;
	/* Accepted connections inherit these: a host that is gone without a word frees its place. */
	static const struct {
		int level, name, value;
	} option[] = {
		{ SOL_SOCKET, SO_REUSEADDR, 1 },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, 30 },
		{ IPPROTO_TCP, TCP_KEEPINTVL, 10 },
		{ IPPROTO_TCP, TCP_KEEPCNT, 3 },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, 60000 },
	};

	for (size_t i = 0; fd >= 0 && i < SBX_ARRAY_LEN(option); i++)
		setsockopt(fd, option[i].level, option[i].name, &option[i].value, sizeof(option[i].value));
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, BACKLOG) < 0)
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot listen on the control address");
	ret = fd;
	fd = -1;
	return ret;
}
