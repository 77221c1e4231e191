/* Preloaded into a server: its wall clock is the system's plus an offset, or
 * stands still.
 *
 * The file that TEST_CLOCK names is mapped, so that a change counts from the
 * next look on. Its first eight bytes are the offset, in microseconds. The next
 * eight are the time at which the clock stands still, since 1970; 0 if it goes.
 * The system is asked by its number: looking the real functions up takes
 * memory, and an allocator may ask for the time before it has any. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *setting;

__attribute__((constructor)) static void open_clock(void) {
    const char *path = getenv("TEST_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *map = mmap(NULL, 2 * sizeof *setting, PROT_READ, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) setting = map;
    close(file);
}

/* Nanoseconds since 1970. */
static int64_t now(clockid_t clock) {
    if (setting && setting[1]) return setting[1] * 1000;
    struct timespec real;
    syscall(SYS_clock_gettime, clock, &real);
    return real.tv_sec * 1000000000LL + real.tv_nsec + (setting ? setting[0] * 1000 : 0);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
        return (int)syscall(SYS_clock_gettime, clock, out);
    int64_t nanos = now(clock);
    out->tv_sec = nanos / 1000000000;
    out->tv_nsec = nanos % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    (void)zone;
    int64_t micros = now(CLOCK_REALTIME) / 1000;
    out->tv_sec = micros / 1000000;
    out->tv_usec = micros % 1000000;
    return 0;
}

time_t time(time_t *out) {
    time_t seconds = now(CLOCK_REALTIME) / 1000000000;
    if (out) *out = seconds;
    return seconds;
}
