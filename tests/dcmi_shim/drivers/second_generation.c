/*
 * A driver for Ascend 950 (dcmi#3): the v1 names answer that they are not supported. Two
 * chips with the ids 0 and 1, which are the physical chips 4 and 5.
 */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "fault_events.h"
#include "steering.h"

enum { CHIPS = 2, FIRST_PHYSICAL = 4, D_DIE = 2, AI_CORE = 2 };

static int is_chip(int id)
{
    return id >= 0 && id < CHIPS;
}

int dcmi_init(void)
{
    return -8255;
}

int dcmi_get_card_list(int *count, int *cards, int length)
{
    (void)count, (void)cards, (void)length;
    return -8255;
}

int dcmiv2_init(void)
{
    return 0;
}

int dcmiv2_get_device_list(int *devices, int *count, int length)
{
    if (length < CHIPS)
        return -8001;
    *count = CHIPS;
    for (int id = 0; id < CHIPS; id++)
        devices[id] = id;
    return 0;
}

int dcmiv2_get_chip_phy_id_by_dev_id(unsigned int id, unsigned int *physical)
{
    *physical = id + FIRST_PHYSICAL;
    return is_chip((int)id) ? 0 : -8007;
}

int dcmiv2_get_device_chip_info(int id, void *info)
{
    memset(info, 0, 132);
    strcpy(info, "Ascend");
    strcpy((char *)info + 32, "Ascend950PR");
    strcpy((char *)info + 64, "V1");
    return is_chip(id) ? 0 : -8007;
}

int dcmiv2_get_device_board_info(int id, unsigned int board[4])
{
    memset(board, 0, 4 * sizeof *board);
    board[0] = 0x23;
    return is_chip(id) ? 0 : -8007;
}

int dcmiv2_get_mainboard_id(int id, unsigned int *board)
{
    *board = 0x25;
    return is_chip(id) ? 0 : -8007;
}

int dcmiv2_get_device_hbm_info(int id, void *info)
{
    memset(info, 0, 32);
    *(uint64_t *)info = 131072;
    return is_chip(id) ? 0 : -8007;
}

int dcmiv2_get_device_die_id(int id, int type, unsigned int die[5])
{
    for (unsigned word = 0; word < 5; word++)
        die[word] = (unsigned)id + word;
    return type == D_DIE ? 0 : -8255;
}

int dcmiv2_get_dcmi_version(char *text, int size)
{
    if (size < 8)
        return -8001;
    strcpy(text, "26.0.0");
    return 0;
}

int dcmiv2_get_device_health(int id, unsigned int *health)
{
    *health = is_set("fault-1") && id == 1 ? 2 : 0;
    return is_chip(id) ? 0 : -8007;
}

int dcmiv2_get_device_error_code_list(int id, int *count, unsigned int *codes, unsigned int length)
{
    *count = is_set("fault-1") && id == 1;
    if (length < 1)
        return -8001;
    if (*count)
        codes[0] = 0x81B18603;
    return 0;
}

int dcmiv2_get_device_proc_mem_info(int id, void *processes, int *count)
{
    struct process {
        int id;
        unsigned long bytes;
    } *process = processes;
    *count = 1;
    *process = (struct process){1000 + id, 4096};
    return 0;
}

int dcmiv2_get_device_utilization_rate(int id, int type, unsigned int *percent)
{
    *percent = 30u + (unsigned)id;
    return type == AI_CORE ? 0 : -8255;
}

static void *deliver(void *nothing)
{
    while (!is_set("event"))
        usleep(1000);
    static struct event event;
    event.fault = (struct fault_event){
        .event_id = 0x81B18603, .deviceid = 1, .severity = 1, .assertion = 1, .event_serial_num = 7};
    subscriber(&event);
    return nothing;
}

int dcmiv2_subscribe_fault_event(int id, struct event_filter filter, fault_handler to)
{
    if (id != -1 || filter.filter_flag || filter.event_id || filter.resv[31] || !to)
        return -8001;
    subscriber = to;
    pthread_t thread;
    return pthread_create(&thread, NULL, deliver, NULL) ? -8005 : 0;
}
