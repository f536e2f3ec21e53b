/* Types of the DCMI interface as the vendor declares them (docs/spec/dcmi.md#4), sizes checked. */
#ifndef VIGIL_DCMI_ABI_H
#define VIGIL_DCMI_ABI_H

#include <stddef.h>
#include <stdint.h>

enum {
    DCMI_OK = 0,
    DCMI_INVALID_PARAMETER = -8001,
    DCMI_PERMISSION_DENIED = -8002,
    DCMI_INTERNAL_ERROR = -8005,
    DCMI_TIMEOUT = -8006,
    DCMI_INVALID_DEVICE = -8007,
    DCMI_NOT_READY = -8012,
    DCMI_RESOURCE_OCCUPIED = -8020,
    DCMI_NOT_CONFIGURED = -8023,
    DCMI_NOT_SUPPORTED = -8255,
};

enum { EVENT_RECOVERY = 0, EVENT_OCCURRENCE = 1, EVENT_ONE_OFF = 2 };
enum { FILTER_EVENT_ID = 1, FILTER_SEVERITY = 2, FILTER_NODE_TYPE = 4 };
enum { BOOT_FINISHED = 16 };

struct dcmi_chip_info {
    unsigned char chip_type[32];
    unsigned char chip_name[32];
    unsigned char chip_ver[32];
    unsigned int aicore_cnt;
};

struct dcmi_chip_info_v2 {
    unsigned char chip_type[32];
    unsigned char chip_name[32];
    unsigned char chip_ver[32];
    unsigned int aicore_cnt;
    unsigned char npu_name[32];
};

struct dcmi_pcie_info_all {
    unsigned int venderid;
    unsigned int subvenderid;
    unsigned int deviceid;
    unsigned int subdeviceid;
    int domain;
    unsigned int bdf_busid;
    unsigned int bdf_deviceid;
    unsigned int bdf_funcid;
    unsigned char reserve[32];
};

struct dcmi_die_id {
    unsigned int soc_die[5];
};

/* Seven members: callers compiled against the vendor's header provide 28 bytes, no more. */
struct dcmi_ecc_info {
    int enable_flag;
    unsigned int single_bit_error_cnt;
    unsigned int double_bit_error_cnt;
    unsigned int total_single_bit_error_cnt;
    unsigned int total_double_bit_error_cnt;
    unsigned int single_bit_isolated_pages_cnt;
    unsigned int double_bit_isolated_pages_cnt;
};

struct dcmi_hbm_info {
    unsigned long long memory_size;
    unsigned int freq;
    unsigned long long memory_usage;
    int temp;
    unsigned int bandwith_util_rate;
};

struct dcmi_memory_info_stru {
    unsigned long long memory_size;
    unsigned int freq;
    unsigned int utiliza;
};

struct dcmi_get_memory_info_stru {
    unsigned long long memory_size;
    unsigned long long memory_available;
    unsigned int freq;
    unsigned long long hugepagesize;
    unsigned long long hugepages_total;
    unsigned long long hugepages_free;
    unsigned int utiliza;
    unsigned char reserve[60];
};

struct dcmi_ip_addr {
    union {
        unsigned char ip4[4];
        unsigned char ip6[16];
    } u_addr;
    int ip_type;
};

struct dcmi_base_resource {
    unsigned long long token;
    unsigned long long token_max;
    unsigned long long task_timeout;
    unsigned int vfg_id;
    unsigned char vip_mode;
    unsigned char reserved[31];
};

struct dcmi_computing_resource {
    float aic;
    float aiv;
    unsigned short dsa;
    unsigned short rtsq;
    unsigned short acsq;
    unsigned short cdqm;
    unsigned short c_core;
    unsigned short ffts;
    unsigned short sdma;
    unsigned short pcie_dma;
    unsigned long long memory_size;
    unsigned int event_id;
    unsigned int notify_id;
    unsigned int stream_id;
    unsigned int model_id;
    unsigned short topic_schedule_aicpu;
    unsigned short host_ctrl_cpu;
    unsigned short host_aicpu;
    unsigned short device_aicpu;
    unsigned short topic_ctrl_cpu_slot;
    unsigned int vdev_aicore_utilization;
    unsigned long long vdev_memory_total;
    unsigned long long vdev_memory_free;
    unsigned char reserved[12];
};

