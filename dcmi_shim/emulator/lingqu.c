/* The library of the on-board switches (docs/spec/dcmi.md#6): one initialisation in a process. */
#define _GNU_SOURCE
#include "lingqu_abi.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "call.h"
#include "subscription.h"
#include "switch_faults.h"

enum { MAX_SUBSCRIPTIONS = 15, LOOK_AGAIN_MS = 500, RETRY_US = 20000, VERSION = 0x01000000 };

static struct place place = PLACE_INITIALIZER;

struct subscription {
    lq_dcmi_handler handler; /* NULL: free */
    struct lq_dcmi_event_filter filter;
};

/* Read by the library's thread. */
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct subscription subscriptions[MAX_SUBSCRIPTIONS];

static bool passes(const struct LqDcmiEvent *event, const struct lq_dcmi_event_filter *filter)
{
    uint32_t flag = filter->filterFlag;
    if ((flag & LQ_FILTER_TYPE) && event->eventType != filter->eventTypeId)
        return false;
    if ((flag & LQ_FILTER_SUBTYPE) && event->subType != filter->eventId)
        return false;
    if ((flag & LQ_FILTER_SEVERITY) && event->severity != filter->severity)
        return false;
    return !(flag & LQ_FILTER_CHIP) || event->switchChipid == filter->chipId;
}

/* A handler may subscribe or unsubscribe, so none is called under the lock. */
static void deliver(struct LqDcmiEvent *event)
{
    for (unsigned index = 0; index < MAX_SUBSCRIPTIONS; index++) {
        pthread_mutex_lock(&guard);
        struct subscription one = subscriptions[index];
        pthread_mutex_unlock(&guard);
        if (one.handler != NULL && passes(event, &one.filter))
            one.handler(event);
    }
}

static void *dispatch(void *unused)
{
    static struct LqDcmiEvent event; /* reused, as in the driver: handlers copy what they keep */
    (void)unused;
    dispatcher_begin("lq_dcmi_update");
    for (;;) {
        struct state *state;
        if (state_lock(&attachment, &state) != 0) {
            usleep(RETRY_US);
            continue;
        }
        bool found = false;
        /* In an emulator directory that was made again everything queued since then is news. */
        if (place_is_mine(&place, state) ||
            place_take(&place, state, SWITCH_SUBSCRIBERS, 0) == 0) {
            uint64_t next = place_next(&place, state, state->switch_events);
            found = next < state->switch_events;
            if (found)
                event = state->switch_queue[next % EVENT_QUEUE];
        }
        uint32_t *word = &state->event_word;
        uint32_t seen = *word;
        state_unlock(&attachment);
        if (found)
            deliver(&event);
        else
            word_wait(word, seen, LOOK_AGAIN_MS);
    }
    return NULL;
}

static int open_switches(struct state *state, const struct profile *profile)
{
    if (is_initialised())
        return LQ_INITIALISED_TWICE;
    if (!profile->switches)
        return LQ_DEVICE_OPEN_FAILED;
    int error = place_take(&place, state, SWITCH_SUBSCRIBERS, state->switch_events);
    if (error != 0)
        return error == EBUSY ? LQ_TOO_MANY_PROCESSES : LQ_DEVICE_OPEN_FAILED;
    if (dispatcher_start(dispatch) != 0)
        return LQ_THREAD_FAILED;
    set_initialised();
    return LQ_OK;
}

DCMI_EXPORT int lq_dcmi_init(void)
{
    BEGIN(lq_dcmi_init, NODE, true);
    return call_finish(&call, open_switches(call.state, call.profile));
}

static bool is_valid(const struct lq_dcmi_event_filter *filter)
{
    if ((filter->filterFlag & LQ_FILTER_SEVERITY) && filter->severity > LQ_LARGEST_SEVERITY)
        return false;
    return !(filter->filterFlag & LQ_FILTER_CHIP) || filter->chipId < LQ_CHIPS;
}

static bool is_same(const struct lq_dcmi_event_filter *one,
                    const struct lq_dcmi_event_filter *other)
{
    return one->filterFlag == other->filterFlag && one->eventTypeId == other->eventTypeId &&
           one->eventId == other->eventId && one->severity == other->severity &&
           one->chipId == other->chipId;
}

static struct subscription *find(const struct lq_dcmi_event_filter *filter)
{
    struct subscription *free_one = NULL;
    for (unsigned index = 0; index < MAX_SUBSCRIPTIONS; index++) {
        struct subscription *one = &subscriptions[index];
        if (one->handler != NULL && is_same(&one->filter, filter))
            return one;
        if (one->handler == NULL && free_one == NULL)
            free_one = one;
    }
    return free_one;
}

/* A second subscription with the same filter takes the place of the first. */
static int subscribe(struct lq_dcmi_event_filter filter, lq_dcmi_handler handler)
{
    if (!is_valid(&filter))
        return LQ_INVALID_FILTER;
    pthread_mutex_lock(&guard);
    struct subscription *one = find(&filter);
    int code = LQ_OK;
    if (handler == NULL && (one == NULL || one->handler == NULL))
        code = LQ_NOT_SUBSCRIBED;
    else if (one == NULL)
        code = LQ_TOO_MANY_SUBSCRIPTIONS;
    else
        *one = (struct subscription){handler, filter};
    pthread_mutex_unlock(&guard);
    return code;
}

DCMI_EXPORT int lq_dcmi_subscribe_fault_event(struct lq_dcmi_event_filter filter,
                                              lq_dcmi_handler handler)
{
    BEGIN(lq_dcmi_subscribe_fault_event, NODE, true);
    return call_finish(&call, subscribe(filter, handler));
}

DCMI_EXPORT int lq_dcmi_get_fault_info(unsigned int listLen, unsigned int *eventListLen,
                                       struct LqDcmiEvent *eventList)
{
    BEGIN(lq_dcmi_get_fault_info, NODE, listLen > 0 && eventListLen != NULL && eventList != NULL);
    unsigned int count = switch_faults_listed(call.state, eventList, listLen);
    *eventListLen = count < listLen ? count : listLen;
    return call_finish(&call, LQ_OK);
}

DCMI_EXPORT int lq_dcmi_get_version(unsigned int *driver, unsigned int *library)
{
    BEGIN(lq_dcmi_get_version, NODE, driver != NULL && library != NULL);
    *driver = *library = VERSION;
    return call_finish(&call, LQ_OK);
}

DCMI_EXPORT int lq_dcmi_get_fault_nums(unsigned int *count)
{
    struct LqDcmiEvent unused;
    BEGIN(lq_dcmi_get_fault_nums, NODE, count != NULL);
    *count = switch_faults_listed(call.state, &unused, 0);
    return call_finish(&call, LQ_OK);
}
