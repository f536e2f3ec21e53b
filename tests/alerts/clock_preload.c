/*
 * Preloaded into a program, this library lets its clock of the day be a minute ahead for as long as
 * the file $CLOCK_IS_AHEAD_WHILE_THERE_IS is there. Its other clocks stay as they are.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define AHEAD_SECONDS 60

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    const char *file = getenv("CLOCK_IS_AHEAD_WHILE_THERE_IS");
    int result;

    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    result = real(clock, now);
    if (!result && clock == CLOCK_REALTIME && file && access(file, F_OK) == 0)
        now->tv_sec += AHEAD_SECONDS;
    return result;
}
