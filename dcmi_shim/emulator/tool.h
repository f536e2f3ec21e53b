/* The frame around every look-alike of a command line tool. */
#ifndef VIGIL_EMULATOR_TOOL_H
#define VIGIL_EMULATOR_TOOL_H

#include "profile.h"
#include "state.h"

enum { NO_CHIP = -1 };

struct tool_run {
    struct state *state;            /* locked */
    const struct profile *profile;
    bool is_busy;                   /* another run is going on and this one is to refuse */
    bool other_chip;                /* the answer is to be about another chip */
};

/*
 * Finds the emulated hardware and waits as the troubles require. Ends the process itself where it is
 * to fail or to print rubbish, and where there is no hardware.
 */
struct tool_run tool_begin(enum tool tool, int chip);

/* Waits without the lock until something changes, for at most WAIT_MS. May return early. */
void tool_wait(enum tool tool, struct tool_run *run, int64_t wait_ms);

#endif
