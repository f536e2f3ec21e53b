"""The structures of DCMI v1 beyond ``abi`` (``dcmi#4.1``), sizes asserted on import."""

from __future__ import annotations

from ctypes import (
    Structure,
    Union,
    c_char,
    c_double,
    c_float,
    c_int,
    c_int64,
    c_ubyte,
    c_uint,
    c_uint16,
    c_uint32,
    c_uint64,
)

from dcmi_shim.library.abi import Text32, check_sizes


class EccInfo(Structure):
    """The vendor's 28 bytes. MindCluster's twin has two members more that the library never writes.

    Callers give the library 36 bytes and read these.
    """

    _fields_ = (
        ("enable_flag", c_int),
        ("single_bit_error_cnt", c_uint),
        ("double_bit_error_cnt", c_uint),
        ("total_single_bit_error_cnt", c_uint),
        ("total_double_bit_error_cnt", c_uint),
        ("single_bit_isolated_pages_cnt", c_uint),
        ("double_bit_isolated_pages_cnt", c_uint),
    )


class MemoryInfoV3(Structure):
    """``dcmi_get_memory_info_stru``."""

    _fields_ = (
        ("memory_size", c_uint64),
        ("memory_available", c_uint64),
        ("freq", c_uint),
        ("hugepagesize", c_uint64),
        ("hugepages_total", c_uint64),
        ("hugepages_free", c_uint64),
        ("utiliza", c_uint),
        ("reserve", c_ubyte * 60),
    )


class MemoryInfo(Structure):
    """``dcmi_memory_info_stru``."""

    _fields_ = (
        ("memory_size", c_uint64),
        ("freq", c_uint),
        ("utiliza", c_uint),
    )


class BaseResource(Structure):
    _fields_ = (
        ("token", c_uint64),
        ("token_max", c_uint64),
        ("task_timeout", c_uint64),
        ("vfg_id", c_uint),
        ("vip_mode", c_ubyte),
        ("reserved", c_ubyte * 31),
    )


class ComputingResource(Structure):
    _fields_ = (
        ("aic", c_float),
        ("aiv", c_float),
        ("dsa", c_uint16),
        ("rtsq", c_uint16),
        ("acsq", c_uint16),
        ("cdqm", c_uint16),
        ("c_core", c_uint16),
        ("ffts", c_uint16),
        ("sdma", c_uint16),
        ("pcie_dma", c_uint16),
        ("memory_size", c_uint64),
        ("event_id", c_uint),
        ("notify_id", c_uint),
        ("stream_id", c_uint),
        ("model_id", c_uint),
        ("topic_schedule_aicpu", c_uint16),
        ("host_ctrl_cpu", c_uint16),
        ("host_aicpu", c_uint16),
        ("device_aicpu", c_uint16),
        ("topic_ctrl_cpu_slot", c_uint16),
        ("vdev_aicore_utilization", c_uint),
        ("vdev_memory_total", c_uint64),
        ("vdev_memory_free", c_uint64),
        ("reserved", c_ubyte * 12),
    )


class MediaResource(Structure):
    _fields_ = (
        ("jpegd", c_float),
        ("jpege", c_float),
        ("vpc", c_float),
        ("vdec", c_float),
        ("pngd", c_float),
        ("venc", c_float),
        ("reserved", Text32),
    )


class CreateVdevOut(Structure):
    _fields_ = (
        ("vdev_id", c_uint),
        ("pcie_bus", c_uint),
        ("pcie_device", c_uint),
        ("pcie_func", c_uint),
        ("vfg_id", c_uint),
        ("reserved", Text32),
    )


class CreateVdevResource(Structure):
    _fields_ = (
        ("vdev_id", c_uint),
        ("vfg_id", c_uint),
        ("template_name", c_char * 32),
        ("reserved", c_ubyte * 64),
    )


class VdevQueryInfo(Structure):
    _fields_ = (
        ("name", c_char * 16),
        ("status", c_uint),
        ("is_container_used", c_uint),
        ("vfid", c_uint),
        ("vfg_id", c_uint),
        ("container_id", c_uint64),
        ("base", BaseResource),
        ("computing", ComputingResource),
        ("media", MediaResource),
    )


class VdevQuery(Structure):
    _fields_ = (
        ("vdev_id", c_uint),
        ("query_info", VdevQueryInfo),
    )


class UbPingMeshOperate(Structure):
    _fields_ = (
        ("src_eid", c_char * 16),
        ("dst_eid_list", (c_char * 16) * 64),
        ("dst_num", c_int),
        ("pkt_size", c_int),
        ("pkt_send_num", c_int),
        ("pkt_interval", c_int),
        ("timeout", c_int),
        ("task_interval", c_int),
        ("task_id", c_int),
    )


