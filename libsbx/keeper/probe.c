/*
 * Asking a machine that boots whether its boxd answers.
 *
 * Each try is a new connection with a short budget: a SYN that nobody answered is sent again by the
 * kernel after a second, far too late for a boot of one and a half.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "keeper/keeper_priv.h"
#include "sbx/clock.h"
#include "sbx/fd.h"

static const char request[] = "GET /healthz HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n";
static const char answer[] = "HTTP/1.1 200 ";

static bool wait_for(int fd, short events, int64_t deadline_ms)
{
	struct pollfd p = { .fd = fd, .events = events };
	int n;

	do {
		n = poll(&p, 1, sbx_ms_left(deadline_ms));
	} while (n < 0 && errno == EINTR);
	return n == 1;
}

static bool connect_to(int fd, const char *address, int port, int64_t deadline_ms)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int failure = 0;
	socklen_t n = sizeof(failure);

	if (fd < 0 || inet_pton(AF_INET, address, &to.sin_addr) != 1)
		return false;
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 &&
		(errno != EINPROGRESS || !wait_for(fd, POLLOUT, deadline_ms)))
		return false;
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &n) == 0 && failure == 0;
}

bool keeper_probe(const char *address, int port, int budget_ms)
{
	int64_t deadline_ms = sbx_mono_ms() + budget_ms;
	sbx_auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	char got[sizeof(answer) - 1];
	size_t n = 0;

	/* The request fits into an empty socket buffer: one send takes all of it. */
	if (!connect_to(fd, address, port, deadline_ms) ||
		send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) != (ssize_t)sizeof(request) - 1)
		return false;
	while (n < sizeof(got)) {
		ssize_t r;

		if (!wait_for(fd, POLLIN, deadline_ms))
			return false;
		r = recv(fd, got + n, sizeof(got) - n, 0);
		if (r < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (r <= 0)
			return false;
		n += (size_t)r;
	}
	return memcmp(got, answer, sizeof(got)) == 0;
}
