/* The multiplexer dcmi_get_device_info (docs/spec/dcmi.md#2.3, 10.3, 10.8). */
#include <string.h>

#include "call.h"

enum { MAIN_CHIP = 12, MAIN_HCCS = 16, MAIN_VDEVICE = 52, MAIN_SIO = 56 };
enum { HCCS_FIRST_LANE = 1, HCCS_LAST_LANE = 7, LEAST_CORES_TO_SHARE = 8, FIRST_VIRTUAL_ID = 100 };

#define COMMAND(main, sub) ((main) << 8 | (sub))

static int super_pod(const struct call *call, void *buffer)
{
    if (!call->profile->super_pod)
        return DCMI_NOT_SUPPORTED;
    struct dcmi_spod_info *info = buffer;
    info->sdid = super_pod_device_id((unsigned)call->card, (unsigned)call->die, call->chip);
    info->super_pod_size = 384;
    return DCMI_OK;
}

/* Lanes in use count on since the emulator was started. */
static unsigned long long lane_count(const struct call *call, unsigned lane)
{
    return (unsigned long long)((monotonic_ns() - call->state->started_ns) / (10 * MS)) + lane;
}

static int hccs_u32(const struct call *call, void *buffer)
{
    struct dcmi_hccs_statistic_info *info = buffer;
    for (unsigned lane = HCCS_FIRST_LANE; lane <= HCCS_LAST_LANE; lane++)
        info->tx_cnt[lane] = info->rx_cnt[lane] = (unsigned)lane_count(call, lane);
    return DCMI_OK;
}

static int hccs_u64(const struct call *call, void *buffer)
{
    struct dcmi_hccs_statistic_info_u64 *info = buffer;
    for (unsigned lane = HCCS_FIRST_LANE; lane <= HCCS_LAST_LANE; lane++)
        info->tx_cnt[lane] = info->rx_cnt[lane] = lane_count(call, lane);
    return DCMI_OK;
}

static int no_vdevice(const struct call *call, void *buffer)
{
    (void)call;
    (void)buffer;
    return DCMI_INVALID_PARAMETER;
}

static unsigned memory_mb(const struct profile *profile)
{
    return profile->hbm_mb != 0 ? profile->hbm_mb : profile->memory_mb;
}

static int vdevice_total(const struct call *call, void *buffer)
{
    if (call->profile->aicores < LEAST_CORES_TO_SHARE)
        return DCMI_NOT_SUPPORTED;
    struct dcmi_soc_total_resource *total = buffer;
    unsigned devices = call->state->chips[call->chip].load.virtual_devices;
    total->vdev_num = at_most(devices, MAX_VIRTUAL);
    for (unsigned index = 0; index < total->vdev_num; index++)
        total->vdev_id[index] = FIRST_VIRTUAL_ID + index;
    total->computing.aic = (float)call->profile->aicores;
    total->computing.memory_size = memory_mb(call->profile);
    return DCMI_OK;
}

static int vdevice_free(const struct call *call, void *buffer)
{
    if (call->profile->aicores < LEAST_CORES_TO_SHARE)
        return DCMI_NOT_SUPPORTED;
    struct dcmi_soc_free_resource *left = buffer;
    left->computing.aic = (float)call->profile->aicores;
    left->computing.memory_size = memory_mb(call->profile);
    return DCMI_OK;
}

static int sio(const struct call *call, void *buffer)
{
    (void)buffer;
    return call->profile->dies > 1 ? DCMI_OK : DCMI_NOT_SUPPORTED;
}

static const struct {
    unsigned command;
    unsigned size;
    int (*fill)(const struct call *call, void *buffer); /* the buffer is all zero */
} commands[] = {
    {COMMAND(MAIN_CHIP, 1), sizeof(struct dcmi_spod_info), super_pod},
    {COMMAND(MAIN_HCCS, 3), sizeof(struct dcmi_hccs_statistic_info), hccs_u32},
    {COMMAND(MAIN_HCCS, 5), sizeof(struct dcmi_hccs_statistic_info_u64), hccs_u64},
    {COMMAND(MAIN_VDEVICE, 0), sizeof(struct dcmi_vdev_query_stru), no_vdevice},
    {COMMAND(MAIN_VDEVICE, 1), sizeof(struct dcmi_soc_total_resource), vdevice_total},
    {COMMAND(MAIN_VDEVICE, 2), sizeof(struct dcmi_soc_free_resource), vdevice_free},
    {COMMAND(MAIN_VDEVICE, 5), sizeof(struct dcmi_vdev_query_stru), no_vdevice},
    {COMMAND(MAIN_SIO, 0), sizeof(struct dcmi_sio_crc_err_statistic_info), sio},
};

static int answer(const struct call *call, unsigned main_command, unsigned sub_command,
                  void *buffer, unsigned int *size)
{
    if (main_command > UINT8_MAX || sub_command > UINT8_MAX)
        return DCMI_NOT_SUPPORTED;
    for (unsigned index = 0; index < sizeof commands / sizeof *commands; index++) {
        if (commands[index].command != COMMAND(main_command, sub_command))
            continue;
        union {
            struct dcmi_hccs_statistic_info_u64 largest;
            struct dcmi_soc_total_resource total;
        } filled;
        memset(&filled, 0, sizeof filled);
        int code = commands[index].fill(call, &filled);
        if (code != DCMI_OK)
            return code;
        if (*size < commands[index].size)
            return DCMI_INVALID_PARAMETER;
        memcpy(buffer, &filled, commands[index].size);
        *size = commands[index].size;
        return DCMI_OK;
    }
    return DCMI_NOT_SUPPORTED;
}

DCMI_EXPORT int dcmi_get_device_info(int card_id, int device_id, unsigned int main_cmd,
                                     unsigned int sub_cmd, void *buf, unsigned int *size)
{
    BEGIN(dcmi_get_device_info, DEVICE(card_id, device_id), buf != NULL && size != NULL);
    return call_finish(&call, answer(&call, main_cmd, sub_cmd, buf, size));
}
