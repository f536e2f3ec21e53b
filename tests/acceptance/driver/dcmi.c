/* A libdcmi.so for acceptance tests, written from the ABI alone (dcmi#2, 4.1, 4.4, 5).
 *
 * Everything it does is read from plain files in "<driver root>/control", at each call:
 *
 *   chips                     one chip a line: card device logic physical
 *   codes.<physical>          one code a line: hex code, listed from, listed until (epoch ms)
 *   health.<physical>         the health word
 *   die.<physical>            the five words of the die, in hexadecimal; none: not supported
 *   serial.<card>             the serial number of the card; none: not supported
 *   virtual.<physical>        how many virtual devices the chip is cut into
 *   answer.<function>[.<id>]  return code
 *   wrong.<function>[.<id>]   the number to answer instead of the right one
 *   slow.<function>[.<id>]    milliseconds before it answers
 *   hang.<function>[.<id>]    does not return while the file is there
 *   crash.<function>[.<id>]   SIGSEGV
 *   events                    one event a line, delivered when it is appended:
 *                             logic code severity assertion serial raised-time name
 *   slow.events               milliseconds between looks for events
 *
 * <id> is the logic id, or the card id where the function takes only a card. Two calls at a time
 * in one process leave the file "concurrent". NO_CHIP_INFO_V2, NO_MAINBOARD, NO_SUBSCRIBE, NO_INIT,
 * SECOND_GENERATION leave symbols out. What other libraries do differently:
 *
 *   OPTIONAL_ANSWER=<code>    functions that not every library has are there, and all answer this
 *   TURNED_CODES              the list of codes has another order at each call
 *   A_THREAD_FOR_EACH_EVENT   several may call the handler at a time
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct chip { int card, device, logic, physical; };
struct chip_info { unsigned char type[32], name[32], version[32]; unsigned int cores; };
struct chip_info_v2 { struct chip_info old; unsigned char npu_name[32]; };
struct board_info { unsigned int board_id, pcb_id, bom_id, slot_id; };
struct super_pod { unsigned int sdid, size, pod, server, chassis, type, reserve[6]; };
struct filter { uint64_t flag; unsigned int event; unsigned char severity, node_type, reserve[32]; };
struct fault_event {
    unsigned int event_id; uint16_t logic;
    unsigned char node_type, node_id, sub_node_type, sub_node_id, severity, assertion;
    int serial, notification; uint64_t raised;
    char name[256], information[32]; unsigned char reserve[32];
};
struct event { int type; struct fault_event fault; };
_Static_assert(sizeof(struct chip_info) == 100 && sizeof(struct chip_info_v2) == 132, "4.1");
_Static_assert(sizeof(struct board_info) == 16 && sizeof(struct super_pod) == 48, "4.1");
_Static_assert(sizeof(struct filter) == 48 && sizeof(struct fault_event) == 352, "4.1");
_Static_assert(sizeof(struct event) == 360, "4.1");

enum { INVALID = -8001, INTERNAL = -8005, NO_DEVICE = -8008, NOT_READY = -8012, OCCUPIED = -8020 };
enum { UNSUPPORTED = -8255, NOBODY = -1 };

static char control[4096];
static atomic_int inside;
static int initialised;

static void locate(void)
{
    Dl_info self;
    if (control[0] || !dladdr((void *)locate, &self))
        return;
    char path[2048];
    snprintf(path, sizeof path, "%s", self.dli_fname);
    for (int up = 0; up < 3; up++) {
        char *slash = strrchr(path, '/');
        if (slash)
            *slash = 0;
    }
    snprintf(control, sizeof control, "%s/control", path);
}

static FILE *open_file(const char *mode, const char *format, ...)
{
    char name[256], path[4400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    snprintf(path, sizeof path, "%s/%s", control, name);
    return fopen(path, mode);
}

static int number_in(FILE *file, long long *value)
{
    if (!file)
        return 0;
    if (fscanf(file, "%lld", value) != 1)
        *value = 0;
    fclose(file);
    return 1;
}

static int is_set(const char *what, const char *function, int id, long long *value)
{
    if (id != NOBODY && number_in(open_file("r", "%s.%s.%d", what, function, id), value))
        return 1;
    return number_in(open_file("r", "%s.%s", what, function), value);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static int chips(struct chip *all)
{
    FILE *file = open_file("r", "chips");
    int count = 0;
    struct chip *c = all;
    while (file && count < 64 &&
           fscanf(file, "%d %d %d %d", &c->card, &c->device, &c->logic, &c->physical) == 4)
        count++, c++;
    if (file)
        fclose(file);
    return count;
}

static int find(int card, int device, struct chip *found)
{
    struct chip all[64];
    int count = chips(all);
    for (int i = 0; i < count; i++)
        if (all[i].card == card && all[i].device == device) {
            *found = all[i];
            return 1;
        }
    return 0;
}

static void leave(int *unused)
{
    (void)unused;
    atomic_fetch_sub(&inside, 1);
}

/* What is the same for all calls: 0, or the return code that the test wants. */
static int enter(const char *function, int id)
{
    long long value;
    locate();
    if (atomic_fetch_add(&inside, 1) > 0) {
        FILE *file = open_file("w", "concurrent");
        if (file)
            fclose(file);
    }
    if (is_set("slow", function, id, &value))
        usleep(value * 1000);
    while (is_set("hang", function, id, &value))
        usleep(20000);
    if (is_set("crash", function, id, &value))
        raise(SIGSEGV);
    if (is_set("answer", function, id, &value))
        return (int)value;
    return 0;
}

