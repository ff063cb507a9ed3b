#include "sbx/boxtoken.h"

#include <stdlib.h>
#include <string.h>

#include "sbx/enc.h"
#include "sbx/frame.h"

#define VERSION 1
#define NONE UINT32_MAX

enum {
	AT_VERSION = 0,
	AT_PURPOSE = 1,
	AT_KID = 2,
	AT_ZERO = 3,
	AT_EPOCH = 4,
	AT_ISSUED = 8,
	AT_TTL = 16,
	AT_MACHINE = 20,
	AT_NONCE = 36,
};

_Static_assert(AT_NONCE + sizeof((struct sbx_boxtoken){ 0 }.nonce) == SBX_BOXTOKEN_SIGNED, "layout");
_Static_assert(SBX_BOXTOKEN_SIZE % 3 == 0 && SBX_BOXTOKEN_SIZE / 3 * 4 == SBX_BOXTOKEN_TEXT, "base64url");

void sbx_boxtoken_put(const struct sbx_boxtoken *t, uint8_t out[SBX_BOXTOKEN_SIZE])
{
	out[AT_VERSION] = VERSION;
	out[AT_PURPOSE] = t->purpose;
	out[AT_KID] = t->kid;
	out[AT_ZERO] = 0;
	sbx_put_be32(out + AT_EPOCH, t->epoch);
	sbx_put_be64(out + AT_ISSUED, (uint64_t)t->issued_at_us);
	sbx_put_be32(out + AT_TTL, t->ttl_ms);
	memcpy(out + AT_MACHINE, t->machine, sizeof(t->machine));
	memcpy(out + AT_NONCE, t->nonce, sizeof(t->nonce));
	memcpy(out + SBX_BOXTOKEN_SIGNED, t->mac, sizeof(t->mac));
}

bool sbx_boxtoken_parse(struct sbx_str text, struct sbx_boxtoken *ret, uint8_t raw[SBX_BOXTOKEN_SIZE])
{
	uint8_t b[SBX_BOXTOKEN_SIZE];
	uint64_t issued;

	if (text.n != SBX_BOXTOKEN_TEXT || !sbx_base64url_decode(text, b, sizeof(b)))
		return false;
	issued = sbx_get_be64(b + AT_ISSUED);
	/* Half the range of the type: no sum of a time and a life can leave it. */
	if (b[AT_VERSION] != VERSION || b[AT_ZERO] != 0 || issued > (uint64_t)INT64_MAX / 2)
		return false;
	*ret = (struct sbx_boxtoken){
		.purpose = b[AT_PURPOSE],
		.kid = b[AT_KID],
		.epoch = sbx_get_be32(b + AT_EPOCH),
		.issued_at_us = (int64_t)issued,
		.ttl_ms = sbx_get_be32(b + AT_TTL),
	};
	memcpy(ret->machine, b + AT_MACHINE, sizeof(ret->machine));
	memcpy(ret->nonce, b + AT_NONCE, sizeof(ret->nonce));
	memcpy(ret->mac, b + SBX_BOXTOKEN_SIGNED, sizeof(ret->mac));
	memcpy(raw, b, sizeof(b));
	return true;
}

struct used {
	uint8_t nonce[16];
	int64_t issued_at_us;
	uint32_t next; /* in the same bucket */
};

/*
 * A ring of used nonces in the order they came, and buckets over it. An entry leaves only when its
 * place is needed, and `floor` then refuses all that is as old: so no short-lived token that leaves
 * early can shut out a long-lived one issued just before it.
 */
struct sbx_boxtoken_gate {
	bool any;
	int64_t highest_us, at_boot_ms, floor_us;
	uint32_t cap, n, at;
	uint32_t *bucket;
	struct used *ring;
};

struct sbx_boxtoken_gate *sbx_boxtoken_gate_new(size_t nonces)
{
	struct sbx_boxtoken_gate *g = calloc(1, sizeof(*g));

	if (!g || nonces == 0 || nonces >= NONE) {
		free(g);
		return NULL;
	}
	g->cap = (uint32_t)nonces;
	g->floor_us = -1;
	g->bucket = calloc(nonces, sizeof(*g->bucket));
	g->ring = calloc(nonces, sizeof(*g->ring));
	if (!g->bucket || !g->ring) {
		sbx_boxtoken_gate_free(g);
		return NULL;
	}
	memset(g->bucket, 0xff, nonces * sizeof(*g->bucket));
	return g;
}

void sbx_boxtoken_gate_free(struct sbx_boxtoken_gate *g)
{
	if (!g)
		return;
	free(g->bucket);
	free(g->ring);
	free(g);
}

/* Nonces carry a MAC and are random, so no peer can choose the bucket. */
static uint32_t *bucket_of(struct sbx_boxtoken_gate *g, const uint8_t nonce[16])
{
	return &g->bucket[sbx_get_be32(nonce) % g->cap];
}

static bool was_used(struct sbx_boxtoken_gate *g, const uint8_t nonce[16])
{
	for (uint32_t i = *bucket_of(g, nonce); i != NONE; i = g->ring[i].next) {
		if (memcmp(g->ring[i].nonce, nonce, sizeof(g->ring[i].nonce)) == 0)
			return true;
	}
	return false;
}

static void forget(struct sbx_boxtoken_gate *g, uint32_t i)
{
	uint32_t *link = bucket_of(g, g->ring[i].nonce);

	while (*link != i)
		link = &g->ring[*link].next;
	*link = g->ring[i].next;
	if (g->ring[i].issued_at_us > g->floor_us)
		g->floor_us = g->ring[i].issued_at_us;
}

static void remember(struct sbx_boxtoken_gate *g, const struct sbx_boxtoken *t)
{
	uint32_t *bucket, i = g->at;

	if (g->n == g->cap)
		forget(g, i);
	else
		g->n++;
	bucket = bucket_of(g, t->nonce);
	memcpy(g->ring[i].nonce, t->nonce, sizeof(t->nonce));
	g->ring[i].issued_at_us = t->issued_at_us;
	g->ring[i].next = *bucket;
	*bucket = i;
	g->at = (i + 1) % g->cap;
}

const char *sbx_boxtoken_gate_pass(struct sbx_boxtoken_gate *g, const struct sbx_boxtoken *t, int64_t boot_ms)
{
	if (g->any) {
		int64_t now_us = g->highest_us + (boot_ms - g->at_boot_ms) * 1000;

		if (t->issued_at_us + (int64_t)t->ttl_ms * 1000 < now_us)
			return "expired";
		if (t->issued_at_us <= g->floor_us)
			return "stale";
		if (was_used(g, t->nonce))
			return "used";
	}
	if (!g->any || t->issued_at_us > g->highest_us) {
		g->any = true;
		g->highest_us = t->issued_at_us;
		g->at_boot_ms = boot_ms;
	}
	remember(g, t);
	return NULL;
}
