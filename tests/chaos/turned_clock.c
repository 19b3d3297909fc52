/* Preloaded into a process, it turns its wall clock by TURNED_S seconds. Sleeps and deadlines are not concerned.
   libfaketime breaks them: with it, clock_nanosleep of Python 3.11 fails. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long turned(void)
{
    const char *seconds = getenv("TURNED_S");
    return seconds == NULL ? 0 : atol(seconds);
}

int clock_gettime(clockid_t id, struct timespec *at)
{
    int failed = (int)syscall(SYS_clock_gettime, id, at);
    if (!failed && id == CLOCK_REALTIME)
        at->tv_sec += turned();
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    int failed = (int)syscall(SYS_gettimeofday, at, zone);
    if (!failed)
        at->tv_sec += turned();
    return failed;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at != NULL)
        *at = now.tv_sec;
    return now.tv_sec;
}