_PING_TIMES = (
    ("suc_pkt_num", c_uint * 48),
    ("fail_pkt_num", c_uint * 48),
    ("max_time", c_int64 * 48),
    ("min_time", c_int64 * 48),
    ("avg_time", c_int64 * 48),
    ("tp95_time", c_int64 * 48),
    ("reply_stat_num", c_int * 48),
    ("ping_total_num", c_uint64 * 48),
    ("dest_num", c_int),
)


class UbPingMeshInfo(Structure):
    _fields_ = (
        ("src_eid", c_char * 16),
        ("dst_eid_list", (c_char * 16) * 64),
        *_PING_TIMES,
        ("occur_time", c_uint64),
    )


class HccsPingMeshOperate(Structure):
    _fields_ = (
        ("dst_addr_list", c_char * 1024),
        ("pkt_size", c_int),
        ("pkt_send_num", c_int),
        ("pkt_interval", c_int),
        ("timeout", c_int),
        ("task_interval", c_int),
        ("task_id", c_int),
    )


class HccsPingMeshInfo(Structure):
    _fields_ = (
        ("dst_addr", (c_char * 16) * 48),
        *_PING_TIMES,
    )


class SocFreeResource(Structure):
    _fields_ = (
        ("vfg_num", c_uint),
        ("vfg_bitmap", c_uint),
        ("base", BaseResource),
        ("computing", ComputingResource),
        ("media", MediaResource),
    )


class SocTotalResource(Structure):
    _fields_ = (
        ("vdev_num", c_uint),
        ("vdev_id", c_uint * 32),
        *SocFreeResource._fields_,
    )


class PcieLinkBandwidth(Structure):
    _fields_ = (
        ("profiling_time", c_int),
        ("tx_p_bw", c_uint * 3),
        ("tx_np_bw", c_uint * 3),
        ("tx_cpl_bw", c_uint * 3),
        ("tx_np_lantency", c_uint * 3),
        ("rx_p_bw", c_uint * 3),
        ("rx_np_bw", c_uint * 3),
        ("rx_cpl_bw", c_uint * 3),
    )


class HccsStatistic(Structure):
    _fields_ = (
        ("tx_cnt", c_uint32 * 16),
        ("rx_cnt", c_uint32 * 16),
        ("crc_err_cnt", c_uint32 * 16),
        ("retry_cnt", c_uint32 * 16),
        ("reserved_field_cnt", c_uint32 * 64),
    )


class HccsStatisticU64(Structure):
    _fields_ = (
        ("tx_cnt", c_uint64 * 16),
        ("rx_cnt", c_uint64 * 16),
        ("crc_err_cnt", c_uint64 * 16),
        ("retry_cnt", c_uint64 * 16),
        ("reserved", c_uint64 * 64),
    )


class HccsBandwidth(Structure):
    _fields_ = (
        ("profiling_time", c_int),
        ("total_txbw", c_double),
        ("total_rxbw", c_double),
        ("tx_bandwidth", c_double * 16),
        ("rx_bandwidth", c_double * 16),
    )


class SioCrcErrors(Structure):
    _fields_ = (
        ("tx_error_count", c_uint16),
        ("rx_error_count", c_uint16),
        ("reserved", c_ubyte * 8),
    )


class MultiUtilization(Structure):
    _fields_ = (
        ("aic_util", c_uint),
        ("aiv_util", c_uint),
        ("aicore_util", c_uint),
        ("npu_util", c_uint),
        ("reserved", c_uint * 8),
    )


class UrmaEid(Union):
    """``in4`` and ``in6`` of the original lie over ``raw`` and give it its alignment."""

    _fields_ = (
        ("raw", c_ubyte * 16),
        ("words", c_uint64 * 2),
    )


class UrmaEidInfo(Structure):
    _fields_ = (
        ("eid", UrmaEid),
        ("eid_index", c_uint),
    )


SIZES: dict[type[Structure | Union], int] = {
    EccInfo: 28,
    MemoryInfoV3: 112,
    BaseResource: 64,
    ComputingResource: 96,
    MediaResource: 56,
    CreateVdevOut: 52,
    CreateVdevResource: 104,
    VdevQueryInfo: 256,
    VdevQuery: 264,
    UbPingMeshOperate: 1068,
    UbPingMeshInfo: 3552,
    SocFreeResource: 224,
    SocTotalResource: 360,
    PcieLinkBandwidth: 88,
    HccsStatistic: 512,
    HccsStatisticU64: 1024,
    HccsBandwidth: 280,
    SioCrcErrors: 12,
    HccsPingMeshOperate: 1048,
    HccsPingMeshInfo: 3272,
    MultiUtilization: 48,
    UrmaEid: 16,
    UrmaEidInfo: 24,
    MemoryInfo: 16,
}
check_sizes(SIZES)
