/* What unit and it tests share: cmocka with the headers that it needs before it. */
#ifndef SBX_TEST_H
#define SBX_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h comes last: it uses what the others declare. */
#include <cmocka.h>

#include "sbx/buf.h"

#define TEST(fn) cmocka_unit_test(fn)
#define assert_buf(b, z) assert_string_equal(sbx_buf_z(b), (z))
/* A view equals a literal. */
#define assert_view(s, z) \
	do { \
		assert_int_equal((s).n, strlen(z)); \
		assert_memory_equal((s).p, (z), strlen(z)); \
	} while (0)

#endif
