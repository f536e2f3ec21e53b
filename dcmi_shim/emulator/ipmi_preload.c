/*
 * Preloaded into a program, this library is the character device of the BMC: the program's open,
 * close and ioctl of $VIGIL_IPMI_DEVICE (default /dev/ipmi0) reach the emulated BMC, everything
 * else goes on to the C library. The descriptor is a timer that expires when a reply is there, so
 * that poll, select and epoll are real. Structures and ioctl numbers: docs/spec/noded.md#4.1.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "state.h"

#define EXPORT __attribute__((visibility("default")))

enum { MAX_OPEN = 16, MAX_PENDING = 8, LONGEST_WAIT_MS = 500 };
enum { SYSTEM_INTERFACE = 0x0c, RESPONSE = 1 };
#define SEND_COMMAND 0x8028690dUL
#define RECEIVE_MESSAGE_TRUNCATED 0xc030690bUL

struct message {
    uint8_t netfn;
    uint8_t command;
    uint16_t length;
    uint8_t *data;
};

struct address {
    int32_t type;
    int16_t channel;
    uint8_t lun;
};

struct request {
    struct address *address;
    uint32_t address_length;
    long id;
    struct message message;
};

struct received {
    int32_t type;
    struct address *address;
    uint32_t address_length;
    long id;
    struct message message;
};

_Static_assert(sizeof(struct address) == 8, "system interface address");
_Static_assert(sizeof(struct request) == 40, "argument of the send ioctl");
_Static_assert(sizeof(struct received) == 48, "argument of the receive ioctl");

/* A reply on its way. */
struct pending {
    int64_t ready_ns;
    long id;
    struct address address;
    uint8_t netfn;
    uint8_t command;
    uint16_t length;
    uint8_t bytes[BMC_REPLY_BYTES];
};

struct device {
    int fd; /* 0: free; nobody gets the standard input for a device */
    unsigned waiting;
    struct pending pending[MAX_PENDING];
};

static struct attachment attachment = ATTACHMENT_INITIALIZER;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct device devices[MAX_OPEN];

static int fails(int error)
{
    errno = error;
    return -1;
}

static bool is_device(const char *path)
{
    const char *named = getenv("VIGIL_IPMI_DEVICE");
    return path != NULL &&
           strcmp(path, named != NULL && named[0] != '\0' ? named : "/dev/ipmi0") == 0;
}

/* Waits while the BMC hangs as in HANG; then the state is locked. Answers 0 or an errno. */
static int lock_when_it_answers(enum bmc_hang hang, struct state **state)
{
    for (;;) {
        int error = state_lock(&attachment, state);
        if (error != 0 || (*state)->bmc.hang != hang)
            return error;
        uint32_t *word = &(*state)->control_word;
        uint32_t seen = *word;
        state_unlock(&attachment);
        word_wait(word, seen, LONGEST_WAIT_MS);
    }
}

static int open_device(int flags)
{
    Dl_info self;
    if (dladdr((void *)&attachment, &self) == 0 || self.dli_fname == NULL)
        return fails(ENOENT);
    const char *named = getenv("VIGIL_EMULATOR_DIR");
    int error = named != NULL && named[0] != '\0' ? state_name(&attachment, named)
                                                  : state_name_beside(&attachment, self.dli_fname);
    struct state *state;
    if (error == 0)
        error = lock_when_it_answers(BMC_HANGS_OPEN, &state);
    if (error != 0)
        return fails(error);
    bool is_absent = state->bmc.is_absent;
    state_unlock(&attachment);
    if (is_absent)
        return fails(ENOENT);
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | (flags & O_CLOEXEC ? TFD_CLOEXEC : 0));
    if (fd < 0)
        return fd;
    pthread_mutex_lock(&mutex);
    struct device *device = devices;
    while (device < devices + MAX_OPEN && device->fd != 0)
        device++;
    if (device < devices + MAX_OPEN) {
        device->fd = fd;
        device->waiting = 0;
        fd = 0;
    }
    pthread_mutex_unlock(&mutex);
    if (fd == 0)
        return device->fd;
    close(fd);
    return fails(EMFILE);
}

/* The device that FD is, with the mutex locked; NULL and unlocked when it is none. */
static struct device *lock_device(int fd)
{
    if (fd <= 0)
        return NULL;
    pthread_mutex_lock(&mutex);
    for (struct device *device = devices; device < devices + MAX_OPEN; device++)
        if (device->fd == fd)
            return device;
    pthread_mutex_unlock(&mutex);
    return NULL;
}

/* Lets the descriptor become readable when the first of the waiting replies is ready. */
static void arm(struct device *device)
{
    struct itimerspec at = {0};
    for (unsigned number = 0; number < device->waiting; number++) {
        int64_t ready_ns = device->pending[number].ready_ns;
        if (number == 0 || ready_ns < at.it_value.tv_sec * 1000 * MS + at.it_value.tv_nsec) {
            at.it_value.tv_sec = ready_ns / (1000 * MS);
            at.it_value.tv_nsec = ready_ns % (1000 * MS);
        }
    }
    timerfd_settime(device->fd, TFD_TIMER_ABSTIME, &at, NULL);
}

