/* dcmi_init fails while "refuse" is there; subscribing fails while "occupied" is. */
#define OWN_INIT
#define OWN_SUBSCRIBE
#include "base.h"

int dcmi_init(void)
{
    note("opened");
    return told("refuse") ? -8005 : 0;
}

static void *deliver(void *nothing)
{
    for (;;)
        events();
    return nothing;
}

int dcmi_subscribe_fault_event(int card, int device, struct event_filter filter, fault_handler to)
{
    pthread_t thread;
    (void)card, (void)device, (void)filter;
    hang_while_told("hang-subscription");
    if (told("crash-subscription"))
        abort();
    if (told("occupied"))
        return -8020;
    subscriber = to;
    note("subscribed");
    return pthread_create(&thread, NULL, deliver, NULL);
}
