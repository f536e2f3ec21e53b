/* A liblingqu-dcmi.so for acceptance tests, written from the ABI alone (docs/spec/dcmi.md#6).
 *
 * Everything it does is read from plain files in "<driver root>/control", at each call:
 *
 *   switch-faults     one fault a line: type subtype peer peer-port chip port severity raised
 *   switch-events     one event a line, delivered when it is appended: the same, assertion first
 *   answer.<function> return code
 *   hang.<function>   does not return while the file is there
 *   promise           the number of faults that the list claims to hold
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct event {
    uint32_t type, subtype;
    uint16_t peer, peer_port, chip, port;
    uint8_t severity, assertion, reserve[6];
    uint32_t serial, notification;
    uint64_t raised;
    uint8_t parameter[40];
    char information[32];
};
struct filter { uint32_t flag, type, event; uint8_t severity; uint32_t chip; };
_Static_assert(sizeof(struct event) == 112 && sizeof(struct filter) == 20, "6");

enum { INVALID = -8001, NOT_READY = -8009, OCCUPIED = -8014 };

static int initialised, serial;
static FILE *events;
static void (*deliver)(struct event *);

static FILE *control(const char *name)
{
    Dl_info self;
    char path[4200];
    if (!dladdr((void *)control, &self))
        return NULL;
    snprintf(path, sizeof path - 100, "%s", self.dli_fname);
    for (int up = 0; up < 3; up++) {
        char *slash = strrchr(path, '/');
        if (slash)
            *slash = 0;
    }
    strcat(path, "/control/");
    strcat(path, name);
    return fopen(path, "r");
}

static int number(const char *name, int *value)
{
    FILE *file = control(name);
    if (!file)
        return 0;
    if (fscanf(file, "%d", value) != 1)
        *value = 0;
    fclose(file);
    return 1;
}

static int enter(const char *function)
{
    char name[128];
    int value;
    snprintf(name, sizeof name, "hang.%s", function);
    while (number(name, &value))
        usleep(20000);
    snprintf(name, sizeof name, "answer.%s", function);
    return number(name, &value) ? value : 0;
}

static int parse(const char *line, struct event *one)
{
    long long raised;
    unsigned int type, subtype, peer, peer_port, chip, port, severity;
    if (sscanf(line, "%x %u %u %u %u %u %u %lld", &type, &subtype, &peer, &peer_port, &chip, &port,
               &severity, &raised) != 8)
        return 0;
    *one = (struct event){.type = type, .subtype = subtype, .peer = peer, .peer_port = peer_port,
                          .chip = chip, .port = port, .severity = severity, .assertion = 1,
                          .serial = ++serial, .raised = raised};
    memset(one->reserve, 0xee, sizeof one->reserve);
    memset(one->information, 0xfe, sizeof one->information);
    return 1;
}

int lq_dcmi_init(void)
{
    int refused = enter(__func__);
    initialised |= !refused;
    return refused;
}

int lq_dcmi_get_fault_info(unsigned int length, unsigned int *count, struct event *list)
{
    int refused = enter(__func__), promised;
    char line[512];
    if (refused || !initialised)
        return refused ? refused : NOT_READY;
    FILE *file = control("switch-faults");
    *count = 0;
    while (file && *count < length && fgets(line, sizeof line, file))
        *count += parse(line, &list[*count]);
    if (file)
        fclose(file);
    if (number("promise", &promised))
        *count = promised;
    return 0;
}

static void *dispatch(void *unused)
{
    struct event one;
    char line[512];
    (void)unused;
    for (;;) {
        long begin = ftell(events);
        if (!fgets(line, sizeof line, events) || !strchr(line, '\n')) {
            clearerr(events);
            fseek(events, begin, SEEK_SET);
            usleep(5000);
        } else if (parse(line + 2, &one)) {
            one.assertion = line[0] - '0';
            deliver(&one);
            memset(&one, 0x5a, sizeof one);
        }
    }
    return NULL;
}

int lq_dcmi_subscribe_fault_event(struct filter filter, void (*handler)(struct event *))
{
    int refused = enter(__func__);
    if (refused || !initialised)
        return refused ? refused : NOT_READY;
    if (filter.flag || !handler)
        return INVALID;
    if (events)
        return OCCUPIED;
    events = control("switch-events");
    if (!events || fseek(events, 0, SEEK_END))
        return INVALID;
    deliver = handler;
    pthread_t thread;
    return pthread_create(&thread, NULL, dispatch, NULL) || pthread_detach(thread) ? INVALID : 0;
}