static int send_command(int fd, const struct request *request)
{
    const struct message *message = &request->message;
    if (request->address == NULL || request->address_length < sizeof(struct address) ||
        request->address->type != SYSTEM_INTERFACE)
        return fails(EINVAL);
    if (message->length > BMC_REQUEST_BYTES - 2)
        return fails(EMSGSIZE);
    uint8_t bytes[BMC_REQUEST_BYTES] = {message->netfn, message->command};
    memcpy(bytes + 2, message->data, message->length);
    struct pending reply = {
        .id = request->id,
        .address = *request->address,
        .netfn = message->netfn | 1,
        .command = message->command,
    };
    struct state *state;
    int error = lock_when_it_answers(BMC_HANGS_IOCTL, &state);
    if (error != 0)
        return fails(error);
    bool is_absent = state->bmc.is_absent;
    bool is_lost = state->bmc.hang == BMC_HANGS_REPLY;
    reply.ready_ns = monotonic_ns() + state->bmc.delay_ms * MS;
    reply.length = (uint16_t)bmc_answer(&state->bmc, bytes, 2u + message->length, reply.bytes);
    state_unlock(&attachment);
    if (is_absent)
        return fails(ENODEV);
    struct device *device = is_lost ? NULL : lock_device(fd);
    if (device == NULL)
        return 0;
    bool fits = device->waiting < MAX_PENDING;
    if (fits) {
        device->pending[device->waiting++] = reply;
        arm(device);
    }
    pthread_mutex_unlock(&mutex);
    return fits ? 0 : fails(EBUSY);
}

static int receive(struct device *device, struct received *received)
{
    int64_t now_ns = monotonic_ns();
    unsigned number = 0;
    while (number < device->waiting && device->pending[number].ready_ns > now_ns)
        number++;
    if (number == device->waiting)
        return fails(EAGAIN);
    if (received->address_length < sizeof(struct address))
        return fails(EINVAL);
    const struct pending *reply = &device->pending[number];
    struct message *message = &received->message;
    bool fits = message->length >= reply->length;
    received->type = RESPONSE;
    received->id = reply->id;
    *received->address = reply->address;
    received->address_length = sizeof(struct address);
    message->netfn = reply->netfn;
    message->command = reply->command;
    message->length = fits ? reply->length : message->length;
    memcpy(message->data, reply->bytes, message->length);
    memmove(&device->pending[number], &device->pending[number + 1],
            (--device->waiting - number) * sizeof(struct pending));
    arm(device);
    return fits ? 0 : fails(EMSGSIZE);
}

EXPORT int ioctl(int fd, unsigned long number, ...)
{
    va_list arguments;
    va_start(arguments, number);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    struct device *device = lock_device(fd);
    if (device == NULL) {
        int (*next)(int, unsigned long, void *);
        *(void **)&next = dlsym(RTLD_NEXT, "ioctl");
        return next(fd, number, argument);
    }
    if (number == SEND_COMMAND) {
        pthread_mutex_unlock(&mutex); /* it may hang, and close must not */
        return send_command(fd, argument);
    }
    int result = number == RECEIVE_MESSAGE_TRUNCATED ? receive(device, argument) : fails(ENOTTY);
    pthread_mutex_unlock(&mutex);
    return result;
}

EXPORT int close(int fd)
{
    struct device *device = lock_device(fd);
    if (device != NULL) {
        device->fd = 0;
        pthread_mutex_unlock(&mutex);
    }
    int (*next)(int);
    *(void **)&next = dlsym(RTLD_NEXT, "close");
    return next(fd);
}

static unsigned mode_of(int flags, va_list arguments)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, unsigned) : 0;
}

#define OPEN(name)                                                                  \
    EXPORT int name(const char *path, int flags, ...)                               \
    {                                                                               \
        va_list arguments;                                                          \
        va_start(arguments, flags);                                                 \
        unsigned mode = mode_of(flags, arguments);                                  \
        va_end(arguments);                                                          \
        if (is_device(path))                                                        \
            return open_device(flags);                                              \
        int (*next)(const char *, int, ...);                                        \
        *(void **)&next = dlsym(RTLD_NEXT, #name);                                  \
        return next(path, flags, mode);                                             \
    }

#define OPEN_AT(name)                                                               \
    EXPORT int name(int directory, const char *path, int flags, ...)                \
    {                                                                               \
        va_list arguments;                                                          \
        va_start(arguments, flags);                                                 \
        unsigned mode = mode_of(flags, arguments);                                  \
        va_end(arguments);                                                          \
        if (is_device(path))                                                        \
            return open_device(flags);                                              \
        int (*next)(int, const char *, int, ...);                                   \
        *(void **)&next = dlsym(RTLD_NEXT, #name);                                  \
        return next(directory, path, flags, mode);                                  \
    }

OPEN(open)
OPEN(open64)
OPEN_AT(openat)
OPEN_AT(openat64)
