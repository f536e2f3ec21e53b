/*
 * Preloaded into a program, this library lets the log of the kernel ($KMSG, a pipe) do what cannot
 * be asked of a real one: a read that finds "!overrun\n" in front fails with EPIPE, as that of
 * /dev/kmsg does after records were overwritten, and with $KMSG_REFUSED set it cannot be opened,
 * as without CAP_SYSLOG. The kernel's settings are not there, as in a kernel without them: so it
 * reports all kinds, whatever is set on this machine. Everything else goes on to the C library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char overrun[] = "!overrun\n";
static int log_descriptor = -1;
static char held[65536];
static size_t held_bytes;

static const char *const settings[] = {"/proc/sys/kernel/", "/sys/module/rcupdate/parameters/"};

static int is_setting(const char *path)
{
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (strncmp(path, settings[i], strlen(settings[i])) == 0)
            return 1;
    return 0;
}

static int opened(const char *path, int descriptor)
{
    const char *kmsg = getenv("KMSG");

    if (descriptor >= 0 && kmsg && strcmp(path, kmsg) == 0) {
        log_descriptor = descriptor;
        held_bytes = 0;
    }
    return descriptor;
}

static int is_refused(const char *path)
{
    const char *kmsg = getenv("KMSG");

    return kmsg && getenv("KMSG_REFUSED") && strcmp(path, kmsg) == 0;
}

#define OPEN(name)                                                               \
    int name(const char *path, int flags, ...)                                   \
    {                                                                            \
        int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \
        va_list rest;                                                            \
        mode_t mode;                                                             \
                                                                                 \
        va_start(rest, flags);                                                   \
        mode = va_arg(rest, mode_t);                                             \
        va_end(rest);                                                            \
        if (is_refused(path)) {                                                  \
            errno = EPERM;                                                       \
            return -1;                                                           \
        }                                                                        \
        if (is_setting(path)) {                                                  \
            errno = ENOENT;                                                      \
            return -1;                                                           \
        }                                                                        \
        return opened(path, real(path, flags, mode));                            \
    }

OPEN(open)
OPEN(open64)

/* What is held is as much as was read; up to a mark it is given out, then the mark is an error. */
ssize_t read(int descriptor, void *buffer, size_t size)
{
    static ssize_t (*real)(int, void *, size_t);
    const char *mark;
    size_t bytes;

    if (!real)
        real = (ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    if (descriptor != log_descriptor || log_descriptor < 0)
        return real(descriptor, buffer, size);
    if (!held_bytes) {
        ssize_t got = real(descriptor, held, sizeof held - 1);

        if (got <= 0)
            return got;
        held_bytes = (size_t)got;
    }
    held[held_bytes] = '\0';
    mark = strstr(held, overrun);
    if (mark == held) {
        held_bytes -= strlen(overrun);
        memmove(held, held + strlen(overrun), held_bytes);
        errno = EPIPE;
        return -1;
    }
    bytes = mark ? (size_t)(mark - held) : held_bytes;
    if (bytes > size)
        bytes = size;
    memcpy(buffer, held, bytes);
    held_bytes -= bytes;
    memmove(held, held + bytes, held_bytes);
    return (ssize_t)bytes;
}
