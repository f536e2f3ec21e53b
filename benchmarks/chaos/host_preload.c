/*
 * Preloaded into a program, this library gives it a host of its own that can lose power, whose clock
 * can be set, and whose disk is slow or read-only.
 *
 * While the directory $HOST_SYNCED is there, it has what is synced of the files in the directory
 * $HOST_STATE: the content of NAME at its last fsync or fdatasync is NAME. A rename counts once its
 * directory is synced. Until then the synced content is .pending.NAME, and both names are as they
 * were before. A removed file is gone at once: a sync of any other file writes that, too. What is
 * not there would not be on the disk. A copy that is not whole is .draft.NAME.
 *
 * The file $HOST_CONTROL is a struct control. Other clocks than that of the day stay as they are.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PENDING ".pending."
#define DRAFT ".draft."
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

struct control {
    int64_t ahead_ms;     /* how far the clock of the day is ahead */
    int64_t sync_ms;      /* how long each fsync and fdatasync takes besides */
    int64_t is_read_only; /* whether nothing in $HOST_STATE can be changed */
};

static const struct control *control;

static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;

static const char *synced_directory(void)
{
    const char *directory = getenv("HOST_SYNCED");

    return directory && access(directory, F_OK) == 0 ? directory : NULL;
}

/* The name of a file in $HOST_STATE itself, or NULL. */
static const char *name_in_state(const char *path)
{
    const char *state = getenv("HOST_STATE");
    size_t length = state ? strlen(state) : 0;

    if (!length || strncmp(path, state, length) || path[length] != '/')
        return NULL;
    return strchr(path + length + 1, '/') ? NULL : path + length + 1;
}

static void place(char *to, const char *directory, const char *mark, const char *name)
{
    snprintf(to, PATH_MAX, "%s/%s%s", directory, mark, name);
}

static void copy(int from, const char *directory, const char *name)
{
    char draft[PATH_MAX], to[PATH_MAX], buffer[65536];
    off_t at = 0;
    ssize_t bytes;
    int descriptor;

    place(draft, directory, DRAFT, name);
    place(to, directory, "", name);
    descriptor = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (descriptor < 0)
        abort();
    while ((bytes = pread(from, buffer, sizeof buffer, at)) > 0) {
        if (write(descriptor, buffer, (size_t)bytes) != bytes)
            abort();
        at += bytes;
    }
    close(descriptor);
    if (bytes < 0 || REAL(rename)(draft, to))
        abort();
}

/* What a sync of $HOST_STATE itself writes: the names that are in it, and no others. */
static void keep_names(const char *directory, const char *state)
{
    DIR *listing = opendir(directory);
    struct dirent *entry;
    char path[PATH_MAX], other[PATH_MAX];

    if (!listing)
        abort();
    while ((entry = readdir(listing))) {
        int is_pending = !strncmp(entry->d_name, PENDING, strlen(PENDING));
        const char *name = entry->d_name + (is_pending ? strlen(PENDING) : 0);

        if (!strcmp(name, ".") || !strcmp(name, ".."))
            continue;
        place(path, directory, "", entry->d_name);
        place(other, state, "", name);
        if (access(other, F_OK)) {
            REAL(unlink)(path);
        } else if (is_pending) {
            place(other, directory, "", name);
            if (REAL(rename)(path, other))
                abort();
        }
    }
    closedir(listing);
}

static void keep(int descriptor)
{
    const char *directory = synced_directory(), *state = getenv("HOST_STATE"), *name;
    char link[64], path[PATH_MAX], pending[PATH_MAX];
    struct stat status;
    ssize_t length;
    int readable;

    if (!directory || !state || fstat(descriptor, &status) || !status.st_nlink)
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        abort();
    path[length] = '\0';
    if (S_ISDIR(status.st_mode)) {
        if (!strcmp(path, state))
            keep_names(directory, state);
        return;
    }
    name = name_in_state(path);
    if (!name || !S_ISREG(status.st_mode))
        return;
    place(pending, directory, PENDING, name);
    REAL(unlink)(pending);
    if ((fcntl(descriptor, F_GETFL) & O_ACCMODE) != O_WRONLY) {
        /* Closing another descriptor of a database would release the locks of this process. */
        copy(descriptor, directory, name);
        return;
    }
    readable = open(link, O_RDONLY | O_CLOEXEC);
    if (readable < 0)
        abort();
    copy(readable, directory, name);
    close(readable);
}

