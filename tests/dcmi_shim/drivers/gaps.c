/*
 * Three chips with gaps in all their ids: card 1 with one, card 6 with two, of which the first one
 * gives no identity while "silent-die" is there.
 */
#define OWN_CARD_LIST
#define OWN_DEVICES
#define OWN_LOGIC_ID
#define OWN_PHYSICAL_ID
#define OWN_CHIP_INFO
#include "base.h"

int dcmi_get_card_list(int *count, int *cards, int length)
{
    if (length < 2)
        return -8001;
    *count = 2;
    cards[0] = 1;
    cards[1] = 6;
    return 0;
}

int dcmi_get_device_num_in_card(int card, int *devices)
{
    *devices = card == 6 ? 2 : 1;
    return card == 1 || card == 6 ? 0 : -8001;
}

int dcmi_get_device_logic_id(int *logic, int card, int device)
{
    if (card == 6 && device == 0 && is_set("silent-die"))
        return -8012;
    *logic = card == 1 ? 2 : 5 + device;
    return 0;
}

int dcmi_get_device_phyid_from_logicid(unsigned int logic, unsigned int *physical)
{
    *physical = 4 + 2 * logic;
    return 0;
}

int dcmi_get_device_chip_info(int card, int device, void *info)
{
    (void)card, (void)device;
    memset(info, 0, 100);
    strcpy(info, "Ascend");
    strcpy((char *)info + 32, "310P3");
    return 0;
}
