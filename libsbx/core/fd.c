#include "sbx/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

ssize_t sbx_fd_read_full(int fd, void *p, size_t n)
{
	size_t got = 0;

	while (got < n) {
		ssize_t r = read(fd, (char *)p + got, n - got);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -1;
		if (r == 0)
			break;
		got += (size_t)r;
	}
	return (ssize_t)got;
}

int sbx_fd_write_full(int fd, const void *p, size_t n)
{
	const char *at = p;

	while (n) {
		ssize_t w = write(fd, at, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return -1;
		at += w;
		n -= (size_t)w;
	}
	return 0;
}

int sbx_fd_nonblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 ? -1 : fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

int sbx_fd_slurp(const char *path, struct sbx_buf *b, struct sbx_err *err)
{
	sbx_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return SBX_FAIL_SYS(err, errno == ENOENT ? SBX_E_NOT_FOUND : SBX_E_INTERNAL, "Cannot read %s", path);
	for (;;) {
		char chunk[16384];
		ssize_t n = sbx_fd_read_full(fd, chunk, sizeof(chunk));

		if (n < 0)
			return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot read %s", path);
		if (n == 0)
			break;
		sbx_buf_add(b, chunk, (size_t)n);
	}
	if (sbx_buf_ok(b, err) < 0)
		return sbx_err_wrap(err, "Reading %s", path);
	return 0;
}

static int fill(const char *tmp, struct sbx_str data, mode_t mode, bool sync)
{
	sbx_auto_close int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);

	if (fd < 0 || fchmod(fd, mode) < 0 || sbx_fd_write_full(fd, data.p, data.n) < 0)
		return -1;
	return sync ? fsync(fd) : 0;
}

int sbx_fd_replace(const char *path, struct sbx_str data, mode_t mode, bool sync, struct sbx_err *err)
{
	char tmp[4096];
	int n = snprintf(tmp, sizeof(tmp), "%s.tmp", path);

	if (n < 0 || (size_t)n >= sizeof(tmp))
		return SBX_FAIL(err, SBX_E_INVALID, "The path is too long: %s", path);
	if (fill(tmp, data, mode, sync) < 0 || rename(tmp, path) < 0) {
		SBX_FAIL_SYS(err, errno == ENOSPC ? SBX_E_NO_SPACE : SBX_E_INTERNAL, "Cannot write %s", path);
		unlink(tmp);
		return -1;
	}
	return 0;
}

int sbx_fd_mkdirs(const char *path, mode_t mode, struct sbx_err *err)
{
	char part[4096];

	if (!sbx_str_copyz(sbx_str_of(path), part, sizeof(part)))
		return SBX_FAIL(err, SBX_E_INVALID, "The path is too long: %s", path);
	for (char *at = part + 1;; at++) {
		bool end = *at == '\0';

		if (!end && *at != '/')
			continue;
		*at = '\0';
		if (mkdir(part, mode) < 0 && errno != EEXIST)
			return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot make the directory %s", part);
		if (end)
			return 0;
		*at = '/';
	}
}