#define ENTER(id) \
    __attribute__((cleanup(leave))) int guard = enter(__func__, id); \
    if (guard) \
        return guard; \
    if (!initialised) \
        return NOT_READY
#define CHIP(card, device) \
    struct chip chip = {0}; \
    locate(); \
    int known = find(card, device, &chip); \
    ENTER(known ? chip.logic : NOBODY); \
    if (!known) \
        return NO_DEVICE
#define WRONG(id, target) \
    do { \
        long long wrong; \
        if (is_set("wrong", __func__, id, &wrong)) \
            (target) = wrong; \
    } while (0)

#ifdef SECOND_GENERATION
int dcmi_init(void) { return UNSUPPORTED; }
int dcmiv2_init(void) { return 0; }
#elif !defined(NO_INIT)
int dcmi_init(void)
{
    __attribute__((cleanup(leave))) int guard = enter(__func__, NOBODY);
    initialised = guard == 0;
    return guard;
}
#endif

int dcmi_get_dcmi_version(char *text, int size)
{
    ENTER(NOBODY);
    long long wrong;
    if (is_set("wrong", __func__, NOBODY, &wrong))
        memset(text, 0xfe, size); /* no end */
    else
        snprintf(text, size, "%s", "9.8.7.stranger");
    return 0;
}

int dcmi_get_card_list(int *number, int *list, int length)
{
    ENTER(NOBODY);
    struct chip all[64];
    int count = chips(all), cards = 0;
    for (int i = 0; i < count; i++) {
        int seen = 0;
        for (int j = 0; j < cards; j++)
            seen |= list[j] == all[i].card;
        if (!seen && cards >= length)
            return INVALID;
        if (!seen)
            list[cards++] = all[i].card;
    }
    *number = cards;
    WRONG(NOBODY, *number);
    return 0;
}

int dcmi_get_device_num_in_card(int card, int *number)
{
    ENTER(card);
    struct chip all[64];
    int count = chips(all);
    *number = 0;
    for (int i = 0; i < count; i++)
        *number += all[i].card == card;
    WRONG(card, *number);
    return *number ? 0 : INVALID;
}

int dcmi_get_device_logic_id(int *logic, int card, int device)
{
    CHIP(card, device);
    *logic = chip.logic;
    WRONG(chip.logic, *logic);
    return 0;
}

int dcmi_get_device_phyid_from_logicid(unsigned int logic, unsigned int *physical)
{
    ENTER((int)logic);
    struct chip all[64];
    int count = chips(all);
    for (int i = 0; i < count; i++)
        if (all[i].logic == (int)logic) {
            *physical = all[i].physical;
            WRONG((int)logic, *physical);
            return 0;
        }
    return INVALID;
}

