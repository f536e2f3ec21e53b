/* As many chips as a node may have: 64 cards with one each. */
#define OWN_CARD_LIST
#define OWN_DEVICES
#define OWN_CHIP_INFO
#include "base.h"

enum { MANY = 64 };

int dcmi_get_card_list(int *count, int *cards, int length)
{
    if (length < MANY)
        return -8001;
    *count = MANY;
    for (int card = 0; card < MANY; card++)
        cards[card] = card;
    return 0;
}

int dcmi_get_device_num_in_card(int card, int *devices)
{
    *devices = 1;
    return card < MANY ? 0 : -8001;
}

int dcmi_get_device_chip_info(int card, int device, void *info)
{
    (void)card, (void)device;
    memset(info, 0, 100);
    strcpy(info, "Ascend");
    strcpy((char *)info + 32, "310P3");
    return 0;
}
