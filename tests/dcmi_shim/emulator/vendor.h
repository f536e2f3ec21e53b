/* DCMI types as a program of someone else declares them: written from dcmi#4.1 alone. */
#ifndef VENDOR_H
#define VENDOR_H

#include <stdint.h>

typedef struct { uint8_t type[32], name[32], version[32]; uint32_t cores; } chip_info_t;
typedef struct { uint8_t type[32], name[32], version[32]; uint32_t cores; uint8_t npu[32]; } chip_info_v2_t;
typedef struct { uint32_t vendor, subvendor, device, subdevice; int32_t domain; uint32_t bus, dev, function; uint8_t reserve[32]; } pcie_t;
typedef struct { uint32_t word[5]; } die_t;
typedef struct { int32_t enabled; uint32_t counter[6]; } ecc_t;
typedef struct { uint64_t size; uint32_t mhz; uint64_t used; int32_t temperature; uint32_t bandwidth; } hbm_t;
typedef struct { uint8_t address[16]; int32_t type; } ip_t;
typedef struct { uint32_t sdid, scale, pod, server, chassis, kind, reserve[6]; } pod_t;
typedef struct {
    uint32_t event_id; uint16_t deviceid; uint8_t node_type, node_id, sub_node_type, sub_node_id, severity, assertion;
    int32_t serial, notify_serial; uint64_t raised; char name[256]; char information[32]; uint8_t reserve[32];
} fault_event_t;
typedef struct { int32_t type; fault_event_t fault; } event_t;
typedef struct { uint64_t flag; uint32_t event_id; uint8_t severity, node_type, reserve[32]; } filter_t;
typedef struct { int32_t pid; uint64_t bytes; } process_t;
typedef struct { uint32_t board, pcb, bom, slot; } board_t;
typedef struct { int32_t ms; uint32_t figure[7][3]; } pcie_bandwidth_t;
typedef struct { uint32_t tx[16], rx[16], crc[16], retry[16], reserve[64]; } hccs32_t;
typedef struct { uint64_t tx[16], rx[16], crc[16], retry[16], reserve[64]; } hccs64_t;
typedef struct { int32_t ms; double total_tx, total_rx, tx[16], rx[16]; } hccs_bandwidth_t;
typedef struct { uint16_t tx, rx; uint8_t reserve[8]; } sio_t;
typedef struct { char product[256], model[256], maker[256], date[256], serial[256]; } label_t;
typedef struct { uint32_t aic, aiv, aicore, npu, reserve[8]; } utilization_t;
typedef struct { uint8_t before[208]; float cores; uint8_t between[20]; uint64_t memory; uint8_t after[120]; } total_t;
typedef struct { uint8_t before[72]; float cores; uint8_t between[20]; uint64_t memory; uint8_t after[120]; } free_t;

_Static_assert(sizeof(chip_info_t) == 100 && sizeof(chip_info_v2_t) == 132, "chip info");
_Static_assert(sizeof(pcie_t) == 64 && sizeof(die_t) == 20 && sizeof(ecc_t) == 28, "pcie, die, ecc");
_Static_assert(sizeof(hbm_t) == 32 && sizeof(ip_t) == 20 && sizeof(pod_t) == 48, "hbm, ip, pod");
_Static_assert(sizeof(fault_event_t) == 352 && sizeof(event_t) == 360, "event");
_Static_assert(sizeof(filter_t) == 48 && sizeof(process_t) == 16 && sizeof(board_t) == 16, "filter");
_Static_assert(sizeof(pcie_bandwidth_t) == 88 && sizeof(hccs_bandwidth_t) == 280, "bandwidth");
_Static_assert(sizeof(hccs32_t) == 512 && sizeof(hccs64_t) == 1024 && sizeof(sio_t) == 12, "links");
_Static_assert(sizeof(label_t) == 1280 && sizeof(utilization_t) == 48, "label");
_Static_assert(sizeof(total_t) == 360 && sizeof(free_t) == 224, "resources");

typedef void (*handler_t)(event_t *);
typedef int (*subscribe_t)(int, int, filter_t, handler_t);

#endif
