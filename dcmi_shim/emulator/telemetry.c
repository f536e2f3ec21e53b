/* Figures of healthy idle chips (docs/spec/dcmi.md#2.3, 10.8). */
#include <string.h>

#include "call.h"
#include "links.h"

enum { HBM_USED_MB = 3395, MEMORY_USED_MB = 1400, HBM_MHZ = 1600, MEMORY_MHZ = 1600, IDLE_MHZ = 800, CPU_MHZ = 1900 };
enum { LONGEST_PCIE_PROFILE_MS = 2000, LONGEST_HCCS_PROFILE_MS = 1000 };
enum { PROCESS_BYTES = 1 << 20 };
enum { FULL_POWER_TIMES = 4 }; /* what all dies need under full load, in times of what they need idle */

DCMI_EXPORT int dcmi_get_device_temperature(int card_id, int device_id, int *temperature)
{
    BEGIN(dcmi_get_device_temperature, DEVICE(card_id, device_id), temperature != NULL);
    *temperature = call.profile->temperature + (int)call.chip * call.profile->temperature_step;
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_voltage(int card_id, int device_id, unsigned int *voltage)
{
    BEGIN(dcmi_get_device_voltage, DEVICE(card_id, device_id), voltage != NULL);
    *voltage = 85;
    return call_finish(&call, DCMI_OK);
}

/* What the dies of a card need together, in 0.1 W: the more, the busier they are. */
static int power_of_card(const struct call *call)
{
    const struct profile *profile = call->profile;
    unsigned busy = 0;
    for (int die = 0; die < profile->dies; die++)
        busy += call->state->chips[call->chip + (unsigned)die].load.aicore;
    return profile->power + profile->power * (FULL_POWER_TIMES - 1) * (int)busy / (100 * profile->dies);
}

/* A card measures its power once, on its first die. */
DCMI_EXPORT int dcmi_get_device_power_info(int card_id, int device_id, int *power)
{
    BEGIN(dcmi_get_device_power_info, DEVICE(card_id, device_id), power != NULL);
    if (call.die != 0 || call.profile->card_power)
        return call_finish(&call, DCMI_NOT_SUPPORTED);
    *power = power_of_card(&call);
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_mcu_get_power_info(int card_id, int *power)
{
    BEGIN(dcmi_mcu_get_power_info, CARD(card_id), power != NULL);
    if (!call.profile->card_power)
        return call_finish(&call, DCMI_NOT_SUPPORTED);
    *power = power_of_card(&call);
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_frequency(int card_id, int device_id, int type, unsigned int *mhz)
{
    BEGIN(dcmi_get_device_frequency, DEVICE(card_id, device_id), mhz != NULL);
    switch (type) {
    case 2:
        *mhz = CPU_MHZ;
        break;
    case 6:
        *mhz = HBM_MHZ;
        break;
    case 7:
    case 12:
        *mhz = IDLE_MHZ;
        break;
    case 9:
        *mhz = call.profile->rated_mhz;
        break;
    case 1:
        return call_finish(&call, DCMI_NOT_SUPPORTED);
    default:
        return call_finish(&call, DCMI_INVALID_PARAMETER);
    }
    return call_finish(&call, DCMI_OK);
}

/* In percent of what the chip has. */
static unsigned hbm_percent(const struct load *load, const struct profile *profile)
{
    return load->hbm != 0 ? load->hbm : HBM_USED_MB * 100 / profile->hbm_mb;
}

static struct dcmi_multi_utilization_info utilization(const struct load *load)
{
    return (struct dcmi_multi_utilization_info){
        .aic_util = load->aicore, .aiv_util = load->aicore,
        .aicore_util = load->aicore, .npu_util = load->aicore};
}

DCMI_EXPORT int dcmi_get_device_utilization_rate(int card_id, int device_id, int type,
                                                 unsigned int *percent)
{
    BEGIN(dcmi_get_device_utilization_rate, DEVICE(card_id, device_id), percent != NULL);
    const struct load *load = &call.state->chips[call.chip].load;
    switch (type) {
    case 6:
        if (call.profile->hbm_mb == 0)
            return call_finish(&call, DCMI_NOT_SUPPORTED);
        *percent = hbm_percent(load, call.profile);
        break;
    case 2:
    case 12:
    case 13:
    case 14:
        *percent = load->aicore;
        break;
    case 3:
    case 4:
    case 10:
        *percent = 0;
        break;
    case 1:
        if (call.profile->memory_mb == 0)
            return call_finish(&call, DCMI_NOT_SUPPORTED);
        *percent = MEMORY_USED_MB * 100 / call.profile->memory_mb;
        break;
    case 5:
    case 8:
        return call_finish(&call, DCMI_NOT_SUPPORTED);
    default:
        return call_finish(&call, DCMI_INVALID_PARAMETER);
    }
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_multi_utilization_rate(int card_id, int device_id,
                                                       struct dcmi_multi_utilization_info *info)
{
    BEGIN(dcmi_get_device_multi_utilization_rate, DEVICE(card_id, device_id), info != NULL);
    *info = utilization(&call.state->chips[call.chip].load);
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_multi_utilization_rate_period(
    int card_id, int device_id, struct dcmi_multi_utilization_info *info, int period)
{
    BEGIN(dcmi_get_device_multi_utilization_rate_period, DEVICE(card_id, device_id),
          info != NULL && period > 0);
    *info = utilization(&call.state->chips[call.chip].load);
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_hbm_info(int card_id, int device_id, struct dcmi_hbm_info *info)
{
    BEGIN(dcmi_get_device_hbm_info, DEVICE(card_id, device_id), info != NULL);
    if (call.profile->hbm_mb == 0)
        return call_finish(&call, DCMI_NOT_SUPPORTED);
    memset(info, 0, sizeof *info);
    info->memory_size = call.profile->hbm_mb;
    const struct load *load = &call.state->chips[call.chip].load;
    info->memory_usage = load->hbm != 0 ? (unsigned long long)call.profile->hbm_mb * load->hbm / 100
                                        : HBM_USED_MB;
    info->freq = HBM_MHZ;
    info->temp = 38;
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_memory_info(int card_id, int device_id,
                                     struct dcmi_memory_info_stru *info)
{
    BEGIN(dcmi_get_memory_info, DEVICE(card_id, device_id), info != NULL);
    unsigned size = call.profile->memory_mb;
    if (size == 0)
        return call_finish(&call, DCMI_NOT_SUPPORTED);
    *info = (struct dcmi_memory_info_stru){
        .memory_size = size, .freq = MEMORY_MHZ, .utiliza = MEMORY_USED_MB * 100 / size};
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_memory_info_v3(int card_id, int device_id,
                                               struct dcmi_get_memory_info_stru *info)
{
    BEGIN(dcmi_get_device_memory_info_v3, DEVICE(card_id, device_id), info != NULL);
    unsigned size = call.profile->memory_mb;
    if (size == 0)
        return call_finish(&call, DCMI_NOT_SUPPORTED);
    memset(info, 0, sizeof *info);
    info->memory_size = size;
    info->memory_available = size - MEMORY_USED_MB;
    info->freq = MEMORY_MHZ;
    info->hugepagesize = 2048;
    info->utiliza = MEMORY_USED_MB * 100 / size;
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_ecc_info(int card_id, int device_id, int type,
                                         struct dcmi_ecc_info *info)
{
    enum { DDR = 0, SRAM = 1, HBM = 2, NPU = 3 };
    BEGIN(dcmi_get_device_ecc_info, DEVICE(card_id, device_id),
          info != NULL && type >= DDR && type <= NPU);
    if (type == DDR)
        return call_finish(&call, DCMI_NOT_SUPPORTED);
    *info = (struct dcmi_ecc_info){.enable_flag = 1};
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_resource_info(int card_id, int device_id,
                                              struct dcmi_proc_mem_info *processes, int *count)
{
    BEGIN(dcmi_get_device_resource_info, DEVICE(card_id, device_id),
          processes != NULL && count != NULL);
    memset(processes, 0, MAX_PROCESSES * sizeof *processes);
    const struct load *load = &call.state->chips[call.chip].load;
    unsigned users = at_most(load->processes, MAX_PROCESSES);
    *count = (int)users;
    for (unsigned index = 0; index < users; index++)
        processes[index] = (struct dcmi_proc_mem_info){load->process[index], PROCESS_BYTES};
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_ip(int card_id, int device_id, int type, int port_id,
                                   struct dcmi_ip_addr *ip, struct dcmi_ip_addr *mask)
{
    enum { ROCE = 1, IPV6 = 1 };
    BEGIN(dcmi_get_device_ip, DEVICE(card_id, device_id),
          ip != NULL && mask != NULL && type >= 0 && type <= ROCE && port_id == 0);
    if (type != ROCE || !call.profile->network)
        return call_finish(&call, DCMI_NOT_SUPPORTED);
    if (ip->ip_type == IPV6)
        return call_finish(&call, DCMI_NOT_CONFIGURED);
    struct dcmi_ip_addr found = {0};
    if (!link_address(&call.state->chips[call.chip].link, call.chip, found.u_addr.ip4))
        return call_finish(&call, DCMI_NOT_CONFIGURED);
    *ip = found;
    *mask = (struct dcmi_ip_addr){.u_addr.ip4 = {255, 255, 255, 0}};
    return call_finish(&call, DCMI_OK);
}

/* Samples the idle link for as long as it was asked to. */
DCMI_EXPORT int dcmi_get_pcie_link_bandwidth_info(int card_id, int device_id,
                                                  struct dcmi_pcie_link_bandwidth_info *info)
{
    BEGIN(dcmi_get_pcie_link_bandwidth_info, DEVICE(card_id, device_id),
          info != NULL && info->profiling_time >= 0 &&
              info->profiling_time <= LONGEST_PCIE_PROFILE_MS);
    int profiling_time = info->profiling_time;
    *info = (struct dcmi_pcie_link_bandwidth_info){.profiling_time = profiling_time};
    return call_finish_after(&call, profiling_time, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_hccs_link_bandwidth_info(int card_id, int device_id,
                                                  struct dcmi_hccs_bandwidth_info *info)
{
    BEGIN(dcmi_get_hccs_link_bandwidth_info, DEVICE(card_id, device_id),
          info != NULL && info->profiling_time >= 1 &&
              info->profiling_time <= LONGEST_HCCS_PROFILE_MS);
    int profiling_time = info->profiling_time;
    memset(info, 0, sizeof *info);
    info->profiling_time = profiling_time;
    return call_finish_after(&call, profiling_time, DCMI_OK);
}
