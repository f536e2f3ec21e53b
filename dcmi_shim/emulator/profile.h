/* What the emulated servers are made of (docs/spec/dcmi.md#10.8). */
#ifndef VIGIL_EMULATOR_PROFILE_H
#define VIGIL_EMULATOR_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

enum { PROFILE_A2 = 0, PROFILE_A3, PROFILE_910A, PROFILE_310P, PROFILE_310, PROFILE_DUO, PROFILE_A5,
       PROFILE_COUNT };

struct profile {
    const char *name;
    int cards;
    int dies;               /* per card */
    const char *chip_name;
    const char *npu_name;
    unsigned aicores;
    unsigned board_id;
    unsigned mainboard_id;
    const char *product_type;
    const char *product_name;
    const char *dcmi_version;
    unsigned pci_device;
    const uint8_t *pci_bus; /* one a chip */
    bool super_pod;
    bool switches;          /* on-board switches with a library of their own */
    bool resets_whole_node; /* an in-band reset takes every chip of the HCCS ring along */
    bool second_generation; /* DCMI v2: one number names a chip, and ports are of two kinds */
    bool card_power;        /* a card measures its power, its dies do not */
    unsigned hbm_mb;        /* 0: the chip has none */
    unsigned memory_mb;     /* beside HBM; 0: the driver does not report it */
    bool network;           /* a network port a chip, and hccn_tool for it */
    bool events;            /* the driver sends faults when they happen, not only on a query */
    int temperature;        /* of chip 0, in degrees Celsius */
    int temperature_step;   /* added per chip */
    int power;              /* of die 0, in 0.1 W; the other dies do not report it */
    unsigned rated_mhz;
};

extern const struct profile profiles[PROFILE_COUNT];

/* Index of the profile NAME, or -1. */
int profile_index(const char *name);

static inline int profile_chips(const struct profile *profile)
{
    return profile->cards * profile->dies;
}

/* Name of a die in a super pod (docs/spec/dcmi.md#1.4); this server's index is 0. */
static inline unsigned super_pod_device_id(unsigned card, unsigned die, unsigned chip)
{
    return card << 18 | die << 16 | chip;
}

#endif
