/*
 * Someone else's program: the start-up orders of dcmi#10.2 to 10.4, every value checked.
 * Usage: stranger LIBRARY a2|a3 SYMBOL...   (the symbols that MindCluster resolves)
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "vendor.h"

static void *library;
static const char *path;
static char **symbols;
static int symbol_count;
static int a3;
static int failures;

#define SAME(actual, expected)                                                                \
    do {                                                                                      \
        long long got_ = (long long)(actual), want_ = (long long)(expected);                  \
        if (got_ != want_) {                                                                  \
            printf("line %d: %s is %lld, not %lld\n", __LINE__, #actual, got_, want_);        \
            failures++;                                                                       \
        }                                                                                     \
    } while (0)
#define TEXT(actual, expected)                                                                \
    do {                                                                                      \
        if (strcmp((const char *)(actual), (expected)) != 0) {                                \
            printf("line %d: %s is '%s', not '%s'\n", __LINE__, #actual,                      \
                   (const char *)(actual), (expected));                                       \
            failures++;                                                                       \
        }                                                                                     \
    } while (0)

static void *find(const char *name)
{
    void *function = dlsym(library, name);
    if (function == NULL) {
        printf("%s is missing\n", name);
        exit(1);
    }
    return function;
}

typedef int (*chip_call_t)(int, int, void *);
typedef int (*card_call_t)(int, void *);

static int on_chip(const char *name, int card, int die, void *out)
{
    return ((chip_call_t)find(name))(card, die, out);
}

static int on_card(const char *name, int card, void *out)
{
    return ((card_call_t)find(name))(card, out);
}

static void open_library(void)
{
    library = dlopen(path, RTLD_LAZY | RTLD_GLOBAL);
    if (library == NULL) {
        printf("%s\n", dlerror());
        exit(1);
    }
    for (int index = 0; index < symbol_count; index++)
        find(symbols[index]);
}

static int initialise(void)
{
    return ((int (*)(void))find("dcmi_init"))();
}

static int list_cards(int ids[64])
{
    int count = -1;
    memset(ids, 0xAA, 64 * sizeof *ids);
    SAME(((int (*)(int *, int *, int))find("dcmi_get_card_list"))(&count, ids, 64), 0);
    SAME(count, 8);
    for (int slot = 0; slot < 64; slot++)
        SAME(ids[slot], slot < 8 ? slot : 0);
    return count;
}

static int dies_of(int card)
{
    int dies = -1;
    SAME(on_card("dcmi_get_device_num_in_card", card, &dies), 0);
    SAME(dies, a3 ? 2 : 1);
    return dies;
}

static void check_chip_info(int card, int die)
{
    chip_info_v2_t info;
    memset(&info, 0xAA, sizeof info);
    SAME(on_chip("dcmi_get_device_chip_info_v2", card, die, &info), 0);
    TEXT(info.type, "Ascend");
    TEXT(info.name, a3 ? "Ascend910" : "910B3");
    TEXT(info.version, "V1");
    TEXT(info.npu, a3 ? "9392" : "910B3");
    SAME(info.cores, a3 ? 24 : 20);
    SAME(info.name[31], 0);
    chip_info_t older;
    SAME(on_chip("dcmi_get_device_chip_info", card, die, &older), 0);
    TEXT(older.name, a3 ? "Ascend910" : "910B3");
    SAME(older.cores, a3 ? 24 : 20);
}

static void check_board(int card, int die)
{
    board_t board;
    SAME(on_chip("dcmi_get_device_board_info", card, die, &board), 0);
    SAME(board.board, a3 ? 0xB0 : 0x32);
    SAME(board.pcb, 0);
    SAME(board.bom, 1);
    SAME(board.slot, card);
}

static int logic_of(int card, int die)
{
    int logic = -1;
    SAME(((int (*)(int *, int, int))find("dcmi_get_device_logic_id"))(&logic, card, die), 0);
    SAME(logic, a3 ? 2 * card + die : card);
    return logic;
}

static void check_way_back(int logic, int card, int die)
{
    int found_card = -1, found_die = -1;
    unsigned id = 99;
    typedef int (*back_t)(int *, int *, unsigned);
    typedef int (*number_t)(unsigned, unsigned *);
    SAME(((back_t)find("dcmi_get_card_id_device_id_from_logicid"))(&found_card, &found_die, logic), 0);
    SAME(found_card, card);
    SAME(found_die, die);
    SAME(((back_t)find("dcmi_get_card_id_device_id_from_phyid"))(&found_card, &found_die, logic), 0);
    SAME(found_card * 4 + found_die, card * 4 + die);
    SAME(((number_t)find("dcmi_get_device_phyid_from_logicid"))(logic, &id), 0);
    SAME(id, logic);
    SAME(((number_t)find("dcmi_get_device_logicid_from_phyid"))(id, &id), 0);
    SAME(id, logic);
}

/* 10.2 */
static void auto_init(void)
{
    int ids[64];
    char version[33];
    open_library();
    SAME(initialise(), 0);
    SAME(dlclose(library), 0);
    open_library();
    SAME(initialise(), 0);
    list_cards(ids);
    list_cards(ids);
    dies_of(0);
    check_chip_info(0, 0);
    list_cards(ids);
    dies_of(0);
    check_board(0, 0);
    SAME(((int (*)(char *, int))find("dcmi_get_dcmi_version"))(version, 33), 0);
    TEXT(version, a3 ? "25.5.0" : "24.1.rc3");
    list_cards(ids);
    dies_of(0);
    unsigned mainboard = 99;
    SAME(on_chip("dcmi_get_mainboard_id", 0, 0, &mainboard), 0);
    SAME(mainboard, a3 ? 0x18 : 0);
    list_cards(ids);
    dies_of(0);
    check_board(0, 0);
    list_cards(ids);
    for (int card = 0; card < 8; card++) {
        char product[65];
        dies_of(card);
        check_way_back(logic_of(card, 0), card, 0);
        SAME(((int (*)(int, int, char *, int))find("dcmi_get_product_type"))(card, 0, product, 65), 0);
        TEXT(product, a3 ? "Atlas 900 A3 SuperPoD" : "Atlas A900T PoD A1");
    }
}

