/* Which faults the on-board switches have, and what is reported of them (docs/spec/dcmi.md#6). */
#ifndef VIGIL_EMULATOR_SWITCH_FAULTS_H
#define VIGIL_EMULATOR_SWITCH_FAULTS_H

#include <stdio.h>

#include "state.h"

/* Copies the faults that are listed now, oldest first, at most ROOM. Answers how many there are. */
unsigned switch_faults_listed(const struct state *state, struct LqDcmiEvent *list, unsigned room);

/* Changes. 0, or ENOSPC when there are too many faults, ESRCH when there is none to recover from. */
int switch_fault_occurs(struct state *state, uint32_t event_type, struct switch_place place,
                        uint32_t severity);
int switch_fault_recovers(struct state *state, uint32_t event_type, struct switch_place place);
void switch_notice(struct state *state, uint32_t event_type, struct switch_place place,
                   uint32_t severity);

/* What is active, as members of a JSON list. */
void switch_write_faults(FILE *json, const struct state *state);

#endif
