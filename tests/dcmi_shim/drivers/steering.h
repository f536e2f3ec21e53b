/*
 * A test steers a small driver by files in the directory VIGIL_TEST_DRIVER: is_set("hang") is true
 * while a file "hang" is there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline int is_set(const char *what)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", getenv("VIGIL_TEST_DRIVER"), what);
    return access(path, F_OK) == 0;
}

static inline void note(const char *what)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", getenv("VIGIL_TEST_DRIVER"), what);
    FILE *file = fopen(path, "a");
    if (file) {
        fprintf(file, "%d\n", (int)getpid());
        fclose(file);
    }
}

static inline void hang_while_set(const char *what)
{
    if (is_set(what))
        note("hangs");
    while (is_set(what))
        usleep(1000);
}
