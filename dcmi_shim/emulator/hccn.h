/* What the hccn_tool look-alike is asked, and its answers (docs/spec/dcmi.md#7). */
#ifndef VIGIL_EMULATOR_HCCN_H
#define VIGIL_EMULATOR_HCCN_H

#include "state.h"

struct request {
    const char *command;    /* without its dash */
    int chip;               /* NO_CHIP: none was named */
    bool get;
    bool a5;                /* -g came first: the order of arguments of the A5 tool */
    bool inet6;
    const char *set;        /* value of -s */
    const char *word;       /* the one behind -g or the command */
    const char *address;
    long count;             /* of -t, or of pkt */
    unsigned udie;
    unsigned port;
    const char *device;
    bool has_unified_bus;   /* a chip of an A5: two Ethernet ports and one of the unified bus */
    bool is_uboe_down;      /* the driver reports it: of the Ethernet ports one is down */
    bool is_ub_down;
};

/* Internal codes; the exit status is the low byte. */
enum {
    HCCN_OK = 0,
    HCCN_NO_COMMAND = 0x1003,
    HCCN_NO_DEVICE_ID = 0x1004,
    HCCN_UNKNOWN_OPTION = 0x2003,
    HCCN_WRONG_COUNT = 0x2004,
    HCCN_BUSY = 0x300b,
    HCCN_NOT_SUPPORTED = 0x300d,
    HCCN_ABORTED = 0x3016,
    HCCN_FAILED = 0x4001,
    HCCN_NO_HEALTH = 0x4003,
    HCCN_NOT_THERE = 0x4004,
    HCCN_LINK_DOWN = 0x4016,
};

/* Print the answer about CHIP, whose link is LINK. Answer an internal code. */
int hccn_answer(const struct request *request, const struct link_state *link, unsigned chip);
int hccn_answer_a5(const struct request *request, const struct link_state *link, unsigned chip);

/* The time line, the counters and the records; PREFIX begins each line. */
void hccn_link_times(const struct link_state *link, const char *prefix);

#endif
