/*
 * Catalogues of tools. One row describes one tool; its input schema, the decoder of its arguments, its
 * output schema, `tools/list` and the documentation page all derive from the row.
 *
 * To add a tool: a struct for its arguments, rows for its inputs and outputs and a handler in
 * tool/tool_<group>.c, and a line in tool/tools.def. A tool belongs to one catalogue: another catalogue
 * may have a tool of the same name with other arguments.
 */
#ifndef SBX_TOOL_H
#define SBX_TOOL_H

#include "sbx/call.h"
#include "sbx/schema.h"

enum sbx_tool_flags {
	SBX_TOOL_READ_ONLY = 1,
	SBX_TOOL_DESTRUCTIVE = 2,
	SBX_TOOL_IDEMPOTENT = 4,
	SBX_TOOL_OPEN_WORLD = 8,
};

struct sbx_tool {
	const char *name, *title, *description;
	struct sbx_fields in;
	struct sbx_fields out; /* rows NULL: no outputSchema */
	unsigned flags;
	/* Writes the members of the result object into out, which is inside the object. */
	enum sbx_step (*run)(struct sbx_call *call, const void *args, struct sbx_jw *out, struct sbx_err *err);
};

struct sbx_catalogue {
	const char *name, *title, *instructions;
	const struct sbx_tool *const *tools; /* in the order of tools/list */
	size_t n;
};

extern const struct sbx_catalogue sbx_catalogue_box;

const struct sbx_tool *sbx_tool_find(const struct sbx_catalogue *c, struct sbx_str name);
/* The `tools` array of tools/list, as a value of w. */
void sbx_tool_list(const struct sbx_catalogue *c, struct sbx_jw *w, const char *key);
/* The documentation page, Markdown. */
void sbx_tool_page(const struct sbx_catalogue *c, struct sbx_buf *b);
/*
 * Decodes arguments (an object, or NULL for none) and runs the tool. Wrong arguments are
 * SBX_E_INVALID with a text that a model can act on.
 */
enum sbx_step sbx_tool_call(const struct sbx_tool *t, struct sbx_call *call, const struct cJSON *arguments,
	struct sbx_jw *out, struct sbx_err *err);

#endif
