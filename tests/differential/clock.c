/* Preloaded into a server: its wall clock is the system's, or stands still.
 *
 * The file that TEST_CLOCK names is mapped, so that a change counts from the
 * next look on. Its first eight bytes are the time at which the clock stands
 * still, in microseconds since 1970; 0 if it goes. Then the monotonic clock
 * stands still, too, at what the last eight bytes say.
 * But who asks it again and again, and nothing else, waits for time to pass.
 * Some servers add what it says to what the wall clock said a moment ago. Where
 * they take it from the processor instead, they have looked into a file whether
 * they can: they do not find that here.
 * The system is asked by its number: looking the real functions up takes
 * memory, and an allocator may ask for the time before it has any. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *setting;

/* How often the monotonic clock was asked since the other one was. */
static _Thread_local int64_t asked;
enum { PATIENCE = 100000 };

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
    asked = 0;
    if (setting && setting[0]) return setting[0] * 1000;
    struct timespec real;
    syscall(SYS_clock_gettime, clock, &real);
    return real.tv_sec * 1000000000LL + real.tv_nsec;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    if (clock == CLOCK_MONOTONIC && setting && setting[0]) {
        int64_t waits = ++asked > PATIENCE ? asked - PATIENCE : 0;
        int64_t micros = setting[1] + waits;
        out->tv_sec = micros / 1000000;
        out->tv_nsec = micros % 1000000 * 1000;
        return 0;
    }
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

static FILE *open_other(const char *function, const char *path, const char *mode) {
    if (setting && strcmp(path, "/proc/cpuinfo") == 0) {
        errno = ENOENT;
        return NULL;
    }
    FILE *(*real)(const char *, const char *) = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, function);
    return real(path, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode) {
    return open_other("fopen", path, mode);
}

FILE *fopen64(const char *restrict path, const char *restrict mode) {
    return open_other("fopen64", path, mode);
}
