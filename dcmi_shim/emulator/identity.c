/* Initialisation, enumeration and identity (docs/spec/dcmi.md#2.1, 1.4, 1.5). */
#include <stdio.h>
#include <string.h>

#include "call.h"

enum { NPU_UNIT = 0, ORDINARY_DIE = 0, UNIQUE_DIE = 1, DUAL_DIE = 2, SHORTEST_PRODUCT_TEXT = 32 };
enum { LONGEST_CPU_LIST = 32 };

DCMI_EXPORT int dcmi_init(void)
{
    BEGIN(dcmi_init, NODE, true);
    return call_finish(&call, DCMI_OK);
}

static int list_cards(struct call *call, int *card_num, int *card_list, int list_len)
{
    int cards = call->profile->cards;
    if (list_len < cards)
        return DCMI_INVALID_PARAMETER;
    memset(card_list, 0, (size_t)list_len * sizeof *card_list);
    for (int card = 0; card < cards; card++)
        card_list[card] = card;
    *card_num = cards;
    return DCMI_OK;
}

DCMI_EXPORT int dcmi_get_card_list(int *card_num, int *card_list, int list_len)
{
    BEGIN(dcmi_get_card_list, NODE, card_num != NULL && card_list != NULL);
    return call_finish(&call, list_cards(&call, card_num, card_list, list_len));
}

DCMI_EXPORT int dcmi_get_card_num_list(int *card_num, int *card_list, int list_length)
{
    BEGIN(dcmi_get_card_num_list, NODE, card_num != NULL && card_list != NULL);
    return call_finish(&call, list_cards(&call, card_num, card_list, list_length));
}

