/*
 * Region allocator: everything of one call lives in one arena and dies with it. `limit` bounds what
 * one call may take, which makes it the memory bound against hostile input.
 * Foreign handles that must die with the arena are registered with sbx_arena_defer().
 * One thread at a time. Under AddressSanitizer each allocation is its own malloc.
 */
#ifndef SBX_ARENA_H
#define SBX_ARENA_H

#include "sbx/err.h"
#include "sbx/str.h"

struct sbx_arena;

struct sbx_arena *sbx_arena_new(size_t limit_bytes); /* NULL: out of memory */
void sbx_arena_free(struct sbx_arena *a);            /* runs deferred calls, last first; NULL ok */
void sbx_arena_reset(struct sbx_arena *a);           /* same, then usable again */

/* Zeroed memory aligned for any type, or NULL over the limit or out of memory. */
void *sbx_arena_alloc(struct sbx_arena *a, size_t n);
#define sbx_arena_new_array(a, type, count) ((type *)sbx_arena_calloc((a), (count), sizeof(type)))
void *sbx_arena_calloc(struct sbx_arena *a, size_t count, size_t size);
const char *sbx_arena_dup(struct sbx_arena *a, struct sbx_str s); /* NUL added */
const char *sbx_arena_dupz(struct sbx_arena *a, const char *z);   /* NULL stays NULL */
const char *sbx_arena_printf(struct sbx_arena *a, const char *fmt, ...) SBX_PRINTF(2, 3);
/* Runs fn(ptr) when the arena is reset or freed. -1 (fn was run at once) when there is no room. */
int sbx_arena_defer(struct sbx_arena *a, void (*fn)(void *), void *ptr) SBX_MUST_CHECK;
size_t sbx_arena_used(const struct sbx_arena *a);

#endif
