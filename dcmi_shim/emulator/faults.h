/* Which codes a chip lists now, and how faults begin and end (docs/spec/dcmi.md#5). */
#ifndef VIGIL_EMULATOR_FAULTS_H
#define VIGIL_EMULATOR_FAULTS_H

#include "state.h"

/* The driver's list follows its events by so much. */
enum { LIST_AFTER_OCCURRENCE_MS = 50, LIST_AFTER_RECOVERY_MS = 300 };

/* Codes that the chip lists at NOW_NS, oldest first. Answers how many; *WORST is the health word. */
unsigned faults_listed(const struct chip_state *chip, int64_t now_ns, unsigned codes[MAX_CODES],
                       unsigned *worst);

/* Changes. 0, or ENOSPC when the chip has too many faults, ESRCH when CODE is not active. */
int faults_occur(struct state *state, unsigned chip, uint32_t code, uint32_t severity);
int faults_recover(struct state *state, unsigned chip, uint32_t code);
void faults_once(struct state *state, unsigned chip, uint32_t code, uint32_t severity);

/* What chips and switches have in common. */
struct fault fault_new(struct state *state, uint32_t code, uint32_t severity);
void fault_put(struct fault *place, struct fault fault);
bool fault_is_active(const struct fault *fault);
bool fault_is_listed(const struct fault *fault, int64_t now_ns);
bool fault_is_over(const struct fault *fault, int64_t now_ns);

/* Whether this change is to leave no trace, and whether this event is not to be delivered. */
bool change_is_lost(struct state *state);
bool event_is_lost(struct state *state);

#endif
