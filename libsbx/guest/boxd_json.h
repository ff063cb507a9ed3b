/*
 * Just enough JSON to read the config drive: views into the text, nothing is copied or allocated. Not
 * cJSON, because boxd is static (Debian has no archive of it): it then needs no file of the box's root,
 * starts in a third of the time, and a user who breaks /usr/lib does not keep it from starting again.
 * A value is its text as it stands ("12", "\"x\"", "{…}").
 */
#ifndef SBX_BOXD_JSON_H
#define SBX_BOXD_JSON_H

#include "sbx/str.h"

/* The text is one object, whole and well-formed; the functions below rely on it. */
bool json_is_object(struct sbx_str text);
/* The member's value; false when there is none, or object is not one. The first of equal names counts. */
bool json_member(struct sbx_str object, const char *key, struct sbx_str *ret);
/* Takes the next value off an array, which starts as a whole array; false at its end. */
bool json_item(struct sbx_str *array, struct sbx_str *ret);
/* A string's content; false when the value is no string, or one with escapes: nothing of ours has any. */
bool json_string(struct sbx_str value, struct sbx_str *ret);

#endif
