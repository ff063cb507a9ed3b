/*
 * File descriptors: everything close-on-exec, EINTR and short transfers handled.
 */
#ifndef SBX_FD_H
#define SBX_FD_H

#include <sys/types.h>

#include "sbx/buf.h"

/* Reads until n bytes or end of file; gives the count, or -1 with errno. */
ssize_t sbx_fd_read_full(int fd, void *p, size_t n);
/* Writes all n bytes: 0, or -1 with errno. */
int sbx_fd_write_full(int fd, const void *p, size_t n);
int sbx_fd_nonblock(int fd);
/* The whole file, appended to b (whose max bounds it). */
int sbx_fd_slurp(const char *path, struct sbx_buf *b, struct sbx_err *err) SBX_MUST_CHECK;
/* Writes path.tmp, syncs when asked, renames: readers see the old file or the new one, whole. */
int sbx_fd_replace(const char *path, struct sbx_str data, mode_t mode, bool sync, struct sbx_err *err) SBX_MUST_CHECK;
/* mkdir -p; what exists is fine. */
int sbx_fd_mkdirs(const char *path, mode_t mode, struct sbx_err *err) SBX_MUST_CHECK;

#endif
