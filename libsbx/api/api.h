/* Handlers of api/routes.def, and what they share. */
#ifndef SBX_API_H
#define SBX_API_H

#include "sbx/exchange.h"

#define X(path, method, handler) enum sbx_step handler(struct sbx_exchange *x);
#include "api/routes.def"
#undef X

int sbx_mcp_init(struct sbx_err *err) SBX_MUST_CHECK;

/* Calls of each tenant that are under way in this process. */
int sbx_gate_init(int64_t calls_per_tenant, struct sbx_err *err) SBX_MUST_CHECK;
/* Counts a call in until the arena dies; SBX_E_BUSY when the tenant has too many. */
int sbx_gate_enter(struct sbx_arena *a, const char *tenant_id, struct sbx_err *err) SBX_MUST_CHECK;

#endif
