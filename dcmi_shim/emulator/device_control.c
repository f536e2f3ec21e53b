/* Reset and settings (docs/spec/dcmi.md#2.4), and what these chips do not have. */
#include "call.h"

enum { OUT_OF_BAND = 0, IN_BAND = 1, RESET_STAGE_MS = 400, RESET_STAGES = 4, DIE_POLICIES = 2 };

static void reset_chips(struct call *call, unsigned first, unsigned count)
{
    for (unsigned chip = first; chip < first + count; chip++)
        call->state->chips[chip].reset_ns = monotonic_ns();
}

/* In band, an A2 takes all chips of its HCCS ring along; an A3 both dies of the card. */
DCMI_EXPORT int dcmi_set_device_reset(int card_id, int device_id, int channel)
{
    BEGIN(dcmi_set_device_reset, DEVICE(card_id, device_id),
          channel == OUT_OF_BAND || channel == IN_BAND);
    if (channel == IN_BAND && call.profile->resets_whole_node)
        reset_chips(&call, 0, (unsigned)profile_chips(call.profile));
    else
        reset_chips(&call, (unsigned)(call.card * call.profile->dies),
                    (unsigned)call.profile->dies);
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_boot_status(int card_id, int device_id, int *status)
{
    BEGIN(dcmi_get_device_boot_status, DEVICE(card_id, device_id), status != NULL);
    int64_t reset_ns = call.state->chips[call.chip].reset_ns;
    int64_t stage = (monotonic_ns() - reset_ns) / (RESET_STAGE_MS * MS);
    bool is_booting = reset_ns != 0 && stage >= 0 && stage < RESET_STAGES;
    *status = is_booting ? (int)stage : BOOT_FINISHED;
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_outband_channel_state(int card_id, int device_id, int *state)
{
    BEGIN(dcmi_get_device_outband_channel_state, DEVICE(card_id, device_id), state != NULL);
    *state = 1;
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_pre_reset_soc(int card_id, int device_id)
{
    BEGIN(dcmi_pre_reset_soc, DEVICE(card_id, device_id), true);
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_rescan_soc(int card_id, int device_id)
{
    BEGIN(dcmi_rescan_soc, DEVICE(card_id, device_id), true);
    return call_finish(&call, DCMI_OK);
}

/* SDID names the device; the one behind CARD_ID and DEVICE_ID only answers for it. */
static int find_super_pod_device(const struct call *call, unsigned sdid, unsigned *chip)
{
    if (!call->profile->super_pod)
        return DCMI_NOT_SUPPORTED;
    for (unsigned candidate = 0; candidate < (unsigned)profile_chips(call->profile); candidate++) {
        unsigned card = candidate / (unsigned)call->profile->dies;
        unsigned die = candidate % (unsigned)call->profile->dies;
        if (sdid == super_pod_device_id(card, die, candidate)) {
            *chip = candidate;
            return DCMI_OK;
        }
    }
    return DCMI_INVALID_PARAMETER;
}

DCMI_EXPORT int dcmi_get_spod_node_status(int card_id, int device_id, unsigned int sdid,
                                          unsigned int *status)
{
    BEGIN(dcmi_get_spod_node_status, DEVICE(card_id, device_id), status != NULL);
    unsigned chip;
    int code = find_super_pod_device(&call, sdid, &chip);
    if (code == DCMI_OK)
        *status = call.state->chips[chip].spod_status;
    return call_finish(&call, code);
}

DCMI_EXPORT int dcmi_set_spod_node_status(int card_id, int device_id, unsigned int sdid,
                                          unsigned int status)
{
    BEGIN(dcmi_set_spod_node_status, DEVICE(card_id, device_id), true);
    unsigned chip;
    int code = find_super_pod_device(&call, sdid, &chip);
    if (code == DCMI_OK)
        call.state->chips[chip].spod_status = status;
    return call_finish(&call, code);
}

DCMI_EXPORT int dcmi_get_multi_die_policy(int *policy)
{
    BEGIN(dcmi_get_multi_die_policy, NODE, policy != NULL);
    if (call.profile->dies == 1)
        return call_finish(&call, DCMI_NOT_SUPPORTED);
    *policy = (int)call.state->die_policy;
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_set_multi_die_policy(int policy)
{
    BEGIN(dcmi_set_multi_die_policy, NODE, policy >= 0 && policy < DIE_POLICIES);
    if (call.profile->dies == 1)
        return call_finish(&call, DCMI_NOT_SUPPORTED);
    call.state->die_policy = (unsigned)policy;
    return call_finish(&call, DCMI_OK);
}

#define NOT_HERE(name) \
    UNSUPPORTED(name, DEVICE(card_id, device_id), int card_id, int device_id)

NOT_HERE(dcmi_create_vdevice)
NOT_HERE(dcmi_set_destroy_vdevice)
NOT_HERE(dcmi_start_hccsping_mesh)
NOT_HERE(dcmi_stop_hccsping_mesh)
NOT_HERE(dcmi_get_hccsping_mesh_info)
NOT_HERE(dcmi_get_hccsping_mesh_state)
NOT_HERE(dcmi_start_ub_ping_mesh)
NOT_HERE(dcmi_stop_ub_ping_mesh)
NOT_HERE(dcmi_get_ub_ping_mesh_info)
NOT_HERE(dcmi_get_ub_ping_mesh_state)
NOT_HERE(dcmi_get_urma_device_cnt)
NOT_HERE(dcmi_get_eid_list_by_urma_dev_index)
