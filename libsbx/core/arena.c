#include "sbx/arena.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Blocks in a list, newest first; the first block is kept over a reset. With AddressSanitizer every
 * allocation gets a block of its own, so that it sees reads past the end.
 */
struct block {
	struct block *next;
	size_t used, size;
	alignas(max_align_t) char data[];
};

struct deferred {
	struct deferred *next;
	void (*fn)(void *);
	void *ptr;
};

struct sbx_arena {
	struct block *blocks;
	struct deferred *deferred;
	size_t used, limit;
};

#ifdef __SANITIZE_ADDRESS__
#define BLOCK_MIN ((size_t)0)
#else
#define BLOCK_MIN ((size_t)4096 - sizeof(struct block))
#endif

struct sbx_arena *sbx_arena_new(size_t limit_bytes)
{
	struct sbx_arena *a = calloc(1, sizeof(*a));

	if (a)
		a->limit = limit_bytes;
	return a;
}

static struct block *block_new(struct sbx_arena *a, size_t n)
{
	size_t size = n > BLOCK_MIN ? n : BLOCK_MIN;
	struct block *b = malloc(sizeof(*b) + size);

	if (!b)
		return NULL;
	*b = (struct block){ .next = a->blocks, .size = size };
	a->blocks = b;
	return b;
}

void *sbx_arena_alloc(struct sbx_arena *a, size_t n)
{
	const size_t align = alignof(max_align_t);
	struct block *b = a->blocks;
	void *p;

	if (n > a->limit)
		return NULL;
	n = n ? (n + align - 1) / align * align : align;
	if (n > a->limit - a->used)
		return NULL;
	if (!b || b->size - b->used < n)
		b = block_new(a, n);
	if (!b)
		return NULL;
	p = b->data + b->used;
	b->used += n;
	a->used += n;
	return memset(p, 0, n);
}

void *sbx_arena_calloc(struct sbx_arena *a, size_t count, size_t size)
{
	size_t n;

	if (__builtin_mul_overflow(count, size, &n))
		return NULL;
	return sbx_arena_alloc(a, n);
}

const char *sbx_arena_dup(struct sbx_arena *a, struct sbx_str s)
{
	char *p = s.n < SIZE_MAX ? sbx_arena_alloc(a, s.n + 1) : NULL;

	if (p && s.n)
		memcpy(p, s.p, s.n);
	return p;
}

const char *sbx_arena_dupz(struct sbx_arena *a, const char *z)
{
	return z ? sbx_arena_dup(a, sbx_str_of(z)) : NULL;
}

const char *sbx_arena_printf(struct sbx_arena *a, const char *fmt, ...)
{
	va_list ap;
	char *p;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return NULL;
	p = sbx_arena_alloc(a, (size_t)n + 1);
	if (!p)
		return NULL;
	va_start(ap, fmt);
	vsnprintf(p, (size_t)n + 1, fmt, ap);
	va_end(ap);
	return p;
}

int sbx_arena_defer(struct sbx_arena *a, void (*fn)(void *), void *ptr)
{
	struct deferred *d = sbx_arena_alloc(a, sizeof(*d));

	if (!d) {
		fn(ptr);
		return -1;
	}
	*d = (struct deferred){ a->deferred, fn, ptr };
	a->deferred = d;
	return 0;
}

static void run_deferred(struct sbx_arena *a)
{
	while (a->deferred) {
		struct deferred *d = a->deferred;

		a->deferred = d->next;
		d->fn(d->ptr);
	}
}

void sbx_arena_reset(struct sbx_arena *a)
{
	run_deferred(a);
	while (a->blocks && (a->blocks->next || a->blocks->size > BLOCK_MIN)) {
		struct block *b = a->blocks;

		a->blocks = b->next;
		free(b);
	}
	if (a->blocks)
		a->blocks->used = 0;
	a->used = 0;
}

void sbx_arena_free(struct sbx_arena *a)
{
	if (!a)
		return;
	sbx_arena_reset(a);
	free(a->blocks);
	free(a);
}

size_t sbx_arena_used(const struct sbx_arena *a)
{
	return a->used;
}
