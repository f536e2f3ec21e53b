#include <errno.h>

#include "call.h"
#include "control.h"
#include "switch_faults.h"

static int change(struct state *state, unsigned assertion, uint32_t event_type,
                  struct switch_place place, uint32_t severity)
{
    if (!profiles[state->profile].switches)
        return EDOM;
    if (assertion == EVENT_OCCURRENCE)
        return switch_fault_occurs(state, event_type, place, severity);
    if (assertion == EVENT_RECOVERY)
        return switch_fault_recovers(state, event_type, place);
    switch_notice(state, event_type, place, severity);
    return 0;
}

DCMI_EXPORT int vigil_emulator_switch(struct emulator *emulator, unsigned assertion,
                                      uint32_t event_type, uint32_t sub_type, uint16_t peer_device,
                                      uint16_t peer_port, uint16_t chip, uint16_t port,
                                      uint32_t severity)
{
    struct switch_place place = {sub_type, peer_device, peer_port, chip, port};
    struct state *state;
    int error = state_lock(&emulator->attachment, &state);
    if (error != 0)
        return error;
    error = change(state, assertion, event_type, place, severity);
    state_unlock(&emulator->attachment);
    return error;
}
