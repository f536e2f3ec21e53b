/*
 * A small driver with two cards of one chip each, as the DCMI interface describes it. A test driver
 * defines OWN_<FUNCTION> for what it does differently and includes this file.
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

#include "fault_events.h"
#include "steering.h"

#define CARDS 2

static inline void emit(unsigned int code, unsigned short chip, unsigned char assertion, int serial)
{
    static struct event event;
    memset(&event, 0, sizeof event);
    event.fault.event_id = code;
    event.fault.deviceid = chip;
    event.fault.severity = 2;
    event.fault.assertion = assertion;
    event.fault.event_serial_num = serial;
    event.fault.alarm_raised_time = 1700000000000ULL + (unsigned)serial;
    strcpy(event.fault.event_name, "made by a test");
    subscriber(&event);
}

static void events(void);

#ifndef OWN_EVENTS
/* While "events" is there, events with serials 1, 2, 3, ... every millisecond. */
static void events(void)
{
    for (int serial = 1; is_set("events"); serial++) {
        emit(0x80E01801, 1, 2, serial);
        usleep(1000);
    }
    usleep(1000);
}
#endif

#ifndef OWN_SUBSCRIBE
static void *deliver(void *nothing)
{
    for (;;)
        events();
    return nothing;
}

int dcmi_subscribe_fault_event(int card, int device, struct event_filter filter, fault_handler to)
{
    if (card != -1 || device != -1 || filter.filter_flag || filter.event_id || filter.resv[31] || !to)
        return -8001;
    if (subscriber)
        return -8020;
    subscriber = to;
    note("subscribed");
    pthread_t thread;
    return pthread_create(&thread, NULL, deliver, NULL) ? -8005 : 0;
}
#endif

#ifndef OWN_INIT
int dcmi_init(void)
{
    note("opened");
    return 0;
}
#endif

#ifndef OWN_CARD_LIST
int dcmi_get_card_list(int *count, int *cards, int length)
{
    if (length < CARDS)
        return -8001;
    *count = CARDS;
    for (int card = 0; card < CARDS; card++)
        cards[card] = card;
    return 0;
}
#endif

#ifndef OWN_DEVICES
int dcmi_get_device_num_in_card(int card, int *devices)
{
    *devices = 1;
    return card < CARDS ? 0 : -8001;
}
#endif

#ifndef OWN_LOGIC_ID
int dcmi_get_device_logic_id(int *logic, int card, int device)
{
    *logic = card;
    return device ? -8007 : 0;
}
#endif

#ifndef OWN_PHYSICAL_ID
int dcmi_get_device_phyid_from_logicid(unsigned int logic, unsigned int *physical)
{
    *physical = logic;
    return 0;
}
#endif

#ifndef OWN_CHIP_INFO
int dcmi_get_device_chip_info(int card, int device, void *info)
{
    memset(info, 0, 100);
    strcpy(info, "Ascend");
    int is_other = is_set("other-family") || (card == 1 && is_set("other-family-1"));
    strcpy((char *)info + 32, is_other ? "310P3" : "910B3");
    return card < CARDS && !device ? 0 : -8007;
}
#endif

#ifndef OWN_HEALTH
int dcmi_get_device_health(int card, int device, unsigned int *health)
{
    (void)device;
    hang_while_set(card ? "hang-health-1" : "hang-health-0");
    if (card && is_set("slow-health-1"))
        usleep(650000);
    if (card == 1 && is_set("crash-health-1"))
        raise(SIGSEGV);
    *health = 0;
    return 0;
}
#endif

#ifndef OWN_ERROR_CODES
int dcmi_get_device_errorcode_v2(int card, int device, int *count, unsigned int *codes, unsigned int length)
{
    (void)device;
    hang_while_set(card ? "hang-codes-1" : "hang-codes-0");
    if (length < 1)
        return -8001;
    *count = is_set(card ? "fault-1" : "fault-0");
    if (*count)
        codes[0] = 0x80E01801;
    return 0;
}
#endif
