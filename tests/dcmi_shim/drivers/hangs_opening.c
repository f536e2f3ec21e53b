/* Hangs while it is loaded, as a library whose constructor waits for a device does. */
#include "base.h"

__attribute__((constructor)) static void wait_for_device(void)
{
    note("opened");
    hang_while_set("hang-opening");
}
