#include "links.h"

#include <string.h>
#include <time.h>

static void record(struct link_state *link)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    link->history[link->records % LINK_RECORDS] =
        (struct link_record){.at_seconds = now.tv_sec, .up = !link->down};
    link->records++;
    if (link->down)
        link->downs++;
    else
        link->ups++;
}

void links_reset(struct state *state)
{
    for (unsigned chip = 0; chip < MAX_CHIPS; chip++) {
        struct link_state *link = &state->chips[chip].link;
        memset(link, 0, sizeof *link);
        link->changed_ns = monotonic_ns();
        record(link);
    }
}

int64_t link_carried_ns(const struct link_state *link, int64_t now_ns)
{
    return link->carried_ns + (link->down || link->still ? 0 : now_ns - link->changed_ns);
}

static void carry(struct link_state *link)
{
    int64_t now_ns = monotonic_ns();
    link->carried_ns = link_carried_ns(link, now_ns);
    link->changed_ns = now_ns;
}

void link_still(struct state *state, unsigned chip, bool still)
{
    struct link_state *link = &state->chips[chip].link;
    carry(link);
    link->still = still;
}

void link_set(struct state *state, unsigned chip, unsigned ports)
{
    struct link_state *link = &state->chips[chip].link;
    bool changes = (link->down != 0) != (ports != 0);
    if (changes)
        carry(link);
    link->down = ports;
    if (changes)
        record(link);
}

bool link_address(const struct link_state *link, unsigned chip, unsigned char *address)
{
    uint32_t word = link->address;
    if (word == 0)
        word = 0xC0A86400u + 10 + chip; /* 192.168.100.10 and so on */
    for (int index = 0; index < 4; index++)
        address[index] = (unsigned char)(word >> (24 - 8 * index));
    return word != NO_ADDRESS;
}
