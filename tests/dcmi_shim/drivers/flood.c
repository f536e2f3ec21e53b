/* Sends 50,000 events as fast as it can when "flood" appears. */
#define OWN_EVENTS
#include "base.h"

static void events(void)
{
    while (!is_set("flood"))
        usleep(1000);
    for (int serial = 1; serial <= 50000; serial++)
        emit(0x80E01801, 1, 2, serial);
    note("flooded");
    while (is_set("flood"))
        usleep(1000);
}
