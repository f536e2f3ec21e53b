/*
 * Uses the switch library as the vendor's header declares it: subscribes and prints each event as a
 * line of JSON, until its standard input ends.
 * Usage: watch_switch LIBRARY FLAG EVENT_TYPE SUB_TYPE SEVERITY CHIP
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

typedef struct {
    uint32_t type, sub_type;
    uint16_t peer, peer_port, chip, port;
    uint8_t severity, assertion;
    char reserve[6];
    uint32_t serial, notification;
    uint64_t raised;
    uint8_t param[40];
    char info[32];
} event_t;

typedef struct {
    uint32_t flag, type, sub_type;
    uint8_t severity;
    uint32_t chip;
} filter_t;

typedef int (*subscribe_t)(filter_t, void (*)(event_t *));

static void print(event_t *event)
{
    struct timespec now;
    char thread[16];
    clock_gettime(CLOCK_MONOTONIC, &now);
    prctl(PR_GET_NAME, thread);
    printf("{\"at_ns\": %lld, \"thread\": \"%s\", \"type\": %u, \"sub_type\": %u, \"peer\": %u, "
           "\"peer_port\": %u, \"chip\": %u, \"port\": %u, \"severity\": %u, \"assertion\": %u, "
           "\"serial\": %u, \"notification\": %u, \"raised\": %llu}\n",
           now.tv_sec * 1000000000LL + now.tv_nsec, thread, event->type, event->sub_type,
           event->peer, event->peer_port, event->chip, event->port, event->severity,
           event->assertion, event->serial, event->notification,
           (unsigned long long)event->raised);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc != 7 || sizeof(event_t) != 112 || sizeof(filter_t) != 20)
        return 2;
    void *library = dlopen(argv[1], RTLD_LAZY | RTLD_GLOBAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*init)(void) = (int (*)(void))dlsym(library, "lq_dcmi_init");
    subscribe_t subscribe = (subscribe_t)dlsym(library, "lq_dcmi_subscribe_fault_event");
    filter_t filter = {
        .flag = strtoul(argv[2], NULL, 0),
        .type = strtoul(argv[3], NULL, 0),
        .sub_type = strtoul(argv[4], NULL, 0),
        .severity = (uint8_t)atoi(argv[5]),
        .chip = strtoul(argv[6], NULL, 0),
    };
    int code = init();
    if (code == 0)
        code = subscribe(filter, print);
    printf("%d\n", code);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
