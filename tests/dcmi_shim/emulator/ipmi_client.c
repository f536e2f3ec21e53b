/*
 * A program of someone else that asks a BMC, written against the kernel's own header.
 * Arguments: the device, milliseconds to wait, then bytes in hexadecimal: network function,
 * command, data. Prints the reply. With "abi" it prints the numbers that the kernel's header gives.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/ipmi.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int fails(const char *what)
{
    printf("%s: %s\n", what, strerror(errno));
    return 1;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "abi") == 0) {
        printf("%lx %lx %zu %zu %zu\n", (unsigned long)IPMICTL_SEND_COMMAND,
               (unsigned long)IPMICTL_RECEIVE_MSG_TRUNC, sizeof(struct ipmi_req),
               sizeof(struct ipmi_recv), sizeof(struct ipmi_system_interface_addr));
        return 0;
    }
    unsigned char data[272];
    unsigned char reply[64];
    for (int number = 3; number < argc; number++)
        data[number - 3] = (unsigned char)strtoul(argv[number], NULL, 16);
    int device = open(argv[1], O_RDWR);
    if (device < 0)
        return fails("open");
    struct ipmi_system_interface_addr address = {
        .addr_type = IPMI_SYSTEM_INTERFACE_ADDR_TYPE, .channel = IPMI_BMC_CHANNEL};
    struct ipmi_req request = {
        .addr = (unsigned char *)&address,
        .addr_len = sizeof address,
        .msgid = 0x123456789abcL,
        .msg = {.netfn = data[0], .cmd = data[1], .data_len = (unsigned short)(argc - 5),
                .data = data + 2},
    };
    if (ioctl(device, IPMICTL_SEND_COMMAND, &request) != 0)
        return fails("send");
    struct pollfd waiting = {.fd = device, .events = POLLIN};
    if (poll(&waiting, 1, atoi(argv[2])) == 0) {
        printf("nothing\n");
        return 1;
    }
    struct ipmi_addr from;
    struct ipmi_recv received = {
        .addr = (unsigned char *)&from,
        .addr_len = sizeof from,
        .msg = {.data_len = sizeof reply, .data = reply},
    };
    int result = ioctl(device, IPMICTL_RECEIVE_MSG_TRUNC, &received);
    if (result != 0 && errno != EMSGSIZE)
        return fails("receive");
    printf("%s%d %d %lx %x %x:", result != 0 ? "truncated " : "", received.recv_type,
           from.addr_type, received.msgid, received.msg.netfn, received.msg.cmd);
    for (int byte = 0; byte < received.msg.data_len; byte++)
        printf(" %02x", reply[byte]);
    printf("\n");
    waiting.revents = 0;
    if (poll(&waiting, 1, 0) != 0 || ioctl(device, IPMICTL_RECEIVE_MSG_TRUNC, &received) == 0 ||
        errno != EAGAIN)
        return fails("a second reply");
    return close(device) == 0 ? 0 : fails("close");
}
