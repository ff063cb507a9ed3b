#include "sbx/frame.h"

#include <string.h>

void sbx_put_be32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (24 - 8 * i));
}

void sbx_put_be64(uint8_t *p, uint64_t v)
{
	sbx_put_be32(p, (uint32_t)(v >> 32));
	sbx_put_be32(p + 4, (uint32_t)v);
}

uint32_t sbx_get_be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

uint64_t sbx_get_be64(const uint8_t *p)
{
	return (uint64_t)sbx_get_be32(p) << 32 | sbx_get_be32(p + 4);
}

void sbx_frame_add(struct sbx_buf *b, uint8_t type, const void *p, size_t n)
{
	uint8_t head[SBX_FRAME_HEAD] = { type };

	if (n > UINT32_MAX) {
		b->failed = true;
		return;
	}
	sbx_put_be32(head + 1, (uint32_t)n);
	sbx_buf_add(b, head, sizeof(head));
	sbx_buf_add(b, p, n);
}

void sbx_frame_adds(struct sbx_buf *b, uint8_t type, struct sbx_str s)
{
	sbx_frame_add(b, type, s.p, s.n);
}

void sbx_frame_addz(struct sbx_buf *b, uint8_t type, const char *z)
{
	sbx_frame_add(b, type, z, strlen(z));
}

void sbx_frame_add_u64(struct sbx_buf *b, uint8_t type, uint64_t v)
{
	uint8_t be[8];

	sbx_put_be64(be, v);
	sbx_frame_add(b, type, be, sizeof(be));
}

int sbx_frame_take(struct sbx_str *in, size_t max_bytes, struct sbx_frame *ret)
{
	size_t n;

	if (in->n < SBX_FRAME_HEAD)
		return 0;
	n = sbx_get_be32((const uint8_t *)in->p + 1);
	if (n > max_bytes)
		return -1;
	if (in->n - SBX_FRAME_HEAD < n)
		return 0;
	*ret = (struct sbx_frame){ (uint8_t)in->p[0], { in->p + SBX_FRAME_HEAD, n } };
	in->p += SBX_FRAME_HEAD + n;
	in->n -= SBX_FRAME_HEAD + n;
	return 1;
}

bool sbx_frame_u64(const struct sbx_frame *f, uint64_t *ret)
{
	if (f->data.n != 8)
		return false;
	*ret = sbx_get_be64((const uint8_t *)f->data.p);
	return true;
}
