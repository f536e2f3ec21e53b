/* Writes to the standard streams, as drivers do, and reads from standard input. */
#define OWN_INIT
#include "base.h"

int dcmi_init(void)
{
    char line[8];
    for (int i = 0; i < 10000; i++) {
        printf("{\"id\": 1, \"answer\": 0} and more noise\n");
        fprintf(stderr, "noise on standard error\n");
    }
    fflush(stdout);
    note("opened");
    return read(0, line, sizeof line) ? -8005 : 0;
}
