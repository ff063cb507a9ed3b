/*
 * Attributes and macros that every other file uses. libc only; linked by host and guest.
 *
 * sbx_auto(T) declares a variable that is released at the end of its scope by sbx_T_auto();
 * it must be initialised where it is declared. SBX_STEAL(p) gives the value up.
 */
#ifndef SBX_BASE_H
#define SBX_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SBX_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define SBX_MUST_CHECK __attribute__((warn_unused_result))
#define SBX_NORETURN __attribute__((noreturn))
#define SBX_CLEANUP(fn) __attribute__((cleanup(fn)))
#define SBX_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define SBX_STEAL(p) \
	__extension__({ \
		__typeof__(p) stolen_ = (p); \
		(p) = NULL; \
		stolen_; \
	})

/* free() and close() for SBX_CLEANUP: both accept what was never opened (NULL, -1). */
void sbx_free_auto(void *pp);
void sbx_close_auto(int *fd);
#define sbx_auto_free SBX_CLEANUP(sbx_free_auto)
#define sbx_auto_close SBX_CLEANUP(sbx_close_auto)

/* For programming errors only, always on: one log line, then abort(). Never for input, I/O or memory. */
#define SBX_ASSERT(x) ((x) ? (void)0 : sbx_assert_failed(#x, __FILE__, __LINE__))
#define SBX_UNREACHABLE() sbx_assert_failed("unreachable", __FILE__, __LINE__)
void sbx_assert_failed(const char *what, const char *file, int line) SBX_NORETURN;

#endif
