/* The emulated BMC: its alarms and how it answers vendor requests (docs/spec/dcmi.md#8.3). */
#ifndef VIGIL_EMULATOR_BMC_H
#define VIGIL_EMULATOR_BMC_H

#include <stddef.h>
#include <stdint.h>

enum {
    MAX_ALARMS = 1024,
    MAX_PLAYED_REPLIES = 32,
    MAX_EVENTS_PER_REPLY = 60,
    BMC_REPLY_BYTES = 1024,
    BMC_REQUEST_BYTES = 272,
    BMC_TEXT_BYTES = 64,
};

/* Where a command gets stuck: with the BMC, or in the kernel on the way to it. */
enum bmc_hang { BMC_ANSWERS, BMC_HANGS_REPLY, BMC_HANGS_IOCTL, BMC_HANGS_OPEN, BMC_HANG_COUNT };

enum { COMPLETION_OK = 0x00, COMPLETION_INVALID_COMMAND = 0xc1 };

struct alarm {
    uint32_t code;
    uint32_t raised_s;      /* Unix epoch seconds, as the BMC has them */
    uint8_t severity;
    uint8_t subject_type;
    uint8_t index;
    uint8_t spare;
};

/* A reply that is given as it stands to requests of COMMAND whose key is KEY, or any (-1). */
struct played_reply {
    int32_t key;            /* first index of an alarm request, field of a label request */
    uint16_t length;
    uint8_t command;
    uint8_t spare;
    uint8_t bytes[BMC_REPLY_BYTES]; /* the completion code first */
};

struct bmc {
    uint32_t is_absent;
    uint32_t hang;          /* enum bmc_hang */
    uint32_t delay_ms;
    uint32_t completion_code; /* 0: normal */
    uint32_t events_per_reply;
    uint32_t alarm_count;
    uint32_t played_count;
    char serial[BMC_TEXT_BYTES];
    char manufacturer[BMC_TEXT_BYTES];
    struct alarm alarms[MAX_ALARMS];  /* in the BMC's order */
    struct played_reply played[MAX_PLAYED_REPLIES];
};

static inline uint32_t bmc_at_most(uint32_t value, uint32_t most)
{
    return value < most ? value : most;
}

/* How many there are, also in a damaged state file. */
static inline uint32_t bmc_alarms(const struct bmc *bmc)
{
    return bmc_at_most(bmc->alarm_count, MAX_ALARMS);
}

/* Present, well and without an alarm. */
void bmc_reset(struct bmc *bmc);

/*
 * The reply to REQUEST (network function, command, data) in REPLY, the completion code first.
 * Answers its length; 0 is a reply without any byte.
 */
size_t bmc_answer(const struct bmc *bmc, const uint8_t *request, size_t length,
                  uint8_t reply[BMC_REPLY_BYTES]);

#endif
