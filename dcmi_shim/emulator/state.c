#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "links.h"
#include "profile.h"

#define STATE_MAGIC 0x314d454c47495644ULL
#define STATE_LAYOUT 4u
/* Lock bytes far behind the content: one for the state, one a subscriber, one a tool. */
#define LOCK_BASE ((off_t)1 << 40)

int64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 * MS + now.tv_nsec;
}

static int byte_lock(int fd, int command, short kind, off_t byte)
{
    struct flock lock = {.l_type = kind, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int result;
    do {
        result = fcntl(fd, command, &lock);
    } while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : errno;
}

int slot_claim(int fd, unsigned slot)
{
    return byte_lock(fd, F_OFD_SETLK, F_WRLCK, LOCK_BASE + 1 + slot);
}

bool slot_is_held(const struct attachment *attachment, unsigned slot)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCK_BASE + 1 + slot, .l_len = 1};
    return fcntl(attachment->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

void subscribers_make_room(struct state *state, struct places places, uint64_t events)
{
    for (unsigned slot = places.first; slot < places.first + places.count; slot++) {
        struct subscriber *subscriber = &state->subscribers[slot];
        if (subscriber->token != 0 && events - subscriber->cursor >= EVENT_QUEUE) {
            subscriber->cursor++;
            subscriber->dropped++;
        }
    }
}

bool tool_claim(const struct attachment *attachment, enum tool tool)
{
    off_t byte = LOCK_BASE + 1 + MAX_SUBSCRIBERS + (off_t)tool;
    return byte_lock(attachment->fd, F_OFD_SETLK, F_WRLCK, byte) == 0;
}

int state_name(struct attachment *attachment, const char *directory)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/state", directory);
    if (length < 0 || (size_t)length >= sizeof path)
        return ENAMETOOLONG;
    memcpy(attachment->path, path, (size_t)length + 1);
    return 0;
}

int state_name_beside(struct attachment *attachment, const char *program)
{
    char beside[PATH_MAX];
    char directory[PATH_MAX];
    const char *slash = strrchr(program, '/');
    int length = slash == NULL ? 0 : (int)(slash - program + 1);
    snprintf(beside, sizeof beside, "%.*semulator-dir", length, program);
    FILE *file = fopen(beside, "re");
    if (file == NULL)
        return errno;
    bool read = fgets(directory, sizeof directory, file) != NULL;
    fclose(file);
    if (!read)
        return ENOENT;
    directory[strcspn(directory, "\n")] = '\0';
    return state_name(attachment, directory);
}

/* In a forked child the descriptor shares its locks with the parent: open an own one. */
static void leave_parent(struct attachment *attachment)
{
    pid_t before = attachment->pid;
    if (before == getpid())
        return;
    attachment->pid = getpid();
    if (before == 0)
        return;
    pthread_mutex_init(&attachment->mutex, NULL); /* a thread that is not here may have had it */
    if (attachment->fd >= 0)
        close(attachment->fd);
    attachment->fd = -1;
    attachment->state = NULL;
}

static bool is_good(const struct state *state)
{
    return state->magic == STATE_MAGIC && state->layout == STATE_LAYOUT &&
           state->size == sizeof(struct state) && state->profile < PROFILE_COUNT;
}

static bool is_long_enough(int fd)
{
    struct stat found;
    return fstat(fd, &found) == 0 && found.st_size >= (off_t)sizeof(struct state);
}

/* Follows the name: an emulator directory may be removed and made again under a running program.
 * An old mapping stays, because another thread may still wait on a word in it. */
static int attach(struct attachment *attachment)
{
    struct stat named;
    if (stat(attachment->path, &named) != 0)
        return errno;
    if (attachment->fd >= 0 && attachment->state != NULL &&
        named.st_dev == attachment->device && named.st_ino == attachment->inode)
        return 0;
    int fd = open(attachment->path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return errno;
    if (!is_long_enough(fd)) {
        close(fd);
        return EINVAL;
    }
    void *mapped = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
        int error = errno;
        close(fd);
        return error;
    }
    if (attachment->fd >= 0)
        close(attachment->fd);
    attachment->fd = fd;
    attachment->device = named.st_dev;
    attachment->inode = named.st_ino;
    attachment->state = mapped;
    return 0;
}

int state_lock(struct attachment *attachment, struct state **state)
{
    leave_parent(attachment);
    pthread_mutex_lock(&attachment->mutex);
    int error = attach(attachment);
    if (error == 0)
        error = byte_lock(attachment->fd, F_OFD_SETLKW, F_WRLCK, LOCK_BASE);
    if (error != 0) {
        pthread_mutex_unlock(&attachment->mutex);
        return error;
    }
    if (!is_long_enough(attachment->fd) || !is_good(attachment->state)) {
        state_unlock(attachment);
        return EINVAL;
    }
    *state = attachment->state;
    return 0;
}

void state_unlock(struct attachment *attachment)
{
    byte_lock(attachment->fd, F_OFD_SETLK, F_UNLCK, LOCK_BASE);
    pthread_mutex_unlock(&attachment->mutex);
}

void state_reset(struct state *state)
{
    memset(state->chips, 0, sizeof state->chips);
    memset(state->switch_faults, 0, sizeof state->switch_faults);
    memset(state->hooks, 0, sizeof state->hooks);
    bmc_reset(&state->bmc);
    memset(state->tools, 0, sizeof state->tools);
    links_reset(state);
    state->die_policy = 0;
    state->lose_events = 0;
    state->lose_everything = 0;
    state->concurrent_calls = 0;
    state->started_ns = monotonic_ns();
    state->epoch++;
    word_advance(&state->control_word);
}

static void fill(struct state *state, uint32_t profile)
{
    if (!is_good(state)) {
        memset(state, 0, sizeof *state);
        state->layout = STATE_LAYOUT;
        state->size = sizeof *state;
        state->next_token = 1;
        state->next_serial = 1;
    }
    state->profile = profile;
    state_reset(state);
    state->magic = STATE_MAGIC;
}

int state_create(struct attachment *attachment, uint32_t profile)
{
    int fd = open(attachment->path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return errno;
    int error = byte_lock(fd, F_OFD_SETLKW, F_WRLCK, LOCK_BASE);
    if (error == 0)
        error = posix_fallocate(fd, 0, sizeof(struct state));
    if (error == 0 && ftruncate(fd, sizeof(struct state)) != 0)
        error = errno;
    if (error == 0) {
        void *mapped = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mapped == MAP_FAILED) {
            error = errno;
        } else {
            fill(mapped, profile);
            munmap(mapped, sizeof(struct state));
        }
    }
    close(fd);
    return error;
}

void state_close(struct attachment *attachment)
{
    if (attachment->state != NULL)
        munmap(attachment->state, sizeof(struct state));
    if (attachment->fd >= 0)
        close(attachment->fd);
    attachment->state = NULL;
    attachment->fd = -1;
}

void word_wait(uint32_t *word, uint32_t seen, int64_t timeout_ms)
{
    struct timespec timeout = {timeout_ms / 1000, (timeout_ms % 1000) * MS};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, 0);
}

void word_advance(uint32_t *word)
{
    atomic_fetch_add((_Atomic uint32_t *)word, 1);
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
