/* Answers of the 910B and A3 tool (docs/spec/dcmi.md#7.2 to 7.4). */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "hccn.h"
#include "links.h"

static int answer_link(const struct request *request, const struct link_state *link, unsigned chip)
{
    (void)request, (void)chip;
    printf("link status: %s\n", link->down ? "DOWN" : "UP");
    return HCCN_OK;
}

static int answer_speed(const struct request *request, const struct link_state *link,
                        unsigned chip)
{
    (void)request, (void)chip;
    printf(link->down ? "Speed: Unknown!\n" : "Speed: 200000 Mb/s\n");
    return HCCN_OK;
}

static int answer_duplex(const struct request *request, const struct link_state *link,
                         unsigned chip)
{
    (void)request, (void)chip;
    printf("Duplex: %s\n", link->down ? "Unknown!" : "Full");
    return HCCN_OK;
}

static void print_time(int64_t seconds)
{
    time_t at = (time_t)seconds;
    struct tm parts = {0};
    char text[64] = "";
    localtime_r(&at, &parts);
    strftime(text, sizeof text, "%a %b %e %H:%M:%S %Y", &parts);
    printf("%s", text);
}

void hccn_link_times(const struct link_state *link, const char *prefix)
{
    printf("%scurrent time        : ", prefix);
    print_time((int64_t)time(NULL));
    printf("\n%slink up count       : %u\n", prefix, link->ups);
    printf("%slink down count     : %u\n", prefix, link->downs);
    printf("%slink change records :%s\n", prefix, link->records == 0 ? " NA" : "");
}

static int answer_link_stat(const struct request *request, const struct link_state *link,
                            unsigned chip)
{
    (void)request;
    char prefix[32];
    snprintf(prefix, sizeof prefix, "[devid %u]", chip);
    hccn_link_times(link, prefix);
    for (uint32_t age = 0; age < LINK_RECORDS && age < link->records; age++) {
        const struct link_record *record = &link->history[(link->records - 1 - age) % LINK_RECORDS];
        printf("%s    ", prefix);
        print_time(record->at_seconds);
        printf("    LINK %s\n", record->up ? "UP" : "DOWN");
    }
    return HCCN_OK;
}

/* Packets of traffic since the reset; each time that the link went down cost a few. */
static int answer_stat(const struct request *request, const struct link_state *link, unsigned chip)
{
    static const char *const names[] = {
        "mac_tx_mac_pause_num", "mac_rx_mac_pause_num", "mac_tx_pfc_pkt_num",
        "mac_tx_pfc_pri0_pkt_num", "mac_tx_pfc_pri1_pkt_num", "mac_tx_pfc_pri2_pkt_num",
        "mac_tx_pfc_pri3_pkt_num", "mac_tx_pfc_pri4_pkt_num", "mac_tx_pfc_pri5_pkt_num",
        "mac_tx_pfc_pri6_pkt_num", "mac_tx_pfc_pri7_pkt_num", "mac_rx_pfc_pkt_num",
        "mac_rx_pfc_pri0_pkt_num", "mac_rx_pfc_pri1_pkt_num", "mac_rx_pfc_pri2_pkt_num",
        "mac_rx_pfc_pri3_pkt_num", "mac_rx_pfc_pri4_pkt_num", "mac_rx_pfc_pri5_pkt_num",
        "mac_rx_pfc_pri6_pkt_num", "mac_rx_pfc_pri7_pkt_num", "mac_tx_total_pkt_num",
        "mac_tx_total_oct_num", "mac_tx_bad_pkt_num", "mac_tx_bad_oct_num",
        "mac_rx_total_pkt_num", "mac_rx_total_oct_num", "mac_rx_bad_pkt_num",
        "mac_rx_bad_oct_num", "mac_rx_fcs_err_pkt_num", "roce_rx_rc_pkt_num",
        "roce_rx_all_pkt_num", "roce_rx_err_pkt_num", "roce_tx_rc_pkt_num",
        "roce_tx_all_pkt_num", "roce_tx_err_pkt_num", "roce_cqe_num", "roce_rx_cnp_pkt_num",
        "roce_tx_cnp_pkt_num", "roce_unexpected_ack_num", "roce_out_of_order_num",
        "roce_verification_err_num", "roce_qp_status_err_num", "roce_new_pkt_rty_num",
        "roce_ecn_db_num", "nic_tx_all_pkg_num", "nic_tx_all_oct_num", "nic_rx_all_pkg_num",
        "nic_rx_all_oct_num",
    };
    (void)request, (void)chip;
    unsigned long long packets = (unsigned long long)(link_carried_ns(link, monotonic_ns()) / MS);
    printf("packet statistics:\n");
    for (size_t index = 0; index < sizeof names / sizeof *names; index++) {
        const char *name = names[index];
        unsigned long long value = 0;
        if (strstr(name, "_rx_bad_pkt") != NULL || strstr(name, "_fcs_err_") != NULL)
            value = 3ull * link->downs;
        else if (strstr(name, "_rx_bad_oct") != NULL)
            value = 4096ull * 3 * link->downs;
        else if (strcmp(name, "roce_new_pkt_rty_num") == 0)
            value = 7ull * link->downs;
        else if (strstr(name, "_total_") != NULL || strstr(name, "_all_") != NULL ||
                 strstr(name, "_rc_pkt_") != NULL)
            value = packets * (strstr(name, "_oct_") != NULL ? 4096 : 1);
        printf("%s:%llu\n", name, value);
    }
    return HCCN_OK;
}