static void fill(struct chip_info *info, int no_end)
{
    FILE *file = open_file("r", "name");
    char name[32] = "910B2";
    if (file) {
        if (fscanf(file, "%31s", name) != 1)
            name[0] = 0;
        fclose(file);
    }
    memset(info, 0, sizeof *info);
    memcpy(info->type, "Ascend", 6);
    memcpy(info->name, name, strlen(name));
    memcpy(info->version, "V1", 2);
    info->cores = 24;
    if (no_end) {
        memset(info->type, 'x', 32);
        memset(info->version, 0xff, 32);
    }
}

int dcmi_get_device_chip_info(int card, int device, struct chip_info *info)
{
    CHIP(card, device);
    long long wrong;
    fill(info, is_set("wrong", __func__, chip.logic, &wrong));
    return 0;
}

#ifdef OPTIONAL_ANSWER
#define OPTIONAL(name) int name(void) { return OPTIONAL_ANSWER; }
OPTIONAL(dcmi_get_device_chip_info_v2)
OPTIONAL(dcmi_get_mainboard_id)
OPTIONAL(dcmi_get_device_die_v2)
OPTIONAL(dcmi_get_device_hbm_info)
OPTIONAL(dcmi_get_device_ip)
OPTIONAL(dcmi_get_device_network_health)
OPTIONAL(dcmi_get_device_pcie_info_v2)
OPTIONAL(dcmi_get_device_resource_info)
OPTIONAL(dcmi_get_device_utilization_rate)
OPTIONAL(dcmi_get_product_type)
OPTIONAL(dcmi_get_card_elabel_v2)
#define NO_CHIP_INFO_V2
#define NO_MAINBOARD
#else
int dcmi_get_device_die_v2(int card, int device, int type, unsigned int *words)
{
    CHIP(card, device);
    FILE *file = open_file("r", "die.%d", chip.physical);
    if (!file || type != 1) {
        if (file)
            fclose(file);
        return UNSUPPORTED;
    }
    int read = 0;
    while (read < 5 && fscanf(file, "%x", &words[read]) == 1)
        read++;
    fclose(file);
    return read == 5 ? 0 : INTERNAL;
}

/* 256 bytes each: product, model, manufacturer, its date, serial number. */
int dcmi_get_card_elabel_v2(int card, char *label)
{
    ENTER(card);
    FILE *file = open_file("r", "serial.%d", card);
    if (!file)
        return UNSUPPORTED;
    memset(label, 0, 1280);
    int read = fscanf(file, "%255s", label + 1024);
    fclose(file);
    return read == 1 ? 0 : INTERNAL;
}
#endif

#ifndef NO_CHIP_INFO_V2
int dcmi_get_device_chip_info_v2(int card, int device, struct chip_info_v2 *info)
{
    CHIP(card, device);
    long long wrong;
    fill(&info->old, is_set("wrong", __func__, chip.logic, &wrong));
    memset(info->npu_name, 0, 32);
    return 0;
}
#endif

int dcmi_get_device_board_info(int card, int device, struct board_info *info)
{
    CHIP(card, device);
    long long board = 0x31;
    number_in(open_file("r", "board"), &board);
    *info = (struct board_info){(unsigned int)board, 0xFFFFFFFF, 0xFFFFFFFF, card};
    WRONG(chip.logic, info->board_id);
    return 0;
}

#ifndef NO_MAINBOARD
int dcmi_get_mainboard_id(int card, int device, unsigned int *id)
{
    CHIP(card, device);
    *id = 0x1C;
    return 0;
}
#endif

int dcmi_get_device_info(int card, int device, int main_command, unsigned int sub_command,
                         void *buffer, unsigned int *size)
{
    CHIP(card, device);
    long long pod, cut, server = 5;
    if (main_command == 52 && sub_command == 1 &&
        number_in(open_file("r", "virtual.%d", chip.physical), &cut)) {
        if (*size < 360)
            return INVALID;
        memset(buffer, 0, 360);
        memcpy(buffer, &(unsigned int){(unsigned int)cut}, 4);
        memcpy((char *)buffer + 208, &(float){24}, 4);
        return 0;
    }
    number_in(open_file("r", "server"), &server);
    if (main_command != 12 || sub_command != 1 || !number_in(open_file("r", "pod"), &pod))
        return UNSUPPORTED;
    if (*size < sizeof(struct super_pod))
        return INVALID;
    struct super_pod info = {.sdid = chip.logic, .size = 384, .pod = pod, .server = server};
    memcpy(buffer, &info, sizeof info);
    *size = sizeof info;
    return 0;
}

