/* Answers of the A5 tool (dcmi#7.2 and 7.5). Each chip has two Ethernet ports; those of an
 * A5 have one of the unified bus besides. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "hccn.h"

static const unsigned ports[] = {4, 5};

enum { UB_PORT = 7, PORTS = sizeof ports / sizeof *ports };

static void table_of_port(const char *title, const char *value, const struct request *request,
                          const struct link_state *link, unsigned chip)
{
    static const char line[] = "+-----+------+------+----------------+-----+-------+--------+\n";
    printf("%s| NPU | UDie | Port | %-14s | Cap | Width | Status |\n%s", line, title, line);
    printf("| %-3u | %-4u | %-4u | %-14s | X4  | X4    | %-6s |\n%s", chip, request->udie,
           request->port, value, link->down ? "down" : "normal", line);
}

static void answer_bandwidth(const struct request *request, const struct link_state *link,
                             unsigned chip)
{
    const char *value = link->down ? "0.00 MB/sec" : "4.10 MB/sec";
    if (request->device == NULL) {
        table_of_port("Bandwidth TX", value, request, link, chip);
        table_of_port("Bandwidth RX", value, request, link, chip);
        return;
    }
    for (size_t port = 0; port < PORTS; port++)
        printf("[dev_name: %s_%u]\nBandwidth TX: %s\nBandwidth RX: %s\n", request->device,
               ports[port], value, value);
}

static void answer_dev_info(const struct request *request, const struct link_state *link)
{
    static const char line[] =
        "+---------+---------+---------------------+-----------+-------------+------------+\n";
    printf("%s| UDie ID | Port ID | Speed Ability(Gbps) | Port Type | Link Status | Media Type |\n"
           "%s",
           line, line);
    for (size_t port = 0; port < PORTS; port++) {
        bool is_down = link->down;
        if (request->has_unified_bus)
            is_down = link->down > port || (port == 0 && request->is_uboe_down);
        printf("| 0       | %-7u | 200                 | ETH       | %-11s | Optical    |\n",
               ports[port], is_down ? "DOWN" : "UP");
    }
    if (request->has_unified_bus)
        printf("| 1       | %-7u | 200                 | UB        | %-11s | Electrical |\n",
               UB_PORT, request->is_ub_down ? "DOWN" : "UP");
    printf("%s", line);
}

static void answer_optical(const struct request *request, const struct link_state *link,
                           unsigned chip)
{
    static const char line[] = "+-----+------+------+--------------+-----------+\n";
    static const char header[] = "| NPU | UDie | Port | Item         | Value     |\n";
    char place[64];
    snprintf(place, sizeof place, "| %-3u | %-4u | %-4u |", chip, request->udie, request->port);
    printf("%s%s%s%s present      | present   |\n%s\n%s%s%s", line, header, line, place, line, line,
           header, line);
    for (int lane = 0; lane < 4; lane++) {
        printf("%s TxPower%-5d | 1.40%02d mW |\n", place, lane, lane);
        printf("%s RxPower%-5d | %s%02d mW |\n", place, lane, link->down ? "0.00" : "1.00",
               link->down ? 0 : lane);
    }
    printf("%s", line);
}

static void answer_link_stat(const struct link_state *link)
{
    hccn_link_times(link, "");
    printf("No.\tTIME\tSTATUS\n");
    for (uint32_t age = 0; age < LINK_RECORDS && age < link->records; age++) {
        const struct link_record *record = &link->history[(link->records - 1 - age) % LINK_RECORDS];
        time_t at = (time_t)record->at_seconds;
        struct tm parts = {0};
        char text[64] = "";
        localtime_r(&at, &parts);
        strftime(text, sizeof text, "%a %b %e %H:%M:%S %Y", &parts);
        printf("%u\t%s\tLINK %s\n", age + 1, text, record->up ? "UP" : "DOWN");
    }
}

int hccn_answer_a5(const struct request *request, const struct link_state *link, unsigned chip)
{
    const char *command = request->command;
    if (strcmp(command, "speed") == 0)
        table_of_port("Speed", link->down ? "NA" : "400 G", request, link, chip);
    else if (strcmp(command, "bandwidth") == 0)
        answer_bandwidth(request, link, chip);
    else if (strcmp(command, "dev_info") == 0)
        answer_dev_info(request, link);
    else if (strcmp(command, "port_info") == 0)
        printf("port_enable: on\nport_type: %s\n", request->port == UB_PORT ? "UB" : "ETH");
    else if (strcmp(command, "optical") == 0)
        answer_optical(request, link, chip);
    else if (strcmp(command, "link_stat") == 0)
        answer_link_stat(link);
    else if (strcmp(command, "stat") == 0)
        printf("core_mib_rxpausepkts : 0\ncore_mib_txpausepkts : 0\ncrc_error_sum : %u\n"
               "retry_req_sum : %u\n",
               3 * link->downs, 7 * link->downs);
    else
        return hccn_answer(request, link, chip);
    return HCCN_OK;
}