struct dcmi_media_resource {
    float jpegd;
    float jpege;
    float vpc;
    float vdec;
    float pngd;
    float venc;
    unsigned char reserved[32];
};

struct dcmi_vdev_query_info {
    char name[16];
    unsigned int status;
    unsigned int is_container_used;
    unsigned int vfid;
    unsigned int vfg_id;
    unsigned long long container_id;
    struct dcmi_base_resource base;
    struct dcmi_computing_resource computing;
    struct dcmi_media_resource media;
};

struct dcmi_vdev_query_stru {
    unsigned int vdev_id;
    struct dcmi_vdev_query_info query_info;
};

struct dcmi_soc_free_resource {
    unsigned int vfg_num;
    unsigned int vfg_bitmap;
    struct dcmi_base_resource base;
    struct dcmi_computing_resource computing;
    struct dcmi_media_resource media;
};

struct dcmi_soc_total_resource {
    unsigned int vdev_num;
    unsigned int vdev_id[32];
    unsigned int vfg_num;
    unsigned int vfg_bitmap;
    struct dcmi_base_resource base;
    struct dcmi_computing_resource computing;
    struct dcmi_media_resource media;
};

struct dcmi_spod_info {
    unsigned int sdid;
    unsigned int super_pod_size;
    unsigned int super_pod_id;
    unsigned int server_index;
    unsigned int chassis_id;
    unsigned int super_pod_type;
    unsigned int reserve[6];
};

struct dcmi_dms_fault_event {
    unsigned int event_id;
    unsigned short deviceid;
    unsigned char node_type;
    unsigned char node_id;
    unsigned char sub_node_type;
    unsigned char sub_node_id;
    unsigned char severity;
    unsigned char assertion;
    int event_serial_num;
    int notify_serial_num;
    unsigned long long alarm_raised_time;
    char event_name[256];
    char additional_info[32];
    unsigned char os_id;
    unsigned char resv_1;
    unsigned short node_type_ex;
    unsigned short sub_node_type_ex;
    unsigned char resv_2[2];
    unsigned char resv[24];
};

struct dcmi_event {
    int type;
    union {
        struct dcmi_dms_fault_event dms_event;
    } event_t;
};

struct dcmi_event_filter {
    unsigned long long filter_flag;
    unsigned int event_id;
    unsigned char severity;
    unsigned char node_type;
    unsigned char resv[32];
};

struct dcmi_proc_mem_info {
    int proc_id;
    unsigned long proc_mem_usage;
};

struct dcmi_board_info {
    unsigned int board_id;
    unsigned int pcb_id;
    unsigned int bom_id;
    unsigned int slot_id;
};

struct dcmi_pcie_link_bandwidth_info {
    int profiling_time;
    unsigned int tx_p_bw[3];
    unsigned int tx_np_bw[3];
    unsigned int tx_cpl_bw[3];
    unsigned int tx_np_lantency[3];
    unsigned int rx_p_bw[3];
    unsigned int rx_np_bw[3];
    unsigned int rx_cpl_bw[3];
};

struct dcmi_hccs_statistic_info {
    unsigned int tx_cnt[16];
    unsigned int rx_cnt[16];
    unsigned int crc_err_cnt[16];
    unsigned int retry_cnt[16];
    unsigned int reserved_field_cnt[64];
};

struct dcmi_hccs_statistic_info_u64 {
    unsigned long long tx_cnt[16];
    unsigned long long rx_cnt[16];
    unsigned long long crc_err_cnt[16];
    unsigned long long retry_cnt[16];
    unsigned long long reserved[64];
};

struct dcmi_hccs_bandwidth_info {
    int profiling_time;
    double total_txbw;
    double total_rxbw;
    double tx_bandwidth[16];
    double rx_bandwidth[16];
};

struct dcmi_sio_crc_err_statistic_info {
    unsigned short tx_error_count;
    unsigned short rx_error_count;
    unsigned char reserved[8];
};

