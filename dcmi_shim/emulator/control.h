/* What the Python control may ask of the emulated hardware. */
#ifndef VIGIL_EMULATOR_CONTROL_H
#define VIGIL_EMULATOR_CONTROL_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "state.h"

struct emulator {
    struct attachment attachment;
};

/* All answer 0 or an errno; a comment explains an errno that is not evident. */
int vigil_emulator_open(const char *directory, struct emulator **emulator);
void vigil_emulator_close(struct emulator *emulator);
int vigil_emulator_start(struct emulator *emulator, const char *profile);
int vigil_emulator_reset(struct emulator *emulator);

/* EDOM: no such chip. ENOSPC: too many faults there. ESRCH: the code is not active there. */
int vigil_emulator_occur(struct emulator *emulator, int chip, uint32_t code, uint32_t severity);
int vigil_emulator_recover(struct emulator *emulator, int chip, uint32_t code);
int vigil_emulator_once(struct emulator *emulator, int chip, uint32_t code, uint32_t severity);
int vigil_emulator_drop(struct emulator *emulator, int chip, uint32_t drop);
/* Another card, without faults, is in the place of the one that CHIP is on. */
int vigil_emulator_replace(struct emulator *emulator, int chip);

/* CHIP -1: every chip. A negative value leaves that part of the hook as it is. */
int vigil_emulator_hook(struct emulator *emulator, unsigned function, int chip, int hang,
                        int slow_ms, int fail);
/* CHIP -1: the hook for all chips and those of single chips. */
int vigil_emulator_clear(struct emulator *emulator, unsigned function, int chip);

/*
 * Assertion 1: a fault of an on-board switch begins; 0: it ends; 2: a notice. EDOM: this server has
 * no switches. ENOSPC: too many faults. ESRCH: there is no such fault.
 */
int vigil_emulator_switch(struct emulator *emulator, unsigned assertion, uint32_t event_type,
                          uint32_t sub_type, uint16_t peer_device, uint16_t peer_port,
                          uint16_t chip, uint16_t port, uint32_t severity);
/* A link goes down with its fault, or comes up with the fault's recovery; QUIETLY: no event. */
int vigil_emulator_link(struct emulator *emulator, int chip, int down, int quietly);

/*
 * What a chip does. A negative value leaves that part as it is, also a negative COUNT of PROCESSES.
 * ERANGE: more than a driver can report.
 */
int vigil_emulator_load(struct emulator *emulator, int chip, int aicore, int hbm, int still,
                        int count, const int *processes);
/* Gives the network port of a chip an address, see struct link_state. */
int vigil_emulator_address(struct emulator *emulator, int chip, unsigned address);
/* Cuts a chip into virtual devices; 0 makes it whole. ERANGE: too many. */
int vigil_emulator_virtual(struct emulator *emulator, int chip, unsigned count);

/*
 * Adds a trouble (troubles.h) to runs of TOOL. CHIP -1: whichever chip they are about; then
 * TROUBLE_NONE ends those of single chips, too.
 */
int vigil_emulator_tool(struct emulator *emulator, unsigned tool, int chip, unsigned trouble,
                        uint32_t value, const char *text);

int vigil_emulator_lose(struct emulator *emulator, uint32_t events, uint32_t everything);

/* The whole list of active alarms, in the BMC's order. ENOSPC: too many. */
int vigil_emulator_bmc_alarms(struct emulator *emulator, const struct alarm *alarms,
                              unsigned count);
/* One alarm is known by its code, subject type and index. ENOSPC, ESRCH as above. */
int vigil_emulator_bmc_occur(struct emulator *emulator, const struct alarm *alarm);
int vigil_emulator_bmc_recover(struct emulator *emulator, const struct alarm *alarm);
/* A negative value leaves that part of the BMC as it is. */
int vigil_emulator_bmc_set(struct emulator *emulator, int absent, int hang, int delay_ms,
                           int completion_code, int events_per_reply);
/* NULL leaves a text as it is. */
int vigil_emulator_bmc_label(struct emulator *emulator, const char *serial,
                             const char *manufacturer);
/* Replies that are played as they stand, first match first. ENOSPC: too many. */
int vigil_emulator_bmc_replies(struct emulator *emulator, const struct played_reply *replies,
                               unsigned count);
void write_bmc(FILE *json, const struct bmc *bmc);

/* JSON; ENOBUFS when it is longer than SIZE. */
int vigil_emulator_status(struct emulator *emulator, char *json, size_t size);

#endif
