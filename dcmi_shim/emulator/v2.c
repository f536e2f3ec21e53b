/*
 * The interface of the Ascend 950 (dcmi#3). Each of these stands for a call of the first
 * generation, whose card is the one number of a chip; call.c answers that they are not here where
 * the chips are not of that kind.
 */
#include "call.h"

#define IS(name, parameters, older)                                                 \
    DCMI_EXPORT int name parameters                                                 \
    {                                                                               \
        call_stand_in(F_##name);                                                    \
        return older;                                                               \
    }

#define NOT_HERE(name) UNSUPPORTED(name, NODE, void)

typedef void (*event_handler)(struct dcmi_event *);

/* The counterparts, which are defined beside what they are about. */
int dcmi_init(void);
int dcmi_get_card_list(int *, int *, int);
int dcmi_get_device_type(int, int, int *);
int dcmi_get_device_pcie_info_v2(int, int, struct dcmi_pcie_info_all *);
int dcmi_get_device_chip_info_v2(int, int, struct dcmi_chip_info_v2 *);
int dcmi_get_device_power_info(int, int, int *);
int dcmi_get_device_health(int, int, unsigned *);
int dcmi_get_device_errorcode_v2(int, int, int *, unsigned *, unsigned);
int dcmi_get_device_temperature(int, int, int *);
int dcmi_get_device_voltage(int, int, unsigned *);
int dcmi_get_device_ecc_info(int, int, int, struct dcmi_ecc_info *);
int dcmi_get_device_frequency(int, int, int, unsigned *);
int dcmi_get_device_hbm_info(int, int, struct dcmi_hbm_info *);
int dcmi_get_device_utilization_rate(int, int, int, unsigned *);
int dcmi_get_device_multi_utilization_rate(int, int, struct dcmi_multi_utilization_info *);
int dcmi_get_device_multi_utilization_rate_period(int, int, struct dcmi_multi_utilization_info *,
                                                  int);
int dcmi_get_device_info(int, int, unsigned, unsigned, void *, unsigned *);
int dcmi_get_device_network_health(int, int, int *);
int dcmi_get_device_phyid_from_logicid(unsigned, unsigned *);
int dcmi_get_device_logicid_from_phyid(unsigned, unsigned *);
int dcmi_set_device_reset(int, int, int);
int dcmi_get_device_outband_channel_state(int, int, int *);
int dcmi_pre_reset_soc(int, int);
int dcmi_rescan_soc(int, int);
int dcmi_get_device_boot_status(int, int, int *);
int dcmi_subscribe_fault_event(int, int, struct dcmi_event_filter, event_handler);
int dcmi_get_device_die_v2(int, int, int, struct dcmi_die_id *);
int dcmi_get_device_resource_info(int, int, struct dcmi_proc_mem_info *, int *);
int dcmi_get_device_board_info(int, int, struct dcmi_board_info *);
int dcmi_get_pcie_link_bandwidth_info(int, int, struct dcmi_pcie_link_bandwidth_info *);
int dcmi_get_dcmi_version(char *, int);
int dcmi_get_mainboard_id(int, int, unsigned *);
int dcmi_get_affinity_cpu_info_by_device_id(int, int, char *, int *);
int dcmi_get_card_elabel_v2(int, struct dcmi_elabel_info *);

DCMI_EXPORT int dcmiv2_get_all_device_count(int *count)
{
    BEGIN(dcmiv2_get_all_device_count, NODE, count != NULL);
    *count = call.profile->cards;
    return call_finish(&call, DCMI_OK);
}

IS(dcmiv2_init, (void), dcmi_init())
IS(dcmiv2_get_device_list, (int *list, int *count, int length),
   dcmi_get_card_list(count, list, length))
IS(dcmiv2_get_device_type, (int id, int *type), dcmi_get_device_type(id, 0, type))
IS(dcmiv2_get_device_pcie_info, (int id, struct dcmi_pcie_info_all *info),
   dcmi_get_device_pcie_info_v2(id, 0, info))
IS(dcmiv2_get_device_chip_info, (int id, struct dcmi_chip_info_v2 *info),
   dcmi_get_device_chip_info_v2(id, 0, info))
IS(dcmiv2_get_device_power_info, (int id, int *power), dcmi_get_device_power_info(id, 0, power))
IS(dcmiv2_get_device_health, (int id, unsigned *health), dcmi_get_device_health(id, 0, health))
IS(dcmiv2_get_device_error_code_list, (int id, int *count, unsigned *codes, unsigned length),
   dcmi_get_device_errorcode_v2(id, 0, count, codes, length))
IS(dcmiv2_get_device_temperature, (int id, int *celsius),
   dcmi_get_device_temperature(id, 0, celsius))
IS(dcmiv2_get_device_voltage, (int id, unsigned *voltage),
   dcmi_get_device_voltage(id, 0, voltage))
IS(dcmiv2_get_device_ecc_info, (int id, int type, struct dcmi_ecc_info *info),
   dcmi_get_device_ecc_info(id, 0, type, info))
IS(dcmiv2_get_device_frequency, (int id, int type, unsigned *mhz),
   dcmi_get_device_frequency(id, 0, type, mhz))
IS(dcmiv2_get_device_hbm_info, (int id, struct dcmi_hbm_info *info),
   dcmi_get_device_hbm_info(id, 0, info))
IS(dcmiv2_get_device_utilization_rate, (int id, int type, unsigned *percent),
   dcmi_get_device_utilization_rate(id, 0, type, percent))
IS(dcmiv2_get_device_multi_utilization_rate, (int id, struct dcmi_multi_utilization_info *info),
   dcmi_get_device_multi_utilization_rate(id, 0, info))
IS(dcmiv2_get_device_multi_utilization_rate_period,
   (int id, struct dcmi_multi_utilization_info *info, int period),
   dcmi_get_device_multi_utilization_rate_period(id, 0, info, period))
IS(dcmiv2_get_device_info, (int id, unsigned main, unsigned sub, void *buffer, unsigned *size),
   dcmi_get_device_info(id, 0, main, sub, buffer, size))
IS(dcmiv2_get_device_network_health, (int id, int *result),
   dcmi_get_device_network_health(id, 0, result))
IS(dcmiv2_get_chip_phy_id_by_dev_id, (unsigned id, unsigned *physical),
   dcmi_get_device_phyid_from_logicid(id, physical))
IS(dcmiv2_get_dev_id_by_chip_phy_id, (unsigned physical, unsigned *id),
   dcmi_get_device_logicid_from_phyid(physical, id))
IS(dcmiv2_reset_device, (int id, int channel), dcmi_set_device_reset(id, 0, channel))
IS(dcmiv2_get_device_outband_channel_state, (int id, int *state),
   dcmi_get_device_outband_channel_state(id, 0, state))
IS(dcmiv2_pre_reset_device, (int id), dcmi_pre_reset_soc(id, 0))
IS(dcmiv2_rescan_device, (int id), dcmi_rescan_soc(id, 0))
IS(dcmiv2_get_device_boot_status, (int id, int *status),
   dcmi_get_device_boot_status(id, 0, status))
IS(dcmiv2_subscribe_fault_event,
   (int id, struct dcmi_event_filter filter, event_handler handler),
   dcmi_subscribe_fault_event(id, id == -1 ? -1 : 0, filter, handler))
IS(dcmiv2_get_device_die_id, (int id, int type, struct dcmi_die_id *die),
   dcmi_get_device_die_v2(id, 0, type, die))
IS(dcmiv2_get_device_proc_mem_info, (int id, struct dcmi_proc_mem_info *processes, int *count),
   dcmi_get_device_resource_info(id, 0, processes, count))
IS(dcmiv2_get_device_board_info, (int id, struct dcmi_board_info *info),
   dcmi_get_device_board_info(id, 0, info))
IS(dcmiv2_get_pcie_link_bandwidth_info, (int id, struct dcmi_pcie_link_bandwidth_info *info),
   dcmi_get_pcie_link_bandwidth_info(id, 0, info))
IS(dcmiv2_get_dcmi_version, (char *version, int size), dcmi_get_dcmi_version(version, size))
IS(dcmiv2_get_mainboard_id, (int id, unsigned *board), dcmi_get_mainboard_id(id, 0, board))
IS(dcmiv2_get_affinity_cpu_info_by_dev_id, (int id, char *cpus, int *length),
   dcmi_get_affinity_cpu_info_by_device_id(id, 0, cpus, length))
IS(dcmiv2_get_device_elabel_info, (int id, struct dcmi_elabel_info *info),
   dcmi_get_card_elabel_v2(id, info))

NOT_HERE(dcmiv2_start_ub_ping_mesh)
NOT_HERE(dcmiv2_stop_ub_ping_mesh)
NOT_HERE(dcmiv2_get_ub_ping_mesh_info)
NOT_HERE(dcmiv2_get_ub_ping_mesh_state)
NOT_HERE(dcmiv2_get_urma_device_cnt)
NOT_HERE(dcmiv2_get_eid_list_by_urma_dev_index)
NOT_HERE(dcmiv2_get_port_pkt_stats_info)
