/*
 * Preloaded into a program, this library is the kernel's IPMI device in acceptance tests: whoever
 * opens $ACCEPTANCE_IPMI_DEVICE gets a socket to the BMC that listens at $ACCEPTANCE_BMC, and the
 * two ioctls of OpenIPMI that matter become packets on it (linux/ipmi.h). A packet is the message
 * id (8 bytes), network function, command, and data.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <linux/ipmi.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define HEAD 10
#define LARGEST 2048

static int is_device(const char *path)
{
    const char *device = getenv("ACCEPTANCE_IPMI_DEVICE");
    return path != NULL && device != NULL && strcmp(path, device) == 0;
}

static int open_device(int flags)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const char *path = getenv("ACCEPTANCE_BMC");
    if (path == NULL || strlen(path) >= sizeof at.sun_path)
        return errno = ENOENT, -1;
    strcpy(at.sun_path, path);
    int type = SOCK_SEQPACKET | (flags & O_CLOEXEC ? SOCK_CLOEXEC : 0);
    int fd = socket(AF_UNIX, type, 0);
    if (fd < 0)
        return fd;
    if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
        return fd;
    close(fd);
    return errno = ENOENT, -1;
}

static int is_socket(int fd)
{
    struct stat found;
    return fstat(fd, &found) == 0 && S_ISSOCK(found.st_mode);
}

static int send_request(int fd, const struct ipmi_req *request)
{
    unsigned char packet[LARGEST];
    const struct ipmi_msg *message = &request->msg;
    if (message->data_len > LARGEST - HEAD)
        return errno = EMSGSIZE, -1;
    memcpy(packet, &request->msgid, 8);
    packet[8] = message->netfn;
    packet[9] = message->cmd;
    memcpy(packet + HEAD, message->data, message->data_len);
    return send(fd, packet, HEAD + message->data_len, MSG_NOSIGNAL) < 0 ? (errno = ENODEV, -1) : 0;
}

static int receive_reply(int fd, struct ipmi_recv *received)
{
    unsigned char packet[LARGEST];
    ssize_t length = recv(fd, packet, sizeof packet, MSG_DONTWAIT);
    if (length < HEAD)
        return errno = length < 0 ? EAGAIN : ENODEV, -1;
    size_t size = (size_t)length - HEAD;
    received->recv_type = IPMI_RESPONSE_RECV_TYPE;
    memcpy(&received->msgid, packet, 8);
    received->msg.netfn = packet[8] | 1;
    received->msg.cmd = packet[9];
    int is_cut = size > received->msg.data_len;
    if (is_cut)
        size = received->msg.data_len;
    memcpy(received->msg.data, packet + HEAD, size);
    received->msg.data_len = (unsigned short)size;
    return is_cut ? (errno = EMSGSIZE, -1) : 0;
}

int ioctl(int fd, unsigned long number, ...)
{
    va_list arguments;
    va_start(arguments, number);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (number == IPMICTL_SEND_COMMAND && is_socket(fd))
        return send_request(fd, argument);
    if (number == IPMICTL_RECEIVE_MSG_TRUNC && is_socket(fd))
        return receive_reply(fd, argument);
    int (*next)(int, unsigned long, void *);
    *(void **)&next = dlsym(RTLD_NEXT, "ioctl");
    return next(fd, number, argument);
}

/* The C library opens by openat as well, so its functions need not be looked up. */
static int open_path(int directory, const char *path, int flags, va_list arguments)
{
    if (is_device(path))
        return open_device(flags);
    int makes_file = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    unsigned mode = makes_file ? va_arg(arguments, unsigned) : 0;
    return (int)syscall(SYS_openat, directory, path, flags, mode);
}

int openat(int directory, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int fd = open_path(directory, path, flags, arguments);
    va_end(arguments);
    return fd;
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int fd = open_path(AT_FDCWD, path, flags, arguments);
    va_end(arguments);
    return fd;
}

/* Files have 64 bits where these tests run, so both names are the same function. */
int open64(const char *, int, ...) __attribute__((alias("open")));
int openat64(int, const char *, int, ...) __attribute__((alias("openat")));