int dcmi_get_device_health(int card, int device, unsigned int *health)
{
    CHIP(card, device);
    long long value = 0;
    number_in(open_file("r", "health.%d", chip.physical), &value);
    *health = (unsigned int)value;
    WRONG(chip.logic, *health);
    return 0;
}

int dcmi_get_device_errorcode_v2(int card, int device, int *count, unsigned int *list,
                                 unsigned int length)
{
    CHIP(card, device);
    FILE *file = open_file("r", "codes.%d", chip.physical);
    unsigned int code, filled = 0;
    long long from, until;
    int64_t now = now_ms();
    memset(list, 0, length * sizeof *list);
    while (file && fscanf(file, "%x %lld %lld", &code, &from, &until) == 3)
        if (from <= now && now < until && filled < length)
            list[filled++] = code;
    if (file)
        fclose(file);
#ifdef TURNED_CODES
    static unsigned int turns;
    turns++;
    for (unsigned int turn = 0; filled && turn < turns % filled; turn++) {
        unsigned int first = list[0];
        memmove(list, list + 1, (filled - 1) * sizeof *list);
        list[filled - 1] = first;
    }
#endif
    *count = (int)filled;
    WRONG(chip.logic, *count);
    return 0;
}

#ifndef NO_SUBSCRIBE
static void (*deliver)(struct event *);
static FILE *events;
static int subscribed;

#ifdef A_THREAD_FOR_EACH_EVENT
static void *deliver_one(void *event)
{
    deliver(event);
    free(event);
    return NULL;
}

static void hand_over(struct event *event)
{
    pthread_t thread;
    struct event *own = malloc(sizeof *own);
    if (!own)
        return;
    *own = *event;
    if (pthread_create(&thread, NULL, deliver_one, own) || pthread_detach(thread))
        deliver_one(own);
}
#else
static void hand_over(struct event *event) { deliver(event); }
#endif

static void *dispatch(void *unused)
{
    static struct event event;
    char line[1024], name[600];
    int logic, severity, assertion, serial, notification = 0;
    unsigned int code;
    long long raised, pause_ms;
    (void)unused;
    for (;;) {
        long begin = ftell(events);
        if (!fgets(line, sizeof line, events) || !strchr(line, '\n')) {
            clearerr(events);
            fseek(events, begin, SEEK_SET);
            if (!is_set("slow", "events", NOBODY, &pause_ms))
                pause_ms = 2;
            usleep(pause_ms * 1000);
            continue;
        }
        name[0] = 0;
        if (sscanf(line, "%d %x %d %d %d %lld %599[^\n]", &logic, &code, &severity, &assertion,
                   &serial, &raised, name) < 6)
            continue;
        memset(&event, 0, sizeof event);
        event.fault.event_id = code;
        event.fault.logic = logic;
        event.fault.node_type = 0x83;
        event.fault.severity = severity;
        event.fault.assertion = assertion;
        event.fault.serial = serial;
        event.fault.notification = ++notification;
        event.fault.raised = raised;
        /* A long name fills the field and has no end. */
        memcpy(event.fault.name, name, strnlen(name, sizeof event.fault.name));
        memset(event.fault.information, 0xee, sizeof event.fault.information);
        hand_over(&event);
        memset(&event, 0x5a, sizeof event);
    }
    return NULL;
}

int dcmi_subscribe_fault_event(int card, int device, struct filter filter,
                               void (*handler)(struct event *))
{
    ENTER(NOBODY);
    if (!handler || card != -1 || device != -1 || filter.flag)
        return INVALID;
    if (subscribed)
        return OCCUPIED;
    events = open_file("r", "events");
    if (!events || fseek(events, 0, SEEK_END))
        return INTERNAL;
    subscribed = 1;
    deliver = handler;
    pthread_t thread;
    if (pthread_create(&thread, NULL, dispatch, NULL))
        return INTERNAL;
    pthread_setname_np(thread, "fault_event");
    return pthread_detach(thread);
}
#endif
