/*
 * How many calls each tenant has under way in this process. A small open hash table under one lock;
 * a tenant without calls leaves its place at the next growth, so it stays as large as the busy ones need.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"

struct place {
	char tenant[37];
	int64_t calls;
};

static struct {
	pthread_mutex_t lock;
	struct place *places;
	size_t size, used; /* size is a power of two */
	int64_t max;
} gate = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* FNV-1a, 64 bit (Fowler, Noll, Vo); tenant ids are ours and random, so no flooding. */
static uint64_t hash(const char *z)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (; *z; z++)
		h = (h ^ (unsigned char)*z) * 0x100000001b3u;
	return h;
}

static struct place *place_of(struct place *places, size_t size, const char *tenant)
{
	for (size_t i = hash(tenant) & (size - 1);; i = (i + 1) & (size - 1))
		if (!places[i].tenant[0] || strcmp(places[i].tenant, tenant) == 0)
			return &places[i];
}

static bool grow(void)
{
	size_t busy = 0, size = 64;
	struct place *places;

	for (size_t i = 0; i < gate.size; i++)
		busy += gate.places[i].calls > 0;
	while (size < (busy + 1) * 4)
		size *= 2;
	places = calloc(size, sizeof(*places));
	if (!places)
		return false;
	for (size_t i = 0; i < gate.size; i++)
		if (gate.places[i].calls > 0)
			*place_of(places, size, gate.places[i].tenant) = gate.places[i];
	free(gate.places);
	gate.places = places;
	gate.size = size;
	gate.used = busy;
	return true;
}

int sbx_gate_init(int64_t calls_per_tenant, struct sbx_err *err)
{
	gate.max = calls_per_tenant;
	return grow() ? 0 : SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
}

static void leave(void *tenant)
{
	pthread_mutex_lock(&gate.lock);
	place_of(gate.places, gate.size, tenant)->calls--;
	pthread_mutex_unlock(&gate.lock);
}

int sbx_gate_enter(struct sbx_arena *a, const char *tenant_id, struct sbx_err *err)
{
	/* Freed with the arena, after the deferred call that reads it. */
	char *tenant = sbx_arena_alloc(a, sizeof(gate.places->tenant));
	struct place *p = NULL;
	bool full = false;

	if (!tenant || !sbx_str_copyz(sbx_str_of(tenant_id), tenant, sizeof(gate.places->tenant)))
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	pthread_mutex_lock(&gate.lock);
	if ((gate.used + 1) * 2 <= gate.size || grow()) {
		p = place_of(gate.places, gate.size, tenant);
		full = p->calls >= gate.max;
		if (!full && p->calls++ == 0 && !p->tenant[0]) {
			memcpy(p->tenant, tenant, sizeof(p->tenant));
			gate.used++;
		}
	}
	pthread_mutex_unlock(&gate.lock);
	if (!p)
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	if (full)
		return SBX_FAIL(err, SBX_E_BUSY,
			"You have %lld calls under way, which is the most. Wait until some have ended, then retry.",
			(long long)gate.max);
	return sbx_arena_defer(a, leave, tenant) < 0 ? SBX_FAIL(err, SBX_E_NOMEM, "Out of memory") : 0;
}
