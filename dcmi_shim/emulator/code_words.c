#include "code_words.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { NODE_SOC = 0x40 };

static const char *const node_names[256] = {
    [0x40] = "SoC", [0x41] = "PCIe link", [0x42] = "HCCS link", [0x50] = "CPU core",
    [0x51] = "L3D", [0x52] = "L3T", [0x53] = "mesh", [0x54] = "ring", [0x55] = "ring bridge",
    [0x56] = "GIC", [0x57] = "ITS", [0x58] = "MN", [0x59] = "CS", [0x5A] = "SIOE",
    [0x5B] = "SLLC", [0x5C] = "PCIe", [0x5D] = "RoCE", [0x5E] = "NIC", [0x5F] = "UFS",
    [0x60] = "SPI", [0x61] = "XGMAC", [0x62] = "safety island", [0x63] = "TS", [0x64] = "AIC",
    [0x65] = "AIV", [0x66] = "L2 buffer", [0x67] = "SDMA", [0x68] = "DVPP", [0x69] = "JPEGD",
    [0x6A] = "JPEGE", [0x6B] = "PNGD", [0x6C] = "VDEC", [0x6D] = "VENC", [0x6E] = "VPC",
    [0x6F] = "DDR", [0x70] = "HBM", [0x71] = "LPM", [0x72] = "HSM", [0x73] = "safe-sec",
    [0x78] = "DDRA", [0x79] = "HBMA", [0x7A] = "ISP", [0x7B] = "HWTS", [0x7C] = "base service",
    [0x7D] = "TS CPU", [0x7E] = "TSD daemon", [0x7F] = "DMP daemon", [0x80] = "ADDA",
    [0x81] = "slogd", [0x82] = "log daemon", [0x83] = "port", [0x84] = "CAN",
    [0x85] = "sensor hub", [0x86] = "MCU", [0x87] = "OPP SoC", [0x88] = "PMU", [0x89] = "VR",
    [0x8A] = "MBIGEN", [0x8B] = "TEE OS", [0x8C] = "AO subsystem",
    [0x8D] = "peripheral subsystem", [0x8E] = "HAC", [0x8F] = "IO", [0x90] = "HiLink",
    [0x91] = "media", [0x92] = "ISP subsystem", [0x93] = "CPU cluster", [0x96] = "HWTS CPU",
    [0x97] = "TS firmware", [0x98] = "DSA", [0x99] = "TS disp", [0x9A] = "TS AA",
    [0x9B] = "TS schedule", [0x9C] = "TS SMMU", [0x9D] = "AIC disp", [0x9E] = "AIC AA",
    [0x9F] = "AIC SMMU", [0xA0] = "AIV disp", [0xA1] = "AIV AA", [0xA2] = "AIV SMMU",
    [0xA3] = "DVPP", [0xA4] = "DVPP", [0xA5] = "DVPP", [0xA6] = "DVPP", [0xA7] = "ISP",
    [0xA8] = "ISP", [0xA9] = "ISP", [0xAA] = "ISP", [0xAB] = "AO", [0xAC] = "AO", [0xAD] = "AO",
    [0xAE] = "AO", [0xAF] = "peripheral", [0xB0] = "peripheral", [0xB1] = "peripheral",
    [0xB2] = "peripheral", [0xB3] = "HAC", [0xB4] = "HAC", [0xB5] = "HAC", [0xB6] = "HAC",
    [0xB7] = "IO", [0xB8] = "IO", [0xB9] = "IO", [0xBA] = "IO", [0xBB] = "SILS disp",
    [0xBC] = "SILS AA", [0xBD] = "SILS schedule", [0xBE] = "SILS SMMU", [0xC7] = "SDMAM",
    [0xC8] = "power-glitch sensor", [0xC9] = "DSA disp", [0xCA] = "NIC disp",
    [0xCB] = "PCIe disp", [0xCD] = "HCCS", [0xCE] = "eMMC", [0xD1] = "HCCS port", [0xD2] = "IMU",
    [0xD5] = "ROH", [0xD6] = "ROH port", [0xD7] = "UB", [0xD8] = "UB port", [0xD9] = "CCU",
};

static bool is_black_box(uint32_t code)
{
    return (code >> 28 & 3) != 0;
}

unsigned code_node_type(uint32_t code)
{
    return is_black_box(code) ? NODE_SOC : code >> 17 & 0x7FF;
}

const char *code_node_name(uint32_t code)
{
    unsigned type = code_node_type(code);
    if (type == 0x601)
        return "process-manager";
    if (type == 0x604)
        return "adda";
    const char *name = type < 256 ? node_names[type] : NULL;
    return name != NULL ? name : "unknown";
}

static unsigned sensor_of(uint32_t code)
{
    return code >> 9 & 0xFF;
}

static unsigned state_of(uint32_t code)
{
    return code & 0x1FF;
}

const char *code_sensor_name(uint32_t code, char buffer[16])
{
    switch (is_black_box(code) ? 0 : sensor_of(code)) {
    case 0:
        return "unknown";
    case 0x27:
        return "Heartbeat Sensor";
    case 0x50:
        return "General Software";
    default:
        snprintf(buffer, 16, "0x%X", sensor_of(code));
        return buffer;
    }
}

const char *code_state_name(uint32_t code, char buffer[16])
{
    unsigned sensor = is_black_box(code) ? 0 : sensor_of(code);
    unsigned state = state_of(code);
    if (sensor == 0x27 && state == 0)
        return "Heartbeat Lost";
    if (sensor == 0x50 && state == 0)
        return "The process start failed or exit abnormally";
    if (sensor == 0xC3 && state == 3)
        return "Link Down";
    snprintf(buffer, 16, "0x%X", state);
    return buffer;
}
