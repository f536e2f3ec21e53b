/*
 * A small switch library. Its list: fault-1 and fault-2 while files of these names are there, and
 * what "lie-…" makes of it. Its events: those of "events" every millisecond, of "flood" at once.
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

#include "steering.h"

struct event {
    uint32_t type, sub_type;
    uint16_t peer, peer_port, chip, port;
    uint8_t severity, assertion;
    char res[6];
    uint32_t serial, notification;
    uint64_t raised;
    uint8_t param[40];
    char info[32];
};

struct filter {
    uint32_t flag, type, event;
    uint8_t severity;
    uint32_t chip;
};

typedef void (*handler)(struct event *);

static struct event fault(int serial, uint8_t assertion)
{
    struct event event = {0x00f1fef5, 155912, 0, 9, 2, 3, 2, assertion, "", serial, serial,
                          1700000000000ULL + serial, {0}, "made by a test"};
    return event;
}

int lq_dcmi_init(void)
{
    note("opened");
    if (is_set("refuse"))
        return -8004;
    hang_while_set("hang-init");
    return 0;
}

#ifndef WITHOUT_EVENTS
static handler subscriber;

static void emit(struct event event)
{
    static struct event shown;
    shown = event;
    subscriber(&shown);
    memset(&shown, 0xAA, sizeof shown);
}

static void emit_odd(void)
{
    struct event event = fault(1, 1);
    subscriber(NULL);
    memset(&event, 0xFF, sizeof event);
    emit(event);
    event = fault(1, 3);
    emit(event);
    emit(fault(2, 1));
    while (is_set("odd-events"))
        usleep(1000);
}

static void *deliver(void *nothing)
{
    for (;;) {
        for (int serial = 1; is_set("events"); serial++) {
            emit(fault(serial, 2));
            usleep(1000);
        }
        if (is_set("flood")) {
            for (int serial = 1; serial <= 50000; serial++)
                emit(fault(serial, 2));
            note("flooded");
            while (is_set("flood"))
                usleep(1000);
        }
        if (is_set("odd-events"))
            emit_odd();
        usleep(1000);
    }
    return nothing;
}

int lq_dcmi_subscribe_fault_event(struct filter filter, handler to)
{
    pthread_t thread;
    if (filter.flag || filter.type || filter.event || filter.severity || filter.chip || !to)
        return -8015;
    subscriber = to;
    note("subscribed");
    return pthread_create(&thread, NULL, deliver, NULL) ? -8007 : 0;
}
#endif

#ifndef WITHOUT_LIST
int lq_dcmi_get_fault_info(unsigned int length, unsigned int *count, struct event *list)
{
    hang_while_set("hang-list");
    if (is_set("crash-list"))
        raise(SIGSEGV);
    if (is_set("fail-list"))
        return -8005;
    *count = 0;
    for (int number = 1; number <= 2; number++)
        if (is_set(number == 1 ? "fault-1" : "fault-2"))
            list[(*count)++] = fault(number, 1);
    if (is_set("lie-129"))
        *count = 129;
    if (is_set("lie-billions"))
        *count = 0xFFFFFFFF;
    if (is_set("lie-overflow")) /* beyond the list: a caller that leaves no room is damaged */
        for (unsigned int index = 0; index < 3 * length; index++)
            list[index] = fault((int)index, 1);
    if (is_set("lie-overflow"))
        *count = length;
    if (is_set("lie-noise")) {
        memset(list, 0xFF, sizeof *list);
        *count = 1;
    }
    return 0;
}
#endif
