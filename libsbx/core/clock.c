#include "sbx/clock.h"

#include <limits.h>
#include <stdio.h>
#include <time.h>

static int64_t now_us(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t sbx_mono_ms(void)
{
	return now_us(CLOCK_MONOTONIC) / 1000;
}

int64_t sbx_mono_us(void)
{
	return now_us(CLOCK_MONOTONIC);
}

int64_t sbx_boot_ms(void)
{
	return now_us(CLOCK_BOOTTIME) / 1000;
}

int64_t sbx_wall_us(void)
{
	return now_us(CLOCK_REALTIME);
}

void sbx_rfc3339(int64_t wall_us, char z[SBX_RFC3339_SIZE])
{
	int64_t s = wall_us / 1000000, us = wall_us % 1000000;
	struct tm tm;
	time_t t;

	if (us < 0) {
		us += 1000000;
		s--;
	}
	t = (time_t)s;
	gmtime_r(&t, &tm);
	snprintf(z, SBX_RFC3339_SIZE, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", (tm.tm_year + 1900) % 10000,
		tm.tm_mon % 12 + 1, tm.tm_mday % 100, tm.tm_hour % 100, tm.tm_min % 100, tm.tm_sec % 100,
		(int)(us / 1000));
}

int sbx_ms_left(int64_t deadline_ms)
{
	int64_t left = deadline_ms - sbx_mono_ms();

	if (left <= 0)
		return 0;
	return left > INT_MAX ? INT_MAX : (int)left;
}