struct dcmi_elabel_info {
    char product_name[256];
    char model[256];
    char manufacturer[256];
    char manufacturer_date[256];
    char serial_number[256];
};

struct dcmi_multi_utilization_info {
    unsigned int aic_util;
    unsigned int aiv_util;
    unsigned int aicore_util;
    unsigned int npu_util;
    unsigned int reserved[8];
};

#define SIZE_IS(type, size) _Static_assert(sizeof(struct type) == (size), #type " has another size")
#define AT(type, member, offset) \
    _Static_assert(offsetof(struct type, member) == (offset), #type "." #member " is elsewhere")

SIZE_IS(dcmi_chip_info, 100);
AT(dcmi_chip_info, aicore_cnt, 96);
SIZE_IS(dcmi_chip_info_v2, 132);
AT(dcmi_chip_info_v2, npu_name, 100);
SIZE_IS(dcmi_pcie_info_all, 64);
AT(dcmi_pcie_info_all, domain, 16);
AT(dcmi_pcie_info_all, reserve, 32);
SIZE_IS(dcmi_die_id, 20);
SIZE_IS(dcmi_ecc_info, 28);
SIZE_IS(dcmi_hbm_info, 32);
AT(dcmi_hbm_info, memory_usage, 16);
AT(dcmi_hbm_info, temp, 24);
SIZE_IS(dcmi_memory_info_stru, 16);
AT(dcmi_memory_info_stru, utiliza, 12);
SIZE_IS(dcmi_get_memory_info_stru, 112);
AT(dcmi_get_memory_info_stru, freq, 16);
AT(dcmi_get_memory_info_stru, utiliza, 48);
SIZE_IS(dcmi_ip_addr, 20);
AT(dcmi_ip_addr, ip_type, 16);
SIZE_IS(dcmi_base_resource, 64);
SIZE_IS(dcmi_computing_resource, 96);
AT(dcmi_computing_resource, memory_size, 24);
AT(dcmi_computing_resource, vdev_aicore_utilization, 60);
AT(dcmi_computing_resource, reserved, 80);
SIZE_IS(dcmi_media_resource, 56);
SIZE_IS(dcmi_vdev_query_info, 256);
AT(dcmi_vdev_query_info, base, 40);
SIZE_IS(dcmi_vdev_query_stru, 264);
AT(dcmi_vdev_query_stru, query_info, 8);
SIZE_IS(dcmi_soc_free_resource, 224);
AT(dcmi_soc_free_resource, computing, 72);
SIZE_IS(dcmi_soc_total_resource, 360);
AT(dcmi_soc_total_resource, base, 144);
AT(dcmi_soc_total_resource, computing, 208);
SIZE_IS(dcmi_spod_info, 48);
AT(dcmi_spod_info, reserve, 24);
SIZE_IS(dcmi_dms_fault_event, 352);
AT(dcmi_dms_fault_event, event_serial_num, 12);
AT(dcmi_dms_fault_event, alarm_raised_time, 24);
AT(dcmi_dms_fault_event, event_name, 32);
AT(dcmi_dms_fault_event, additional_info, 288);
AT(dcmi_dms_fault_event, node_type_ex, 322);
SIZE_IS(dcmi_event, 360);
AT(dcmi_event, event_t, 8);
SIZE_IS(dcmi_event_filter, 48);
AT(dcmi_event_filter, severity, 12);
SIZE_IS(dcmi_proc_mem_info, 16);
SIZE_IS(dcmi_board_info, 16);
SIZE_IS(dcmi_pcie_link_bandwidth_info, 88);
SIZE_IS(dcmi_hccs_statistic_info, 512);
SIZE_IS(dcmi_hccs_statistic_info_u64, 1024);
SIZE_IS(dcmi_hccs_bandwidth_info, 280);
AT(dcmi_hccs_bandwidth_info, rx_bandwidth, 152);
SIZE_IS(dcmi_sio_crc_err_statistic_info, 12);
SIZE_IS(dcmi_elabel_info, 1280);
SIZE_IS(dcmi_multi_utilization_info, 48);

#endif
