#include "profile.h"

#include <string.h>

static const uint8_t a2_bus[] = {0xC1, 0x81, 0x41, 0x01, 0xC2, 0x82, 0x42, 0x02};
static const uint8_t a3_bus[] = {0x9D, 0x9F, 0x99, 0x9B, 0x95, 0x97, 0x91, 0x93,
                                 0x1D, 0x1F, 0x19, 0x1B, 0x15, 0x17, 0x11, 0x13};

const struct profile profiles[PROFILE_COUNT] = {
    [PROFILE_A2] =
        {
            .name = "a2",
            .cards = 8,
            .dies = 1,
            .chip_name = "910B3",
            .npu_name = "910B3",
            .aicores = 20,
            .board_id = 0x32,
            .mainboard_id = 0x0,
            .product_type = "Atlas A900T PoD A1",
            .product_name = "Atlas 800T A2",
            .dcmi_version = "24.1.rc3",
            .pci_device = 0xd802,
            .pci_bus = a2_bus,
            .super_pod = false,
            .switches = false,
            .resets_whole_node = true,
            .hbm = true,
            .network = true,
            .events = true,
            .temperature = 38,
            .temperature_step = 1,
            .power = 929,
            .rated_mhz = 1800,
        },
    [PROFILE_A3] =
        {
            .name = "a3",
            .cards = 8,
            .dies = 2,
            .chip_name = "Ascend910",
            .npu_name = "9392",
            .aicores = 24,
            .board_id = 0xB0,
            .mainboard_id = 0x18,
            .product_type = "Atlas 900 A3 SuperPoD",
            .product_name = "Atlas 900 A3 SuperPoD",
            .dcmi_version = "25.5.0",
            .pci_device = 0xd803,
            .pci_bus = a3_bus,
            .super_pod = true,
            .switches = true,
            .resets_whole_node = false,
            .hbm = true,
            .network = true,
            .events = true,
            .temperature = 36,
            .temperature_step = 0,
            .power = 1788,
            .rated_mhz = 1650,
        },
    [PROFILE_910A] =
        {
            .name = "910a",
            .cards = 8,
            .dies = 1,
            .chip_name = "910A",
            .npu_name = "910A",
            .aicores = 32,
            .board_id = 0x1,
            .mainboard_id = 0x0,
            .product_type = "Atlas 800",
            .product_name = "Atlas 800",
            .dcmi_version = "23.0.3",
            .pci_device = 0xd801,
            .pci_bus = a2_bus,
            .resets_whole_node = true,
            .hbm = true,
            .network = true,
            .events = true,
            .temperature = 45,
            .temperature_step = 1,
            .power = 689,
            .rated_mhz = 1000,
        },
    [PROFILE_310P] =
        {
            .name = "310p",
            .cards = 4,
            .dies = 1,
            .chip_name = "310P3",
            .npu_name = "310P3",
            .aicores = 8,
            .board_id = 0x64,
            .mainboard_id = 0x0,
            .product_type = "Atlas 300I Pro",
            .product_name = "Atlas 300I Pro",
            .dcmi_version = "23.0.3",
            .pci_device = 0xd500,
            .pci_bus = a2_bus,
            .temperature = 42,
            .temperature_step = 1,
            .power = 250,
            .rated_mhz = 1080,
        },
    [PROFILE_310] =
        {
            .name = "310",
            .cards = 1,
            .dies = 4,
            .chip_name = "310",
            .npu_name = "310",
            .aicores = 8,
            .board_id = 0x4,
            .mainboard_id = 0x0,
            .product_type = "Atlas 300",
            .product_name = "Atlas 300",
            .dcmi_version = "22.0.4",
            .pci_device = 0xd100,
            .pci_bus = a2_bus,
            .temperature = 48,
            .temperature_step = 1,
            .power = 128,
            .rated_mhz = 680,
        },
};

int profile_index(const char *name)
{
    for (int index = 0; index < PROFILE_COUNT; index++)
        if (strcmp(profiles[index].name, name) == 0)
            return index;
    return -1;
}