typedef int (*info_t)(int, int, unsigned, unsigned, void *, unsigned *);

/* Asks with exactly SIZE bytes and sees that nothing is written behind them. */
static int device_info(int card, int die, unsigned main_command, unsigned sub, void *out, unsigned size)
{
    unsigned char buffer[2048];
    unsigned written = size;
    memset(buffer, 0xAA, sizeof buffer);
    int code = ((info_t)find("dcmi_get_device_info"))(card, die, main_command, sub, buffer, &written);
    if (code == 0)
        SAME(written, size);
    for (unsigned byte = code == 0 ? size : 0; byte < sizeof buffer; byte++)
        if (buffer[byte] != 0xAA) {
            printf("device info %u/%u writes byte %u\n", main_command, sub, byte);
            failures++;
            break;
        }
    memcpy(out, buffer, size);
    unsigned less = size - 1;
    int wanted = code == -8255 ? -8255 : -8001;
    SAME(((info_t)find("dcmi_get_device_info"))(card, die, main_command, sub, buffer, &less), wanted);
    return code;
}

static void check_resources(int card, int die)
{
    total_t total;
    free_t left;
    uint8_t zero[208] = {0};
    SAME(device_info(card, die, 52, 1, &total, sizeof total), 0);
    SAME(memcmp(total.before, zero, sizeof total.before), 0);
    SAME(total.cores, a3 ? 24 : 20);
    SAME(total.memory, 65536);
    SAME(device_info(card, die, 52, 2, &left, sizeof left), 0);
    SAME(left.cores, a3 ? 24 : 20);
}

