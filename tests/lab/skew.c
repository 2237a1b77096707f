/* A host whose wall clock is off: named in its /etc/ld.so.preload, so that each of its processes (PID 1, journald,
 * date) sees now + the seconds in /etc/lab-skew, a little-endian int64 that is mapped: a write is a live jump. Only
 * CLOCK_REALTIME moves, as with a wrong clock. (libfaketime kills systemd and journald.)
 *
 *   gcc -shared -fPIC -O1 -Wall -o skew.so skew.c
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long long none, *offset = &none;

__attribute__((constructor)) static void map_offset(void) {
    int file = open("/etc/lab-skew", O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    if (lseek(file, 0, SEEK_END) >= (off_t)sizeof *offset) {
        void *mapped = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
        if (mapped != MAP_FAILED) offset = mapped;
    }
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    int failed = syscall(SYS_clock_gettime, clock, out);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) out->tv_sec += *offset;
    return failed;
}

int gettimeofday(struct timeval *out, void *zone) {
    int failed = syscall(SYS_gettimeofday, out, zone);
    if (!failed) out->tv_sec += *offset;
    return failed;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
