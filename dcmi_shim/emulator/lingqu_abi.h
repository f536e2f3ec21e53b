/* Types of the switch library as the vendor declares them (docs/spec/dcmi.md#6), sizes checked. */
#ifndef VIGIL_LINGQU_ABI_H
#define VIGIL_LINGQU_ABI_H

#include <stddef.h>
#include <stdint.h>

/* The same numbers as in dcmi_abi.h mean something else here. */
enum {
    LQ_OK = 0,
    LQ_INVALID_PARAMETER = -8001,
    LQ_DEVICE_OPEN_FAILED = -8004,
    LQ_IOCTL_FAILED = -8005,
    LQ_THREAD_FAILED = -8007,
    LQ_NOT_INITIALISED = -8009,
    LQ_TOO_MANY_PROCESSES = -8010,
    LQ_TOO_MANY_SUBSCRIPTIONS = -8014,
    LQ_INVALID_FILTER = -8015,
    LQ_NOT_SUBSCRIBED = -8016,
    LQ_INITIALISED_TWICE = -8017,
};

enum { LQ_FILTER_TYPE = 1, LQ_FILTER_SUBTYPE = 2, LQ_FILTER_SEVERITY = 4, LQ_FILTER_CHIP = 8 };

enum { LQ_CHIPS = 7, LQ_PORTS = 48, LQ_WHOLE_CHIP = 0xFFFF, LQ_LARGEST_SEVERITY = 3 };

struct LqDcmiEvent {
    uint32_t eventType;
    uint32_t subType;
    uint16_t peerportDevice;
    uint16_t peerportId;
    uint16_t switchChipid;
    uint16_t switchPortid;
    uint8_t severity;
    uint8_t assertion;
    char res[6];
    uint32_t eventSerialNum;
    uint32_t notifySerialNum;
    uint64_t alarmRaisedTime;
    uint8_t additionalParam[40];
    char additionalInfo[32];
};

struct lq_dcmi_event_filter {
    uint32_t filterFlag;
    uint32_t eventTypeId;
    uint32_t eventId;
    uint8_t severity;
    uint32_t chipId;
};

typedef void (*lq_dcmi_handler)(struct LqDcmiEvent *);

_Static_assert(sizeof(struct LqDcmiEvent) == 112, "size of LqDcmiEvent");
_Static_assert(_Alignof(struct LqDcmiEvent) == 8, "alignment of LqDcmiEvent");
_Static_assert(offsetof(struct LqDcmiEvent, severity) == 16, "severity");
_Static_assert(offsetof(struct LqDcmiEvent, eventSerialNum) == 24, "eventSerialNum");
_Static_assert(offsetof(struct LqDcmiEvent, alarmRaisedTime) == 32, "alarmRaisedTime");
_Static_assert(offsetof(struct LqDcmiEvent, additionalInfo) == 80, "additionalInfo");
_Static_assert(sizeof(struct lq_dcmi_event_filter) == 20, "size of lq_dcmi_event_filter");
_Static_assert(offsetof(struct lq_dcmi_event_filter, chipId) == 16, "chipId");

#endif