static void check_address(int card, int die, int logic)
{
    typedef int (*address_t)(int, int, int, int, ip_t *, ip_t *);
    ip_t ip = {.type = 0}, mask = {.type = 0};
    SAME(((address_t)find("dcmi_get_device_ip"))(card, die, 1, 0, &ip, &mask), 0);
    SAME(ip.address[0] << 24 | ip.address[1] << 16 | ip.address[2] << 8 | ip.address[3],
         (int)(192u << 24 | 168 << 16 | 100 << 8) | (10 + logic));
    SAME(mask.address[2] << 8 | mask.address[3], 255 << 8);
    SAME(ip.type, 0);
    ip.type = 1;
    SAME(((address_t)find("dcmi_get_device_ip"))(card, die, 1, 0, &ip, &mask) < 0, 1);
}

static void check_pod(int card, int die, int logic)
{
    pod_t pod;
    SAME(device_info(card, die, 12, 1, &pod, sizeof pod), a3 ? 0 : -8255);
    if (!a3)
        return;
    SAME(pod.sdid, card << 18 | die << 16 | logic);
    SAME(pod.scale, 384);
    SAME(pod.pod, 0);
    SAME(pod.server, 0);
}

static void check_quiet(int card, int die)
{
    typedef int (*codes_t)(int, int, int *, unsigned *, unsigned);
    unsigned codes[128], health = 9;
    int count = -1;
    memset(codes, 0xAA, sizeof codes);
    SAME(((codes_t)find("dcmi_get_device_errorcode_v2"))(card, die, &count, codes, 128), 0);
    SAME(count, 0);
    for (int slot = 0; slot < 128; slot++)
        SAME(codes[slot], 0);
    SAME(on_chip("dcmi_get_device_health", card, die, &health), 0);
    SAME(health, 0);
}

