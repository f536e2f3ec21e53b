/*
 * A look-alike of ipmitool that knows `ipmitool raw NETFN COMMAND [DATA...]` and talks to the
 * emulated BMC. Output, error texts and exit status are those of the real program.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

enum { GIVES_UP_AFTER_MS = 15000, LONGEST_WAIT_MS = 500, BYTES_A_LINE = 16 };

static const struct {
    uint8_t code;
    const char *text;
} completion_texts[] = {
    {0xc0, "Node busy"},
    {0xc1, "Invalid command"},
    {0xc2, "Invalid command on LUN"},
    {0xc3, "Timeout"},
    {0xc4, "Out of space"},
    {0xc5, "Reservation cancelled or invalid"},
    {0xc6, "Request data truncated"},
    {0xc7, "Request data length invalid"},
    {0xc8, "Request data field length limit exceeded"},
    {0xc9, "Parameter out of range"},
    {0xca, "Cannot return number of requested data bytes"},
    {0xcb, "Requested sensor, data, or record not found"},
    {0xcc, "Invalid data field in request"},
    {0xcd, "Command illegal for specified sensor or record type"},
    {0xce, "Command response could not be provided"},
    {0xcf, "Cannot execute duplicated request"},
    {0xd3, "Destination unavailable"},
    {0xd4, "Insufficient privilege level"},
    {0xd5, "Command not supported in present state"},
    {0xd6, "Cannot execute command, command disabled"},
    {0xff, "Unspecified error"},
};

static int cannot_open(int error)
{
    fprintf(stderr,
            "Could not open device at /dev/ipmi0 or /dev/ipmi/0 or /dev/ipmidev/0: %s\n",
            strerror(error));
    return EXIT_FAILURE;
}

static int refused(const uint8_t *request, const uint8_t *reply, size_t length)
{
    fprintf(stderr, "Unable to send RAW command (channel=0x0 netfn=0x%x lun=0x0 cmd=0x%x",
            request[0], request[1]);
    if (length == 0) {
        fprintf(stderr, ")\n");
        return EXIT_FAILURE;
    }
    for (size_t number = 0; number < sizeof completion_texts / sizeof *completion_texts; number++)
        if (completion_texts[number].code == reply[0]) {
            fprintf(stderr, " rsp=0x%x): %s\n", reply[0], completion_texts[number].text);
            return EXIT_FAILURE;
        }
    fprintf(stderr, " rsp=0x%x): Unknown (0x%02X)\n", reply[0], reply[0]);
    return EXIT_FAILURE;
}

static int print(const uint8_t *reply, size_t length)
{
    for (size_t byte = 1; byte < length; byte++) {
        if (byte > 1 && (byte - 1) % BYTES_A_LINE == 0)
            putchar('\n');
        printf(" %02x", reply[byte]);
    }
    putchar('\n');
    return EXIT_SUCCESS;
}

static int ask(const uint8_t *request, size_t length)
{
    uint8_t reply[BMC_REPLY_BYTES];
    int64_t begin_ns = monotonic_ns();
    struct tool_run run = tool_begin(T_ipmitool, NO_CHIP);
    if (run.is_busy)
        return cannot_open(EBUSY);
    for (;;) {
        const struct bmc *bmc = &run.state->bmc;
        if (bmc->is_absent)
            return cannot_open(ENOENT);
        int64_t passed_ms = (monotonic_ns() - begin_ns) / MS;
        bool gives_up = passed_ms >= GIVES_UP_AFTER_MS && bmc->hang <= BMC_HANGS_REPLY;
        int64_t left_ms = bmc->hang != BMC_ANSWERS ? LONGEST_WAIT_MS : bmc->delay_ms - passed_ms;
        if (!gives_up && left_ms > 0) {
            tool_wait(T_ipmitool, &run, left_ms);
            continue;
        }
        size_t answered = gives_up ? 0 : bmc_answer(bmc, request, length, reply);
        if (answered == 0 || reply[0] != COMPLETION_OK)
            return refused(request, reply, answered);
        return print(reply, answered);
    }
}

static bool parse_byte(const char *text, uint8_t *byte)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 0);
    if (text[0] == '\0' || *end != '\0' || errno != 0 || value > 0xff)
        return false;
    *byte = (uint8_t)value;
    return true;
}

int main(int argc, char **argv)
{
    static const char *const labels[] = {"netfn", "command", "data"};
    uint8_t request[BMC_REQUEST_BYTES];
    if (argc < 2 || strcmp(argv[1], "raw") != 0) {
        fprintf(stderr, "Invalid command: %s\n", argc < 2 ? "" : argv[1]);
        return EXIT_FAILURE;
    }
    int given = argc - 2;
    if (given < 2) {
        fprintf(stderr, "Not enough parameters given.\nRAW Commands:  raw <netfn> <cmd> [data]\n");
        return EXIT_FAILURE;
    }
    if (given > 256) {
        fprintf(stderr, "Raw command input limit (256 bytes) exceeded\n");
        return EXIT_FAILURE;
    }
    for (int number = 0; number < given; number++)
        if (!parse_byte(argv[2 + number], &request[number])) {
            fprintf(stderr, "Given %s \"%s\" is invalid.\n", labels[number < 2 ? number : 2],
                    argv[2 + number]);
            return EXIT_FAILURE;
        }
    return ask(request, (size_t)given);
}
