#include "switch_faults.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "faults.h"

static struct LqDcmiEvent event_of(const struct switch_fault *known, uint8_t assertion)
{
    return (struct LqDcmiEvent){
        .eventType = known->fault.code,
        .subType = known->place.sub_type,
        .peerportDevice = known->place.peer_device,
        .peerportId = known->place.peer_port,
        .switchChipid = known->place.chip,
        .switchPortid = known->place.port,
        .severity = (uint8_t)known->fault.severity,
        .assertion = assertion,
        .eventSerialNum = (uint32_t)known->fault.serial,
        .alarmRaisedTime = known->fault.raised_ms,
    };
}

static int by_serial(const void *left, const void *right)
{
    const struct LqDcmiEvent *one = left;
    const struct LqDcmiEvent *other = right;
    return (one->eventSerialNum > other->eventSerialNum) -
           (one->eventSerialNum < other->eventSerialNum);
}

unsigned switch_faults_listed(const struct state *state, struct LqDcmiEvent *list, unsigned room)
{
    struct LqDcmiEvent listed[MAX_SWITCH_FAULTS];
    int64_t now_ns = monotonic_ns();
    unsigned count = 0;
    for (unsigned index = 0; index < MAX_SWITCH_FAULTS; index++) {
        const struct switch_fault *known = &state->switch_faults[index];
        if (known->fault.code != 0 && fault_is_listed(&known->fault, now_ns))
            listed[count++] = event_of(known, EVENT_OCCURRENCE);
    }
    qsort(listed, count, sizeof *listed, by_serial);
    memcpy(list, listed, (count < room ? count : room) * sizeof *list);
    return count;
}

static bool is_at(const struct switch_fault *known, uint32_t event_type, struct switch_place place)
{
    return known->fault.code == event_type && memcmp(&known->place, &place, sizeof place) == 0;
}

static struct switch_fault *find_active(struct state *state, uint32_t event_type,
                                        struct switch_place place)
{
    for (unsigned index = 0; index < MAX_SWITCH_FAULTS; index++) {
        struct switch_fault *known = &state->switch_faults[index];
        if (is_at(known, event_type, place) && fault_is_active(&known->fault))
            return known;
    }
    return NULL;
}

/* A place that was never used, or whose fault has left the list. */
static struct switch_fault *find_free(struct state *state)
{
    int64_t now_ns = monotonic_ns();
    for (unsigned index = 0; index < MAX_SWITCH_FAULTS; index++) {
        struct switch_fault *known = &state->switch_faults[index];
        if (known->fault.code == 0 || fault_is_over(&known->fault, now_ns))
            return known;
    }
    return NULL;
}

static void queue_event(struct state *state, const struct switch_fault *known, uint8_t assertion)
{
    if (event_is_lost(state))
        return;
    subscribers_make_room(state, SWITCH_SUBSCRIBERS, state->switch_events);
    struct LqDcmiEvent *event = &state->switch_queue[state->switch_events % EVENT_QUEUE];
    *event = event_of(known, assertion);
    state->switch_events++;
    event->notifySerialNum = (uint32_t)state->switch_events;
    word_advance(&state->event_word);
}

int switch_fault_occurs(struct state *state, uint32_t event_type, struct switch_place place,
                        uint32_t severity)
{
    struct switch_fault *known = find_active(state, event_type, place);
    struct switch_fault *at = known == NULL ? find_free(state) : known;
    if (at == NULL)
        return ENOSPC;
    if (change_is_lost(state))
        return 0;
    if (known == NULL) {
        at->fault.code = 0;
        at->place = place;
        fault_put(&at->fault, fault_new(state, event_type, severity));
    }
    at->fault.severity = severity;
    queue_event(state, at, EVENT_OCCURRENCE);
    return 0;
}

int switch_fault_recovers(struct state *state, uint32_t event_type, struct switch_place place)
{
    struct switch_fault *known = find_active(state, event_type, place);
    if (known == NULL)
        return ESRCH;
    if (change_is_lost(state))
        return 0;
    known->fault.recovered_ns = monotonic_ns();
    queue_event(state, known, EVENT_RECOVERY);
    return 0;
}

void switch_notice(struct state *state, uint32_t event_type, struct switch_place place,
                   uint32_t severity)
{
    if (change_is_lost(state))
        return;
    struct switch_fault notice = {fault_new(state, event_type, severity), place};
    queue_event(state, &notice, EVENT_ONE_OFF);
}

void switch_write_faults(FILE *json, const struct state *state)
{
    const char *separator = "";
    for (unsigned index = 0; index < MAX_SWITCH_FAULTS; index++) {
        const struct fault *fault = &state->switch_faults[index].fault;
        const struct switch_place *place = &state->switch_faults[index].place;
        if (fault->code == 0 || !fault_is_active(fault))
            continue;
        fprintf(json,
                "%s{\"event_type\": %u, \"sub_type\": %u, \"peer\": %u, \"peer_port\": %u, "
                "\"chip\": %u, \"port\": %u, \"severity\": %u, \"serial\": %d, "
                "\"raised_at_ms\": %llu}",
                separator, fault->code, place->sub_type, place->peer_device, place->peer_port,
                place->chip, place->port, fault->severity, fault->serial,
                (unsigned long long)fault->raised_ms);
        separator = ", ";
    }
}