DCMI_EXPORT int dcmi_get_device_num_in_card(int card_id, int *device_num)
{
    BEGIN(dcmi_get_device_num_in_card, CARD(card_id), device_num != NULL);
    *device_num = call.profile->dies;
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_id_in_card(int card_id, int *device_id_max, int *mcu_id,
                                           int *cpu_id)
{
    BEGIN(dcmi_get_device_id_in_card, CARD(card_id),
          device_id_max != NULL && mcu_id != NULL && cpu_id != NULL);
    *device_id_max = call.profile->dies;
    *mcu_id = call.profile->dies;
    *cpu_id = -1;
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_logic_id(int *device_logic_id, int card_id, int device_id)
{
    BEGIN(dcmi_get_device_logic_id, DEVICE(card_id, device_id), device_logic_id != NULL);
    *device_logic_id = (int)call.chip;
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_card_id_device_id_from_logicid(int *card_id, int *device_id,
                                                        unsigned int device_logic_id)
{
    BEGIN(dcmi_get_card_id_device_id_from_logicid, INDEX(device_logic_id),
          card_id != NULL && device_id != NULL);
    *card_id = call.card;
    *device_id = call.die;
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_card_id_device_id_from_phyid(int *card_id, int *device_id,
                                                      unsigned int device_phy_id)
{
    BEGIN(dcmi_get_card_id_device_id_from_phyid, INDEX(device_phy_id),
          card_id != NULL && device_id != NULL);
    *card_id = call.card;
    *device_id = call.die;
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_phyid_from_logicid(unsigned int logicid, unsigned int *phyid)
{
    BEGIN(dcmi_get_device_phyid_from_logicid, INDEX(logicid), phyid != NULL);
    *phyid = call.chip;
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_logicid_from_phyid(unsigned int phyid, unsigned int *logicid)
{
    BEGIN(dcmi_get_device_logicid_from_phyid, INDEX(phyid), logicid != NULL);
    *logicid = call.chip;
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_type(int card_id, int device_id, int *device_type)
{
    BEGIN(dcmi_get_device_type, DEVICE(card_id, device_id), device_type != NULL);
    *device_type = NPU_UNIT;
    return call_finish(&call, DCMI_OK);
}

static void copy(void *field, size_t size, const char *text)
{
    size_t length = strlen(text);
    memset(field, 0, size);
    memcpy(field, text, length < size ? length : size - 1);
}

DCMI_EXPORT int dcmi_get_device_chip_info(int card_id, int device_id, struct dcmi_chip_info *info)
{
    BEGIN(dcmi_get_device_chip_info, DEVICE(card_id, device_id), info != NULL);
    copy(info->chip_type, sizeof info->chip_type, "Ascend");
    copy(info->chip_name, sizeof info->chip_name, call.profile->chip_name);
    copy(info->chip_ver, sizeof info->chip_ver, "V1");
    info->aicore_cnt = call.profile->aicores;
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_chip_info_v2(int card_id, int device_id,
                                             struct dcmi_chip_info_v2 *info)
{
    BEGIN(dcmi_get_device_chip_info_v2, DEVICE(card_id, device_id), info != NULL);
    copy(info->chip_type, sizeof info->chip_type, "Ascend");
    copy(info->chip_name, sizeof info->chip_name, call.profile->chip_name);
    copy(info->chip_ver, sizeof info->chip_ver, "V1");
    copy(info->npu_name, sizeof info->npu_name, call.profile->npu_name);
    info->aicore_cnt = call.profile->aicores;
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_board_info(int card_id, int device_id, struct dcmi_board_info *info)
{
    BEGIN(dcmi_get_device_board_info, DEVICE(card_id, device_id), info != NULL);
    *info = (struct dcmi_board_info){
        .board_id = call.profile->board_id,
        .pcb_id = 0,
        .bom_id = 1,
        .slot_id = (unsigned)call.card,
    };
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_mainboard_id(int card_id, int device_id, unsigned int *mainboard_id)
{
    BEGIN(dcmi_get_mainboard_id, DEVICE(card_id, device_id), mainboard_id != NULL);
    *mainboard_id = call.profile->mainboard_id;
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_product_type(int card_id, int device_id, char *text, int size)
{
    BEGIN(dcmi_get_product_type, DEVICE(card_id, device_id),
          text != NULL && size >= SHORTEST_PRODUCT_TEXT);
    copy(text, (size_t)size, call.profile->product_type);
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_dcmi_version(char *version, int size)
{
    BEGIN(dcmi_get_dcmi_version, NODE, version != NULL && size > 0);
    if ((size_t)size <= strlen(call.profile->dcmi_version))
        return call_finish(&call, DCMI_INVALID_PARAMETER);
    copy(version, (size_t)size, call.profile->dcmi_version);
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_card_elabel_v2(int card_id, struct dcmi_elabel_info *info)
{
    BEGIN(dcmi_get_card_elabel_v2, CARD(card_id), info != NULL);
    char serial[32];
    unsigned replaced = (unsigned)call.state->chips[call.chip].replaced % 1000u;
    snprintf(serial, sizeof serial, "2102315AAA10R%07u", 1000u + 100u * replaced + (unsigned)call.card);
    copy(info->product_name, sizeof info->product_name, call.profile->product_name);
    copy(info->model, sizeof info->model, call.profile->chip_name);
    copy(info->manufacturer, sizeof info->manufacturer, "Huawei");
    copy(info->manufacturer_date, sizeof info->manufacturer_date, "2024-03-18");
    copy(info->serial_number, sizeof info->serial_number, serial);
    return call_finish(&call, DCMI_OK);
}

/* Five words that stay the same for one die of one chip, and differ between all of them. */
static void die_words(unsigned chip, uint64_t replaced, int die_type, struct dcmi_die_id *die)
{
    static const unsigned sample[5] = {0x185011D4, 0x21104518, 0xA0C4ED94, 0x14CC040A, 0x56102003};
    unsigned seed = chip + 64u * (unsigned)(UNIQUE_DIE - die_type) + 256u * (unsigned)replaced;
    for (unsigned word = 0; word < 5; word++)
        die->soc_die[word] = sample[word] ^ seed * (0x9E3779B1u + 2 * word);
}

DCMI_EXPORT int dcmi_get_device_die_v2(int card_id, int device_id, int die_type,
                                       struct dcmi_die_id *die)
{
    BEGIN(dcmi_get_device_die_v2, DEVICE(card_id, device_id),
          die != NULL && die_type >= ORDINARY_DIE && die_type <= DUAL_DIE);
    if (die_type == DUAL_DIE && !call.profile->second_generation)
        return call_finish(&call, DCMI_NOT_SUPPORTED);
    die_words(call.chip, call.state->chips[call.chip].replaced, die_type, die);
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_pcie_info_v2(int card_id, int device_id,
                                             struct dcmi_pcie_info_all *info)
{
    BEGIN(dcmi_get_device_pcie_info_v2, DEVICE(card_id, device_id), info != NULL);
    *info = (struct dcmi_pcie_info_all){
        .venderid = 0x19e5,
        .subvenderid = 0x19e5,
        .deviceid = call.profile->pci_device,
        .subdeviceid = 0x4000,
        .bdf_busid = call.profile->pci_bus[call.chip],
    };
    return call_finish(&call, DCMI_OK);
}

/* The processors of this host's NUMA node NODE as the kernel writes them; false without it. */
static bool read_cpu_list(unsigned node, char list[LONGEST_CPU_LIST + 2])
{
    char path[64];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpulist", node);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    bool read = fgets(list, LONGEST_CPU_LIST + 2, file) != NULL;
    fclose(file);
    if (!read)
        return false;
    list[strcspn(list, "\n")] = '\0';
    return strlen(list) <= LONGEST_CPU_LIST;
}

/* The first half of the cards is near NUMA node 0, the second near node 1 where there is one. */
DCMI_EXPORT int dcmi_get_affinity_cpu_info_by_device_id(int card_id, int device_id, char *cpus,
                                                        int *length)
{
    BEGIN(dcmi_get_affinity_cpu_info_by_device_id, DEVICE(card_id, device_id),
          cpus != NULL && length != NULL);
    char list[LONGEST_CPU_LIST + 2];
    unsigned half = call.card >= call.profile->cards / 2;
    if (!read_cpu_list(half, list) && !read_cpu_list(0, list))
        strcpy(list, "0-23");
    *length = (int)strlen(list);
    memcpy(cpus, list, (size_t)*length + 1);
    return call_finish(&call, DCMI_OK);
}

UNSUPPORTED(dcmi_get_netdev_brother_device, DEVICE(card_id, device_id), int card_id, int device_id)
UNSUPPORTED(dcmi_get_npu_work_mode, CARD(card_id), int card_id)
