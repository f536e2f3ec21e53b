/* Needs a function that nobody has. With lazy binding only the call that needs it fails. */
#define OWN_HEALTH
#include "base.h"

extern int nobody_has_this(void);

int dcmi_get_device_health(int card, int device, unsigned int *health)
{
    *health = 0;
    return card == 1 && !device ? nobody_has_this() : 0;
}
