/* Health and error codes (docs/spec/dcmi.md#2.2, 5.5, 5.7). */
#include <stdio.h>
#include <string.h>

#include "call.h"
#include "code_words.h"
#include "faults.h"

/* dcmi_rdfx_detect_result (docs/spec/dcmi.md#4.3) */
enum { NETWORK_OK = 0, NETWORK_FAULT = 5 };

DCMI_EXPORT int dcmi_get_device_health(int card_id, int device_id, unsigned int *health)
{
    BEGIN(dcmi_get_device_health, DEVICE(card_id, device_id), health != NULL);
    const struct chip_state *chip = &call.state->chips[call.chip];
    if (chip->drop != DROP_NONE)
        return call_finish(&call, DCMI_NOT_READY);
    unsigned codes[MAX_CODES];
    faults_listed(chip, monotonic_ns(), codes, health);
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_errorcode_v2(int card_id, int device_id, int *error_count,
                                             unsigned int *error_code_list, unsigned int list_len)
{
    BEGIN(dcmi_get_device_errorcode_v2, DEVICE(card_id, device_id),
          error_count != NULL && error_code_list != NULL && list_len > 0);
    unsigned codes[MAX_CODES];
    unsigned worst;
    unsigned count = faults_listed(&call.state->chips[call.chip], monotonic_ns(), codes, &worst);
    if (list_len < count)
        return call_finish(&call, DCMI_INVALID_PARAMETER);
    memset(error_code_list, 0, (size_t)list_len * sizeof *error_code_list);
    memcpy(error_code_list, codes, count * sizeof *codes);
    *error_count = (int)count;
    return call_finish(&call, DCMI_OK);
}

DCMI_EXPORT int dcmi_get_device_errorcode_string(int card_id, int device_id, unsigned int code,
                                                 unsigned char *text, int size)
{
    BEGIN(dcmi_get_device_errorcode_string, DEVICE(card_id, device_id), text != NULL && size > 0);
    char sensor[16];
    char state[16];
    int length = snprintf((char *)text, (size_t)size,
                          "node type=%s, sensor type=%s, event state=%s.", code_node_name(code),
                          code_sensor_name(code, sensor), code_state_name(code, state));
    return call_finish(&call, length < size ? DCMI_OK : DCMI_INVALID_PARAMETER);
}

DCMI_EXPORT int dcmi_get_device_network_health(int card_id, int device_id, int *result)
{
    BEGIN(dcmi_get_device_network_health, DEVICE(card_id, device_id), result != NULL);
    if (!call.profile->network)
        return call_finish(&call, DCMI_NOT_SUPPORTED);
    *result = call.state->chips[call.chip].link.down ? NETWORK_FAULT : NETWORK_OK;
    return call_finish(&call, DCMI_OK);
}

UNSUPPORTED(dcmi_get_device_errorcode, DEVICE(card_id, device_id), int card_id, int device_id)
UNSUPPORTED(dcmi_get_device_current_fault_event, DEVICE(card_id, device_id), int card_id,
            int device_id)
