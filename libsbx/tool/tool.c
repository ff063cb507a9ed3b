#include "sbx/tool.h"

#include <cjson/cJSON.h>

#define X(symbol) extern const struct sbx_tool sbx_tool_##symbol;
#include "tool/tools.def"
#undef X

static const struct sbx_tool *const box_tools[] = {
#define X(symbol) &sbx_tool_##symbol,
#include "tool/tools.def"
#undef X
};

const struct sbx_catalogue sbx_catalogue_box = {
	.name = "sbx",
	.title = "sbx: disposable Linux machines",
	.instructions = "Each box is a Linux machine of its own, with root, a display and a network. Start one with "
			"sandbox_start, run commands with sandbox_exec, stop it with sandbox_stop when you are done. "
			"Long commands: background true, then sandbox_result. If a connection breaks, sandbox_result "
			"with the execId gives what was missed.",
	.tools = box_tools,
	.n = SBX_ARRAY_LEN(box_tools),
};

const struct sbx_tool *sbx_tool_find(const struct sbx_catalogue *c, struct sbx_str name)
{
	for (size_t i = 0; i < c->n; i++)
		if (sbx_str_eqz(name, c->tools[i]->name))
			return c->tools[i];
	return NULL;
}

void sbx_tool_list(const struct sbx_catalogue *c, struct sbx_jw *w, const char *key)
{
	sbx_jw_arr(w, key);
	for (size_t i = 0; i < c->n; i++) {
		const struct sbx_tool *t = c->tools[i];

		sbx_jw_obj(w, NULL);
		sbx_jw_z(w, "name", t->name);
		sbx_jw_z(w, "title", t->title);
		sbx_jw_z(w, "description", t->description);
		sbx_schema_write(w, "inputSchema", &t->in);
		if (t->out.rows)
			sbx_schema_write(w, "outputSchema", &t->out);
		sbx_jw_obj(w, "annotations");
		sbx_jw_bool(w, "readOnlyHint", t->flags & SBX_TOOL_READ_ONLY);
		sbx_jw_bool(w, "destructiveHint", t->flags & SBX_TOOL_DESTRUCTIVE);
		sbx_jw_bool(w, "idempotentHint", t->flags & SBX_TOOL_IDEMPOTENT);
		sbx_jw_bool(w, "openWorldHint", t->flags & SBX_TOOL_OPEN_WORLD);
		sbx_jw_end(w);
		sbx_jw_end(w);
	}
	sbx_jw_end(w);
}

static const char *const type_words[] = {
	[SBX_T_STR] = "string",
	[SBX_T_INT] = "integer",
	[SBX_T_BOOL] = "boolean",
	[SBX_T_STRS] = "array of strings",
	[SBX_T_OBJS] = "array of objects",
	[SBX_T_OBJ] = "object",
};

static void page_fields(struct sbx_buf *b, const struct sbx_fields *f, int indent)
{
	for (size_t i = 0; i < f->n; i++) {
		const struct sbx_field *r = &f->rows[i];

		sbx_buf_addf(b, "%*s- `%s` (%s%s%s)", indent, "", r->name, type_words[r->type],
			f->size && !r->required ? ", optional" : "", r->nullable ? " or null" : "");
		if (r->help)
			sbx_buf_addf(b, ": %s", r->help);
		sbx_buf_addc(b, '\n');
		if (r->items)
			page_fields(b, r->items, indent + 2);
	}
}

void sbx_tool_page(const struct sbx_catalogue *c, struct sbx_buf *b)
{
	sbx_buf_addf(b, "# %s\n\n%s\n", c->title, c->instructions);
	for (size_t i = 0; i < c->n; i++) {
		const struct sbx_tool *t = c->tools[i];

		sbx_buf_addf(b, "\n## %s\n\n%s\n\nInputs:\n", t->name, t->description);
		page_fields(b, &t->in, 0);
		if (t->in.n == 0)
			sbx_buf_addz(b, "- none\n");
		sbx_buf_addz(b, "\nOutput:\n");
		page_fields(b, &t->out, 0);
	}
}

enum sbx_step sbx_tool_call(const struct sbx_tool *t, struct sbx_call *call, const struct cJSON *arguments,
	struct sbx_jw *out, struct sbx_err *err)
{
	void *args = sbx_arena_alloc(call->arena, t->in.size ? t->in.size : 1);
	cJSON none = { .type = cJSON_Object };

	if (!args) {
		SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
		return SBX_FAILED;
	}
	if (sbx_schema_decode(call->arena, arguments ? arguments : &none, &t->in, args, err) < 0)
		return SBX_FAILED;
	if (call->who.scope == SBX_SCOPE_READ && !(t->flags & SBX_TOOL_READ_ONLY)) {
		SBX_FAIL(err, SBX_E_FORBIDDEN, "This key may only read; %s needs a key with scope agent or full.",
			t->name);
		return SBX_FAILED;
	}
	return t->run(call, args, out, err);
}