static void ignore(event_t *event)
{
    (void)event;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void check_reset(int card, int die)
{
    typedef int (*pair_t)(int, int);
    int state = 0, status = -1, last = 0, stages = 0;
    SAME(on_chip("dcmi_get_device_boot_status", card, die, &status), 0);
    SAME(status, 16);
    SAME(on_chip("dcmi_get_device_outband_channel_state", card, die, &state), 0);
    SAME(state, 1);
    SAME(((pair_t)find("dcmi_pre_reset_soc"))(card, die), 0);
    SAME(((int (*)(int, int, int))find("dcmi_set_device_reset"))(card, die, 0), 0);
    SAME(((pair_t)find("dcmi_rescan_soc"))(card, die), 0);
    int64_t begin = now_ms();
    do {
        SAME(on_chip("dcmi_get_device_boot_status", card, die, &status), 0);
        SAME(status >= last, 1);
        stages += status != last;
        last = status;
        usleep(20000);
    } while (status != 16 && now_ms() - begin < 10000);
    SAME(status, 16);
    SAME(stages > 1, 1);
}

/* 10.3 */
static void device_plugin(void)
{
    filter_t everything = {0};
    int ids[64], count = list_cards(ids);
    for (int card = 0; card < count; card++)
        for (int die = 0, dies = dies_of(card); die < dies; die++) {
            int type = -1, logic = logic_of(card, die), length = 0;
            char cpus[33];
            pcie_t pcie;
            hbm_t hbm;
            SAME(on_chip("dcmi_get_device_type", card, die, &type), 0);
            SAME(type, 0);
            check_resources(card, die);
            check_way_back(logic, card, die);
            check_address(card, die, logic);
            SAME(((int (*)(int, int, char *, int *))find("dcmi_get_affinity_cpu_info_by_device_id"))(
                     card, die, cpus, &length), 0);
            SAME(length > 0 && length <= 32 && (int)strlen(cpus) == length, 1);
            SAME(on_chip("dcmi_get_device_pcie_info_v2", card, die, &pcie), 0);
            SAME(pcie.vendor, 0x19e5);
            SAME(pcie.device, a3 ? 0xd803 : 0xd802);
            SAME(pcie.domain + pcie.dev + pcie.function, 0);
            check_pod(card, die, logic);
            check_board(card, die);
            SAME(on_chip("dcmi_get_device_hbm_info", card, die, &hbm), 0);
            SAME(hbm.size, 65536);
            SAME(hbm.used, 3395);
            SAME(hbm.mhz, 1600);
            SAME(hbm.temperature, 38);
            SAME(hbm.bandwidth, 0);
        }
    SAME(((int (*)(int))find("dcmi_set_multi_die_policy"))(0), a3 ? 0 : -8255);
    SAME(((subscribe_t)find("dcmi_subscribe_fault_event"))(-1, -1, everything, ignore), 0);
    SAME(((subscribe_t)find("dcmi_subscribe_fault_event"))(-1, -1, everything, ignore), -8020);
    for (int card = 0; card < count; card++)
        for (int die = 0; die < dies_of(card); die++)
            check_quiet(card, die);
    check_reset(count - 1, 0);
}

static int one_unsigned(const char *name, int card, int die, int type, unsigned *out)
{
    return ((int (*)(int, int, int, unsigned *))find(name))(card, die, type, out);
}

static void check_figures(int card, int die, int logic)
{
    unsigned value = 99;
    int number = 99;
    utilization_t all;
    SAME(one_unsigned("dcmi_get_device_frequency", card, die, 7, &value), 0);
    SAME(value, 800);
    SAME(one_unsigned("dcmi_get_device_frequency", card, die, 9, &value), 0);
    SAME(value, a3 ? 1650 : 1800);
    SAME(on_chip("dcmi_get_device_temperature", card, die, &number), 0);
    SAME(number, a3 ? 36 : 38 + logic);
    SAME(on_chip("dcmi_get_device_voltage", card, die, &value), 0);
    SAME(value, 85);
    check_quiet(card, die);
    SAME(on_chip("dcmi_get_device_power_info", card, die, &number), die == 0 ? 0 : -8255);
    if (die == 0)
        SAME(number, a3 ? 1788 : 929);
    SAME(on_chip("dcmi_get_device_network_health", card, die, &number), 0);
    SAME(number, 0);
    SAME(((int (*)(int, int, void *, int))find("dcmi_get_device_multi_utilization_rate_period"))(
             card, die, &all, 1), 0);
    SAME(all.aic + all.aiv + all.aicore + all.npu, 0);
    SAME(on_chip("dcmi_get_device_multi_utilization_rate", card, die, &all), 0);
    for (int type = 12; type <= 14; type++) {
        SAME(one_unsigned("dcmi_get_device_utilization_rate", card, die, type, &value), 0);
        SAME(value, 0);
    }
    SAME(one_unsigned("dcmi_get_device_utilization_rate", card, die, 6, &value), 0);
    SAME(value, 5);
}

static void check_memory(int card, int die)
{
    struct { ecc_t ecc; uint8_t behind[8]; } guarded;
    process_t processes[32];
    int count = 9;
    memset(&guarded, 0xAA, sizeof guarded);
    SAME(((int (*)(int, int, int, ecc_t *))find("dcmi_get_device_ecc_info"))(card, die, 2, &guarded.ecc), 0);
    SAME(guarded.ecc.enabled, 1);
    for (int counter = 0; counter < 6; counter++)
        SAME(guarded.ecc.counter[counter], 0);
    for (int byte = 0; byte < 8; byte++)
        SAME(guarded.behind[byte], 0xAA);
    memset(processes, 0xAA, sizeof processes);
    SAME(((int (*)(int, int, process_t *, int *))find("dcmi_get_device_resource_info"))(
             card, die, processes, &count), 0);
    SAME(count, 0);
    for (int slot = 0; slot < 32; slot++)
        SAME(processes[slot].pid | (int)processes[slot].bytes, 0);
}

static void check_links(int card, int die)
{
    static hccs64_t before, after;
    static hccs32_t narrow;
    sio_t sio;
    SAME(device_info(card, die, 16, 5, &before, sizeof before), 0);
    usleep(20000);
    SAME(device_info(card, die, 16, 5, &after, sizeof after), 0);
    SAME(device_info(card, die, 16, 3, &narrow, sizeof narrow), 0);
    for (int lane = 0; lane < 16; lane++) {
        int is_used = lane >= 1 && lane <= 7;
        SAME(after.tx[lane] > before.tx[lane], is_used);
        SAME(after.rx[lane] > before.rx[lane], is_used);
        SAME(narrow.tx[lane] > 0, is_used);
        SAME(after.crc[lane], 0);
    }
    SAME(device_info(card, die, 56, 0, &sio, sizeof sio), a3 ? 0 : -8255);
    if (a3)
        SAME(sio.tx + sio.rx, 0);
}

static void check_sampling(int card, int die)
{
    hccs_bandwidth_t hccs = {.ms = 100};
    pcie_bandwidth_t pcie = {.ms = 100};
    int64_t begin = now_ms();
    SAME(on_chip("dcmi_get_hccs_link_bandwidth_info", card, die, &hccs), 0);
    SAME(now_ms() - begin >= 99 && hccs.ms == 100, 1);
    begin = now_ms();
    SAME(on_chip("dcmi_get_pcie_link_bandwidth_info", card, die, &pcie), 0);
    SAME(now_ms() - begin >= 99 && pcie.ms == 100, 1);
    hccs.ms = 1001;
    pcie.ms = 2001;
    SAME(on_chip("dcmi_get_hccs_link_bandwidth_info", card, die, &hccs), -8001);
    SAME(on_chip("dcmi_get_pcie_link_bandwidth_info", card, die, &pcie), -8001);
}

/* 10.4 */
static void exporter(void)
{
    static const int a3_bus[] = {0x9D, 0x9F, 0x99};
    static const int a2_bus[] = {0xC1, 0x81, 0x41};
    int ids[64], count = list_cards(ids);
    die_t seen[16];
    for (int card = 0; card < count; card++)
        for (int die = 0, dies = dies_of(card); die < dies; die++) {
            int logic = logic_of(card, die);
            pcie_t pcie;
            label_t label;
            check_way_back(logic, card, die);
            check_chip_info(card, die);
            check_board(card, die);
            SAME(((int (*)(int, int, int, die_t *))find("dcmi_get_device_die_v2"))(
                     card, die, 1, &seen[logic]), 0);
            for (int other = 0; other < logic; other++)
                SAME(memcmp(&seen[other], &seen[logic], sizeof *seen) != 0, 1);
            SAME(on_chip("dcmi_get_device_pcie_info_v2", card, die, &pcie), 0);
            if (logic < 3)
                SAME(pcie.bus, (a3 ? a3_bus : a2_bus)[logic]);
            SAME(on_card("dcmi_get_card_elabel_v2", card, &label), 0);
            TEXT(label.maker, "Huawei");
            SAME(strncmp(label.serial, "2102", 4), 0);
            check_figures(card, die, logic);
            check_memory(card, die);
        }
    SAME(seen[0].word[0], 0x185011D4);
    check_links(0, 0);
    check_sampling(0, 0);
    SAME(on_chip("dcmi_get_device_memory_info_v3", 0, 0, seen), -8255);
}

int main(int argc, char **argv)
{
    path = argv[1];
    a3 = strcmp(argv[2], "a3") == 0;
    symbols = argv + 3;
    symbol_count = argc - 3;
    auto_init();
    device_plugin();
    auto_init(); /* a second manager in the process, while the subscription is active */
    exporter();
    printf("%d failures\n", failures);
    return failures != 0;
}
