/*
 * Subscribes and prints each event as a line of JSON, until its standard input ends.
 * Usage: watch LIBRARY CARD DEVICE FLAG EVENT_ID SEVERITY NODE_TYPE HANDLER_MS
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "vendor.h"

static int handler_ms;

static void print(event_t *event)
{
    struct timespec now;
    char thread[16];
    const fault_event_t *fault = &event->fault;
    clock_gettime(CLOCK_MONOTONIC, &now);
    prctl(PR_GET_NAME, thread);
    printf("{\"at_ns\": %lld, \"thread\": \"%s\", \"address\": \"%p\", \"type\": %d, "
           "\"code\": \"%08X\", \"deviceid\": %u, \"node_type\": %u, \"node_type_ex\": %u, "
           "\"severity\": %u, \"assertion\": %u, \"serial\": %d, \"notify_serial\": %d, "
           "\"raised\": %llu, \"name\": \"%s\"}\n",
           now.tv_sec * 1000000000LL + now.tv_nsec, thread, (void *)event, event->type,
           fault->event_id, fault->deviceid, fault->node_type,
           fault->reserve[2] | fault->reserve[3] << 8, fault->severity, fault->assertion,
           fault->serial, fault->notify_serial, (unsigned long long)fault->raised, fault->name);
    fflush(stdout);
    usleep(handler_ms * 1000);
}

int main(int argc, char **argv)
{
    if (argc != 9)
        return 2;
    void *library = dlopen(argv[1], RTLD_LAZY | RTLD_GLOBAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*init)(void) = (int (*)(void))dlsym(library, "dcmi_init");
    subscribe_t subscribe = (subscribe_t)dlsym(library, "dcmi_subscribe_fault_event");
    filter_t filter = {
        .flag = strtoull(argv[4], NULL, 0),
        .event_id = (uint32_t)strtoul(argv[5], NULL, 16),
        .severity = (uint8_t)atoi(argv[6]),
        .node_type = (uint8_t)strtoul(argv[7], NULL, 0),
    };
    handler_ms = atoi(argv[8]);
    int code = init();
    if (code == 0)
        code = subscribe(atoi(argv[2]), atoi(argv[3]), filter, print);
    printf("%d\n", code);
    fflush(stdout);
    dlclose(library); /* events go on: the library stays */
    while (getchar() != EOF)
        ;
    return 0;
}
