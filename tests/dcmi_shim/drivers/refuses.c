/* dcmi_init fails while "refuse" is there; subscribing fails while "occupied" is. */
#define OWN_INIT
#define OWN_SUBSCRIBE
#include "base.h"

int dcmi_init(void)
{
    note("opened");
    return is_set("refuse") ? -8005 : 0;
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
    hang_while_set("hang-subscription");
    if (is_set("crash-subscription"))
        abort();
    if (is_set("occupied"))
        return -8020;
    subscriber = to;
    note("subscribed");
    return pthread_create(&thread, NULL, deliver, NULL);
}