static int answer_optical(const struct request *request, const struct link_state *link,
                          unsigned chip)
{
    if (request->word != NULL && strcmp(request->word, "dfx_cfg") == 0) {
        printf("optical dfx info:\nloopback status    : no loopback mode\n"
               "tx disable status  : 0x0\n");
        return HCCN_OK;
    }
    static const double tx_power[] = {1.4035, 1.3968, 1.4140, 1.4988};
    static const double rx_power[] = {1.0189, 1.0054, 0.9907, 1.0213};
    static const double bias[] = {7.9360, 7.9280, 7.9360, 7.9240};
    static const double snr[] = {23.1211, 22.6289, 22.1875, 23.2969};
    printf("optical info:\n");
    printf("%-21s: present\n%-21s: %u C\n", "present", "temperature", 45 + chip % 4);
    printf("high power enable reg: enabled\n%-21s: Hisense\n", "vendor name");
    printf("%-21s: LMQ8611-PC+\n", "vendor part number");
    printf("%-21s: V8BD6H2%05u\n", "vendor serial number", 5033 + chip);
    printf("%-21s: 0xac 0x4a 0x0\n", "vendor org unique id");
    printf("%-21s: QSFP+ or later\n%-21s: 850 nm\n", "xsfp identifier", "xsfp wave length");
    printf("%-21s: 2023.6.18\n%-21s: 3262.90 mV\n", "manufact date code", "Vcc");
    for (int lane = 0; lane < 4; lane++) {
        printf("Tx Power%-13d: %.4f mW\n", lane, tx_power[lane]);
        printf("Rx Power%-13d: %.4f mW\n", lane, link->down ? 0.0 : rx_power[lane]);
    }
    printf("%-21s: 3465.00 mV\n%-21s: 3135.00 mV\n", "Vcc High Thres", "Vcc Low Thres");
    printf("%-21s: 70 C\n%-21s: 0 C\n", "Temp High Thres", "Temp Low Thres");
    printf("%-21s: 3.5481 mW\n%-21s: 0.2818 mW\n", "TxPower High Thres", "TxPower Low Thres");
    printf("%-21s: 3.5481 mW\n%-21s: 0.1445 mW\n", "RxPower High Thres", "RxPower Low Thres");
    for (int lane = 0; lane < 4; lane++)
        printf("Tx Bias%-14d: %.4f mA\n", lane, bias[lane]);
    const char *lost = link->down ? "0xff" : "0x0";
    printf("%-21s: 0x0\n%-21s: %s\n", "Tx Los Flag", "Rx Los Flag", lost);
    printf("%-21s: 0x0\n%-21s: %s\n", "Tx LoL Flag", "Rx LoL Flag", lost);
    for (int lane = 0; lane < 4; lane++)
        printf("Host SNR Lane%-8d: not supported\n", lane);
    for (int lane = 0; lane < 4; lane++)
        printf("Media SNR Lane%-7d: %.4f dB\n", lane, link->down ? 0.0 : snr[lane]);
    return HCCN_OK;
}

static int answer_bandwidth(const struct request *request, const struct link_state *link,
                            unsigned chip)
{
    (void)request, (void)chip;
    double rate = link->down ? 0.0 : 4.1;
    printf("Bandwidth TX: %.2f MB/sec\nBandwidth RX: %.2f MB/sec\n", rate, rate);
    return HCCN_OK;
}

