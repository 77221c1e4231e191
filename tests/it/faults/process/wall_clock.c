/* Preloaded into a process: its wall clock jumps by an hour with every look, back and forth. */

#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long jump(void)
{
    static long looks;
    return (__atomic_fetch_add(&looks, 1, __ATOMIC_RELAXED) % 3 - 1) * 3600;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += jump();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise))
        return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec precise;
    if (clock_gettime(CLOCK_REALTIME, &precise))
        return -1;
    if (now)
        *now = precise.tv_sec;
    return precise.tv_sec;
}
