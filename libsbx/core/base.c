#include "sbx/base.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "sbx/log.h"

void sbx_free_auto(void *pp)
{
	void **p = pp;

	free(*p);
	*p = NULL;
}

void sbx_close_auto(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	errno = saved;
}

void sbx_assert_failed(const char *what, const char *file, int line)
{
	sbx_log(SBX_LOG_ERROR, "assert", sbx_kv_s("what", what), sbx_kv_s("file", file), sbx_kv_i("line", line));
	abort();
}
