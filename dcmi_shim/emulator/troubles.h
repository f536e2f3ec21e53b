/* What is wrong with the command line tools. */
#ifndef VIGIL_EMULATOR_TROUBLES_H
#define VIGIL_EMULATOR_TROUBLES_H

#include <stdio.h>

#include "state.h"

/* In the order of dcmi_shim/emulator/tools.py. */
enum {
    TROUBLE_NONE,
    TROUBLE_HANG,
    TROUBLE_SLOW,
    TROUBLE_FAIL,
    TROUBLE_GARBLE,
    TROUBLE_BUSY,
    TROUBLE_OTHER_CHIP,
};

/* Adds one trouble, or takes all away. VALUE: milliseconds, or the exit status for TEXT. */
void trouble_make(struct tool_trouble *on, unsigned trouble, uint32_t value, const char *text);

/* All that there are, as the elements of a JSON list. */
void troubles_write(FILE *json, const struct state *state);

#endif
