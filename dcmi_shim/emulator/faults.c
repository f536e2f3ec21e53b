#include "faults.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "code_words.h"
#include "links.h"

bool fault_is_active(const struct fault *fault)
{
    return fault->recovered_ns == 0;
}

/* A time in the future is one of before the machine was started again: long ago. */
static bool has_passed(int64_t since_ns, int64_t now_ns, int64_t ms)
{
    return since_ns > now_ns || now_ns - since_ns >= ms * MS;
}

bool fault_is_listed(const struct fault *fault, int64_t now_ns)
{
    return has_passed(fault->occurred_ns, now_ns, LIST_AFTER_OCCURRENCE_MS) &&
           (fault_is_active(fault) ||
            !has_passed(fault->recovered_ns, now_ns, LIST_AFTER_RECOVERY_MS));
}

bool fault_is_over(const struct fault *fault, int64_t now_ns)
{
    return !fault_is_active(fault) &&
           has_passed(fault->recovered_ns, now_ns, LIST_AFTER_RECOVERY_MS);
}

static int by_serial(const void *left, const void *right)
{
    const struct fault *const *one = left;
    const struct fault *const *other = right;
    return ((*one)->serial > (*other)->serial) - ((*one)->serial < (*other)->serial);
}

unsigned faults_listed(const struct chip_state *chip, int64_t now_ns, unsigned codes[MAX_CODES],
                       unsigned *worst)
{
    const struct fault *listed[MAX_FAULTS];
    unsigned faults = 0;
    for (unsigned index = 0; index < MAX_FAULTS; index++)
        if (chip->faults[index].code != 0 && fault_is_listed(&chip->faults[index], now_ns))
            listed[faults++] = &chip->faults[index];
    qsort(listed, faults, sizeof *listed, by_serial);
    unsigned count = 0;
    *worst = 0;
    for (unsigned index = 0; index < faults; index++) {
        unsigned known = 0;
        while (known < count && codes[known] != listed[index]->code)
            known++;
        if (known == MAX_CODES)
            continue;
        if (known == count)
            codes[count++] = listed[index]->code;
        if (listed[index]->severity > *worst)
            *worst = listed[index]->severity;
    }
    return count;
}

/* Frees the places of what has left the list; answers how many faults are active. */
static unsigned purge(struct chip_state *chip, int64_t now_ns)
{
    unsigned active = 0;
    for (unsigned index = 0; index < MAX_FAULTS; index++) {
        struct fault *fault = &chip->faults[index];
        if (fault->code != 0 && fault_is_over(fault, now_ns))
            fault->code = 0;
        active += fault->code != 0 && fault_is_active(fault);
    }
    return active;
}

static struct fault *find_active(struct chip_state *chip, uint32_t code)
{
    for (unsigned index = 0; index < MAX_FAULTS; index++)
        if (chip->faults[index].code == code && fault_is_active(&chip->faults[index]))
            return &chip->faults[index];
    return NULL;
}

static struct fault *find_free(struct chip_state *chip)
{
    for (unsigned index = 0; index < MAX_FAULTS; index++)
        if (chip->faults[index].code == 0)
            return &chip->faults[index];
    return NULL;
}

bool event_is_lost(struct state *state)
{
    if (state->lose_events == 0)
        return false;
    state->lose_events--;
    return true;
}

static void queue_event(struct state *state, unsigned chip, const struct fault *fault,
                        unsigned char assertion)
{
    if (event_is_lost(state))
        return;
    subscribers_make_room(state, CHIP_SUBSCRIBERS, state->events);
    struct queued_event *place = &state->queue[state->events % EVENT_QUEUE];
    memset(place, 0, sizeof *place);
    place->chip = chip;
    struct dcmi_dms_fault_event *event = &place->event;
    unsigned node_type = code_node_type(fault->code);
    event->event_id = fault->code;
    event->deviceid = (unsigned short)chip;
    event->node_type = (unsigned char)node_type;
    event->node_type_ex = node_type > UINT8_MAX ? (unsigned short)node_type : 0;
    event->severity = (unsigned char)fault->severity;
    event->assertion = assertion;
    event->event_serial_num = fault->serial;
    event->notify_serial_num = (int)(state->events + 1);
    event->alarm_raised_time = fault->raised_ms;
    char text[16];
    char sensor[16];
    snprintf(event->event_name, sizeof event->event_name,
             "deviceid=%u, node type=%s, node id=%u-%u, sensor type=%s, sensor name=%s, "
             "event state=%s, time=%llu ms, event assertion=%u.",
             (unsigned)event->deviceid, code_node_name(fault->code), 0u, 0u,
             code_sensor_name(fault->code, sensor), code_sensor_name(fault->code, sensor),
             code_state_name(fault->code, text), event->alarm_raised_time, (unsigned)assertion);
    state->events++;
    word_advance(&state->event_word);
}

struct fault fault_new(struct state *state, uint32_t code, uint32_t severity)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (struct fault){
        .code = code,
        .severity = severity,
        .serial = state->next_serial++,
        .raised_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)(now.tv_nsec / MS),
        .occurred_ns = monotonic_ns(),
    };
}

bool change_is_lost(struct state *state)
{
    if (state->lose_everything == 0)
        return false;
    state->lose_everything--;
    return true;
}

void fault_put(struct fault *place, struct fault fault)
{
    uint32_t code = fault.code;
    fault.code = 0;
    *place = fault;
    __atomic_store_n(&place->code, code, __ATOMIC_RELEASE);
}

int faults_occur(struct state *state, unsigned chip, uint32_t code, uint32_t severity)
{
    struct chip_state *on = &state->chips[chip];
    unsigned active = purge(on, monotonic_ns());
    struct fault *fault = find_active(on, code);
    struct fault *place = fault == NULL && active < MAX_CODES ? find_free(on) : fault;
    if (place == NULL)
        return ENOSPC;
    if (change_is_lost(state))
        return 0;
    if (fault == NULL)
        fault_put(place, fault_new(state, code, severity));
    place->severity = severity;
    if (code == LINK_DOWN_CODE)
        link_set(state, chip, true);
    queue_event(state, chip, place, EVENT_OCCURRENCE);
    return 0;
}

int faults_recover(struct state *state, unsigned chip, uint32_t code)
{
    struct fault *known = find_active(&state->chips[chip], code);
    if (known == NULL)
        return ESRCH;
    if (change_is_lost(state))
        return 0;
    known->recovered_ns = monotonic_ns();
    if (code == LINK_DOWN_CODE)
        link_set(state, chip, false);
    queue_event(state, chip, known, EVENT_RECOVERY);
    return 0;
}

void faults_once(struct state *state, unsigned chip, uint32_t code, uint32_t severity)
{
    if (change_is_lost(state))
        return;
    struct fault fault = fault_new(state, code, severity);
    queue_event(state, chip, &fault, EVENT_ONE_OFF);
}
