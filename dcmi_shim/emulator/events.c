/* Fault events: one subscription or one reader in a process (docs/spec/dcmi.md#5.1, 5.7). */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "call.h"
#include "subscription.h"

enum { EVERY_CHIP = -1, LONGEST_READ_MS = 30000, LOOK_AGAIN_MS = 500, RETRY_US = 20000 };

typedef void (*event_handler)(struct dcmi_event *);

/* This process's subscription, and whom it is for. */
static struct place place = PLACE_INITIALIZER;
static struct {
    pid_t pid;
    event_handler handler;   /* NULL for dcmi_get_fault_event */
    int chip;
    struct dcmi_event_filter filter;
} wanted;

static int take_slot(struct state *state, uint64_t cursor)
{
    int error = place_take(&place, state, CHIP_SUBSCRIBERS, cursor);
    if (error == 0)
        return DCMI_OK;
    return error == EBUSY ? DCMI_RESOURCE_OCCUPIED : code_of_error(error);
}

static bool passes(const struct queued_event *queued, int chip,
                   const struct dcmi_event_filter *filter)
{
    const struct dcmi_dms_fault_event *event = &queued->event;
    if (chip != EVERY_CHIP && queued->chip != (unsigned)chip)
        return false;
    if ((filter->filter_flag & FILTER_EVENT_ID) && event->event_id != filter->event_id)
        return false;
    if ((filter->filter_flag & FILTER_SEVERITY) && event->severity < filter->severity)
        return false;
    return !(filter->filter_flag & FILTER_NODE_TYPE) || event->node_type == filter->node_type ||
           event->sub_node_type == filter->node_type;
}

/* Moves this process's cursor to behind the next event that passes, and copies that event. */
static bool next_event(struct state *state, int chip, const struct dcmi_event_filter *filter,
                       struct dcmi_event *event)
{
    uint64_t next;
    while ((next = place_next(&place, state, state->events)) < state->events) {
        const struct queued_event *queued = &state->queue[next % EVENT_QUEUE];
        if (!passes(queued, chip, filter))
            continue;
        memset(event, 0, sizeof *event);
        struct dcmi_dms_fault_event *copy = &event->event_t.dms_event;
        *copy = queued->event;
        /* A handler reads both as strings, whatever is in the file of the state. */
        copy->event_name[sizeof copy->event_name - 1] = '\0';
        copy->additional_info[sizeof copy->additional_info - 1] = '\0';
        return true;
    }
    return false;
}

/* The emulator directory was made again: everything queued since then is news. */
static int return_to(struct state *state)
{
    return place_is_mine(&place, state) ? DCMI_OK : take_slot(state, 0);
}

static void *dispatch(void *unused)
{
    static struct dcmi_event event; /* reused, as in the driver: handlers copy what they keep */
    (void)unused;
    dispatcher_begin("fault_event_subscribe");
    for (;;) {
        struct state *state;
        if (state_lock(&attachment, &state) != 0) {
            usleep(RETRY_US);
            continue;
        }
        bool ready = return_to(state) == DCMI_OK;
        bool found = ready && next_event(state, wanted.chip, &wanted.filter, &event);
        uint32_t *word = &state->event_word;
        uint32_t seen = *word;
        state_unlock(&attachment);
        if (found)
            wanted.handler(&event);
        else
            word_wait(word, seen, LOOK_AGAIN_MS);
    }
    return NULL;
}

static bool is_taken(void)
{
    return place.fd >= 0 && wanted.pid == getpid();
}

static struct target who(int card_id, int device_id)
{
    return card_id == EVERY_CHIP && device_id == EVERY_CHIP ? NODE : DEVICE(card_id, device_id);
}

static int subscribe(struct call *call, struct target target, struct dcmi_event_filter filter,
                     event_handler handler)
{
    if (!call->profile->events)
        return DCMI_NOT_SUPPORTED;
    if (is_taken())
        return DCMI_RESOURCE_OCCUPIED;
    int code = take_slot(call->state, call->state->events);
    if (code != DCMI_OK)
        return code;
    wanted.pid = getpid();
    wanted.handler = handler;
    wanted.filter = filter;
    wanted.chip = target.kind == ON_NODE ? EVERY_CHIP : (int)call->chip;
    if (handler == NULL)
        return DCMI_OK;
    return dispatcher_start(dispatch) == 0 ? DCMI_OK : DCMI_INTERNAL_ERROR;
}

DCMI_EXPORT int dcmi_subscribe_fault_event(int card_id, int device_id,
                                           struct dcmi_event_filter filter, event_handler handler)
{
    struct target target = who(card_id, device_id);
    BEGIN(dcmi_subscribe_fault_event, target, handler != NULL);
    return call_finish(&call, subscribe(&call, target, filter, handler));
}

/* The first read of a process takes a slot, so that nothing is missed between two reads. */
static int read_event(struct call *call, struct target target, struct dcmi_event_filter filter,
                      struct dcmi_event *event, bool *found)
{
    int code = DCMI_OK;
    if (is_taken() && wanted.handler != NULL)
        return DCMI_RESOURCE_OCCUPIED;
    if (!is_taken())
        code = subscribe(call, target, filter, NULL);
    else
        code = return_to(call->state);
    int chip = target.kind == ON_NODE ? EVERY_CHIP : (int)call->chip;
    *found = code == DCMI_OK && next_event(call->state, chip, &filter, event);
    return code;
}

DCMI_EXPORT int dcmi_get_fault_event(int card_id, int device_id, int timeout,
                                     struct dcmi_event_filter filter, struct dcmi_event *event)
{
    struct target target = who(card_id, device_id);
    BEGIN(dcmi_get_fault_event, target,
          event != NULL && timeout >= -1 && timeout <= LONGEST_READ_MS);
    int64_t end_ns = monotonic_ns() + timeout * MS;
    for (;;) {
        bool found;
        int code = read_event(&call, target, filter, event, &found);
        if (code != DCMI_OK || found)
            return call_finish(&call, code);
        int64_t left_ms = (end_ns - monotonic_ns() + MS - 1) / MS;
        if (timeout >= 0 && left_ms <= 0)
            return call_finish(&call, DCMI_TIMEOUT);
        code = call_wait(&call, &call.state->event_word,
                         timeout < 0 ? LOOK_AGAIN_MS : left_ms);
        if (code != DCMI_OK)
            return code;
    }
}
