#include "sbx/boxwire.h"

enum { FLAG_RUNNING = 1, FLAG_TIMED_OUT = 2, FLAG_TRUNCATED = 4, FLAGS_ALL = 7 };

void sbx_wire_end_add(struct sbx_buf *b, const struct sbx_wire_end *e)
{
	uint8_t p[SBX_WIRE_END_SIZE];

	sbx_put_be32(p, e->exit_code);
	sbx_put_be32(p + 4,
		(e->running ? FLAG_RUNNING : 0u) | (e->timed_out ? FLAG_TIMED_OUT : 0u) |
			(e->truncated ? FLAG_TRUNCATED : 0u));
	sbx_put_be64(p + 8, e->duration_ms);
	sbx_put_be64(p + 16, e->out_bytes);
	sbx_put_be64(p + 24, e->err_bytes);
	sbx_frame_add(b, SBX_WIRE_END, p, sizeof(p));
}

bool sbx_wire_end_read(const struct sbx_frame *f, struct sbx_wire_end *ret)
{
	const uint8_t *p = (const uint8_t *)f->data.p;
	uint32_t flags;

	if (f->type != SBX_WIRE_END || f->data.n != SBX_WIRE_END_SIZE)
		return false;
	flags = sbx_get_be32(p + 4);
	if (sbx_get_be32(p) > 255 || flags & ~(uint32_t)FLAGS_ALL)
		return false;
	*ret = (struct sbx_wire_end){
		.exit_code = sbx_get_be32(p),
		.running = flags & FLAG_RUNNING,
		.timed_out = flags & FLAG_TIMED_OUT,
		.truncated = flags & FLAG_TRUNCATED,
		.duration_ms = sbx_get_be64(p + 8),
		.out_bytes = sbx_get_be64(p + 16),
		.err_bytes = sbx_get_be64(p + 24),
	};
	return true;
}

bool sbx_exec_id_ok(struct sbx_str id)
{
	if (id.n != SBX_EXEC_ID_LEN)
		return false;
	for (size_t i = 0; i < id.n; i++) {
		char c = id.p[i];

		if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
			return false;
	}
	return true;
}