static int refuses_path(const char *path)
{
    const char *state = getenv("HOST_STATE");
    size_t length = state ? strlen(state) : 0;

    if (!control || !control->is_read_only || !length)
        return 0;
    if (strncmp(path, state, length) || path[length] != '/')
        return 0;
    errno = EROFS;
    return 1;
}

static int refuses(int descriptor)
{
    char link[64], path[PATH_MAX];
    ssize_t length;

    if (!control || !control->is_read_only)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = '\0';
    return refuses_path(path);
}

ssize_t write(int descriptor, const void *bytes, size_t length)
{
    return refuses(descriptor) ? -1 : REAL(write)(descriptor, bytes, length);
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t length, off64_t at)
{
    return refuses(descriptor) ? -1 : REAL(pwrite64)(descriptor, bytes, length, at);
}

int ftruncate64(int descriptor, off64_t length)
{
    return refuses(descriptor) ? -1 : REAL(ftruncate64)(descriptor, length);
}

int open64(const char *path, int flags, ...)
{
    va_list rest;
    mode_t mode;

    va_start(rest, flags);
    /* O_TMPFILE has the bit of O_DIRECTORY. */
    mode = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC) && refuses_path(path))
        return -1;
    return REAL(open64)(path, flags, mode);
}

static void sync_slowly(void)
{
    if (control && control->sync_ms)
        usleep((useconds_t)control->sync_ms * 1000);
}

static int kept(int result, int descriptor)
{
    if (result == 0) {
        pthread_mutex_lock(&keeping);
        keep(descriptor);
        pthread_mutex_unlock(&keeping);
    }
    return result;
}

int fsync(int descriptor)
{
    sync_slowly();
    return kept(REAL(fsync)(descriptor), descriptor);
}

int fdatasync(int descriptor)
{
    sync_slowly();
    return kept(REAL(fdatasync)(descriptor), descriptor);
}

int rename(const char *old, const char *new)
{
    const char *directory = synced_directory();
    const char *from = name_in_state(old), *to = name_in_state(new);
    char synced[PATH_MAX], pending[PATH_MAX];
    int result;

    if (refuses_path(new))
        return -1;
    if (!directory || !from || !to)
        return REAL(rename)(old, new);
    pthread_mutex_lock(&keeping);
    result = REAL(rename)(old, new);
    if (result == 0) {
        place(synced, directory, "", from);
        place(pending, directory, PENDING, to);
        REAL(unlink)(pending);
        if (link(synced, pending) && errno != ENOENT)
            abort();
    }
    pthread_mutex_unlock(&keeping);
    return result;
}

int unlink(const char *path)
{
    const char *directory = synced_directory(), *name = name_in_state(path);
    char synced[PATH_MAX];
    int result;

    if (refuses_path(path))
        return -1;
    if (!directory || !name)
        return REAL(unlink)(path);
    pthread_mutex_lock(&keeping);
    result = REAL(unlink)(path);
    if (result == 0) {
        place(synced, directory, "", name);
        REAL(unlink)(synced);
    }
    pthread_mutex_unlock(&keeping);
    return result;
}

__attribute__((constructor)) static void map_control(void)
{
    const char *path = getenv("HOST_CONTROL");
    int descriptor = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (descriptor < 0)
        return;
    control = mmap(NULL, sizeof *control, PROT_READ, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (control == MAP_FAILED)
        abort();
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    int result;

    if (!real)
        real = REAL(clock_gettime);
    result = real(clock, now);
    if (!result && clock == CLOCK_REALTIME && control) {
        int64_t nanoseconds = now->tv_nsec + control->ahead_ms % 1000 * 1000000;

        now->tv_sec += control->ahead_ms / 1000 + (nanoseconds >= 1000000000) - (nanoseconds < 0);
        now->tv_nsec = (nanoseconds + 1000000000) % 1000000000;
    }
    return result;
}
