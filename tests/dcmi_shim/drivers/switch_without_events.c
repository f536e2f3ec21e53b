/* There are no events. */
#define WITHOUT_EVENTS
#include "switch.c"
