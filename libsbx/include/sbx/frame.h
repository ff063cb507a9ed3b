/*
 * Framing between host and guest: type (1 byte), length (4 bytes, big endian), payload.
 * Both ends may be hostile to the other: the decoder takes any bytes in any pieces, never reads
 * past what it was given, and refuses a frame longer than its limit before it arrives.
 */
#ifndef SBX_FRAME_H
#define SBX_FRAME_H

#include "sbx/buf.h"

#define SBX_FRAME_HEAD 5u

struct sbx_frame {
	uint8_t type;
	struct sbx_str data; /* points into what was decoded */
};

void sbx_frame_add(struct sbx_buf *b, uint8_t type, const void *p, size_t n);
void sbx_frame_adds(struct sbx_buf *b, uint8_t type, struct sbx_str s);
void sbx_frame_addz(struct sbx_buf *b, uint8_t type, const char *z);
void sbx_frame_add_u64(struct sbx_buf *b, uint8_t type, uint64_t v);
/* Takes one frame off the front of *in: 1 taken, 0 more bytes are needed, -1 longer than max. */
int sbx_frame_take(struct sbx_str *in, size_t max_bytes, struct sbx_frame *ret);
/* The number in an 8-byte payload; false when it is not one. */
bool sbx_frame_u64(const struct sbx_frame *f, uint64_t *ret);
void sbx_put_be32(uint8_t *p, uint32_t v);
void sbx_put_be64(uint8_t *p, uint64_t v);
uint32_t sbx_get_be32(const uint8_t *p);
uint64_t sbx_get_be64(const uint8_t *p);

#endif
