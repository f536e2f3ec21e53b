/* Answers 0 and values that cannot be; "lie-<what>" chooses which. */
#define OWN_CARD_LIST
#define OWN_DEVICES
#define OWN_LOGIC_ID
#define OWN_PHYSICAL_ID
#define OWN_CHIP_INFO
#define OWN_HEALTH
#define OWN_ERROR_CODES
#define OWN_EVENTS
#include "base.h"

int dcmi_get_card_list(int *count, int *cards, int length)
{
    *count = is_set("lie-65-cards") ? 65 : is_set("lie-no-cards") ? 0 : is_set("lie-2-cards") ? 2 : 3;
    for (int card = 0; card < length; card++)
        cards[card] = card < 3 ? card : -1;
    if (is_set("lie-absent-card"))
        cards[2] = -1;
    return 0;
}

int dcmi_get_device_num_in_card(int card, int *devices)
{
    *devices = card == 2 && is_set("lie-5-devices") ? 5 : 1;
    return 0;
}

int dcmi_get_device_logic_id(int *logic, int card, int device)
{
    (void)device;
    if (card == 2)
        hang_while_set("hang-identity");
    *logic = card == 2 && is_set("lie-logic-id") ? 256 : card;
    return 0;
}

int dcmi_get_device_phyid_from_logicid(unsigned int logic, unsigned int *physical)
{
    *physical = logic == 2 && is_set("lie-same-id") ? 1 : logic == 2 && is_set("lie-phy-id") ? 0xFFFFFFFF : logic;
    return 0;
}

int dcmi_get_device_chip_info(int card, int device, void *info)
{
    (void)device;
    memset(info, is_set("lie-endless-name") ? 'x' : 0, 100);
    if (is_set("lie-strange-name"))
        strcpy((char *)info + 32, "\xff\xfe");
    else if (!is_set("lie-endless-name") && !(card == 0 && is_set("lie-empty-name")))
        strcpy((char *)info + 32, "910B3");
    return 0;
}

int dcmi_get_device_board_info(int card, int device, unsigned int *info)
{
    (void)card, (void)device;
    info[0] = 0x32;
    info[1] = info[2] = info[3] = 0;
    return 0;
}

int dcmi_get_device_info(int card, int device, int main_command, unsigned int sub_command, void *data, unsigned int *size)
{
    (void)card, (void)device;
    if (is_set("lie-no-number") && main_command == 52)
    {
        memset(data, 0, *size);
        memset((char *)data + 208, 0xFF, 4);
        return 0;
    }
    if (main_command != 12 || sub_command != 1 || *size != 48)
        return -8001;
    memset(data, 0xFF, 24);
    if (is_set("lie-pod-size"))
        *size = 4096;
    return 0;
}

int dcmi_get_device_health(int card, int device, unsigned int *health)
{
    (void)card, (void)device;
    *health = is_set("lie-unknown-health") ? 0xFFFFFFFF : is_set("lie-health") ? 0x7FFFFFFF : 7;
    return 0;
}

int dcmi_get_device_errorcode_v2(int card, int device, int *count, unsigned int *codes, unsigned int length)
{
    (void)card, (void)device;
    *count = is_set("lie-129-codes") ? 129 : is_set("lie-minus-codes") ? -1 : 128;
    /* Beyond the list: a caller that leaves no room is damaged. */
    for (unsigned int i = 0; i < (is_set("lie-overflow") ? length + 200 : length); i++)
        codes[i] = i % 2 ? 0xFFFFFF00 + i : 0;
    return 0;
}

int dcmi_get_device_die_v2(int card, int device, int type, unsigned int *words)
{
    (void)device, (void)type;
    for (int word = 0; word < 5; word++)
        words[word] = card == 0 || word == 4 ? 7 : 0;
    return 0;
}

static void events(void)
{
    static struct event event;
    while (!is_set("odd-events"))
        usleep(1000);
    subscriber(NULL);
    event.type = 5;
    subscriber(&event);
    memset(&event, 0xFF, sizeof event);
    event.type = 0;
    subscriber(&event);
    emit(0x80E01801, 1, 1, 1);
    while (is_set("odd-events"))
        usleep(1000);
}
