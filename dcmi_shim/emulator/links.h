/* The network links of the chips. */
#ifndef VIGIL_EMULATOR_LINKS_H
#define VIGIL_EMULATOR_LINKS_H

#include "profile.h"
#include "state.h"

/* The driver's fault of a link that is down, and its severity: minor. */
enum { LINK_DOWN_SEVERITY = 1 };
#define LINK_DOWN_CODE 0x81078603u
#define UBOE_PORT_DOWN_CODE 0x81078607u
#define UB_PORT_DOWN_CODE 0x81B18603u

/* What the driver of these chips reports of a link that is down. */
static inline uint32_t link_down_code(const struct profile *profile)
{
    return profile->second_generation ? UBOE_PORT_DOWN_CODE : LINK_DOWN_CODE;
}

/* Every link is up, with one record of that. */
void links_reset(struct state *state);

/* Whether packets flow while the link is up. */
void link_still(struct state *state, unsigned chip, bool still);

/* Four bytes, or false: the chip has none. */
bool link_address(const struct link_state *link, unsigned chip, unsigned char *address);

/* The link alone, without the driver's fault. One that is so already keeps its counters.
 * `ports` of it are down. */
void link_set(struct state *state, unsigned chip, unsigned ports);

/* How long the link has carried traffic since the reset. */
int64_t link_carried_ns(const struct link_state *link, int64_t now_ns);

#endif
