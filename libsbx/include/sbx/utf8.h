/*
 * UTF-8 as RFC 3629 has it: no surrogates, no overlong forms, nothing above U+10FFFF.
 */
#ifndef SBX_UTF8_H
#define SBX_UTF8_H

#include "sbx/str.h"

/*
 * Length of the well-formed sequence at s.p (1 to 4), 0 when s starts with an ill-formed one, and
 * -1 when s ends inside a sequence that could still become well-formed.
 */
int sbx_utf8_next(struct sbx_str s);
bool sbx_utf8_valid(struct sbx_str s);
/* The longest prefix of at most max bytes that does not end inside a well-formed sequence. */
struct sbx_str sbx_utf8_cut(struct sbx_str s, size_t max_bytes);

#endif