static int answer_net_health(const struct request *request, const struct link_state *link,
                             unsigned chip)
{
    (void)request, (void)chip;
    printf("net health status: %s\n", link->down ? "Fault" : "Success");
    return HCCN_OK;
}

/* What does not change with the link: FORMAT takes the chip. */
static const struct {
    const char *command;
    const char *format;
} settings[] = {
    {"gateway", "default gateway:192.168.100.1, Iface:eth%u\n"},
    {"netdetect", "netdetect addr: 192.168.100.1\n"},
    {"tls", "dev_id:%u, tls switch[0](0:disable, 1:enable), tls preconfigured[1](0:non-preset, "
            "1:preset), tls alarm time threshold[60]days\n"},
    {"fec", "fec mode: rs FEC mode\n"},
    {"mac", "mac addr: 00:11:22:33:44:%02x\n"},
    {"mtu", "mtu:1500\n"},
};

static int answer_ip(const struct request *request, const struct link_state *link, unsigned chip)
{
    unsigned char address[4];
    if (request->inet6) {
        printf("ipv6_address:fd00::%x\nprefix_length:64\n", 16 + chip);
        return HCCN_OK;
    }
    if (!link_address(link, chip, address))
        return HCCN_FAILED;
    printf("ipaddr:%u.%u.%u.%u\nnetmask:255.255.255.0\n", address[0], address[1], address[2],
           address[3]);
    return HCCN_OK;
}

static int answer_lldp(const struct request *request, const struct link_state *link, unsigned chip)
{
    (void)request;
    if (link->down)
        return HCCN_LINK_DOWN;
    printf("Chassis ID TLV\n\tMAC: 0c:45:ba:00:00:01\nPort ID TLV\n\tIfname: 400GE1/1/%u:1\n"
           "Time to Live TLV\n\t120\nSystem Name TLV\n\tleaf-1\nSystem Description TLV\n"
           "\tData centre switch\nManagement Address TLV\n\tIPv4: 192.168.100.1\n"
           "Maximum Frame Size TLV\n\t9216\nEnd of LLDPDU TLV\n",
           1 + chip);
    return HCCN_OK;
}

static int answer_scdr(const struct request *request, const struct link_state *link, unsigned chip)
{
    static const char *const sides[] = {"Host", "Media", "His Host", "His Media"};
    (void)request, (void)chip;
    for (size_t side = 0; side < sizeof sides / sizeof *sides; side++) {
        for (int lane = 0; lane < 4; lane++) {
            char key[48];
            snprintf(key, sizeof key, "Cdr %s SNR Lane%d", sides[side], lane);
            printf("%-27s: %.4f dB\n", key, link->down ? 0.0 : 23.1211 - 0.25 * lane);
        }
    }
    return HCCN_OK;
}

static int answer_ping(const struct request *request, const struct link_state *link, unsigned chip)
{
    if (request->address == NULL)
        return HCCN_WRONG_COUNT;
    if (link->down)
        return HCCN_LINK_DOWN;
    long packets = request->count > 0 ? request->count : 3;
    printf("device %u PING %s\n", chip, request->address);
    for (long packet = 0; packet < packets; packet++)
        printf("recv seq=%ld,time=0.154000ms\n", packet);
    printf("%ld packets transmitted, %ld received, 0.00%% packet loss\n", packets, packets);
    return HCCN_OK;
}

int hccn_answer(const struct request *request, const struct link_state *link, unsigned chip)
{
    static const struct {
        const char *command;
        int (*answer)(const struct request *, const struct link_state *, unsigned);
    } answers[] = {
        {"link", answer_link},           {"speed", answer_speed},
        {"link_stat", answer_link_stat}, {"stat", answer_stat},
        {"optical", answer_optical},     {"bandwidth", answer_bandwidth},
        {"ip", answer_ip},               {"net_health", answer_net_health},
        {"lldp", answer_lldp},           {"scdr", answer_scdr},
        {"ping", answer_ping},           {"duplex", answer_duplex},
    };
    for (size_t index = 0; index < sizeof answers / sizeof *answers; index++)
        if (strcmp(answers[index].command, request->command) == 0)
            return answers[index].answer(request, link, chip);
    for (size_t index = 0; index < sizeof settings / sizeof *settings; index++) {
        if (strcmp(settings[index].command, request->command) != 0)
            continue;
        printf(settings[index].format, chip);
        return HCCN_OK;
    }
    return HCCN_NOT_SUPPORTED;
}
