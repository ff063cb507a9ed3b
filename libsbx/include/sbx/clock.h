/*
 * Clocks. Deadlines are monotonic milliseconds; wall time is microseconds since 1970 and is for
 * records only, never for waiting.
 */
#ifndef SBX_CLOCK_H
#define SBX_CLOCK_H

#include "sbx/base.h"

int64_t sbx_mono_ms(void);
int64_t sbx_mono_us(void);
int64_t sbx_boot_ms(void); /* CLOCK_BOOTTIME: runs on while suspended */
int64_t sbx_wall_us(void);
#define SBX_RFC3339_SIZE 32
/* "2026-11-30T23:01:14.123Z" (RFC 3339) into z. */
void sbx_rfc3339(int64_t wall_us, char z[SBX_RFC3339_SIZE]);
/* Milliseconds from now to a deadline for poll(): 0 when past, at most INT_MAX. */
int sbx_ms_left(int64_t deadline_ms);

#endif
