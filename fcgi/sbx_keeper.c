/*
 * sbx-keeper: executes on one host what the database asks for. See sbx/keeper.h.
 * sbx-keeper --reap CMD ARGS…: runs CMD and reaps whatever is orphaned below it.
 */
#include <unistd.h>

#include "sbx/keeper.h"
#include "sbx/log.h"
#include "sbx/str.h"

int main(int argc, char **argv)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_conf *conf;

	sbx_log_open("sbx-keeper");
	if (argc > 2 && sbx_streq(argv[1], "--reap"))
		return sbx_reap_run(argv + 2);
	if (argc > 1) {
		sbx_err_set(&err, SBX_E_INVALID, __func__, "usage: sbx-keeper [--reap CMD ARGS...]");
		sbx_log_err(SBX_LOG_ERROR, "usage", &err, SBX_KV_NONE);
		return 2;
	}
	conf = sbx_conf_load(&err);
	if (conf && sbx_keeper_run(conf, &err) == 0)
		_exit(0); /* threads may still wait for libvirt: nothing may be torn down under them */
	sbx_log_err(SBX_LOG_ERROR, "keeper.failed", &err, SBX_KV_NONE);
	_exit(1);
}
