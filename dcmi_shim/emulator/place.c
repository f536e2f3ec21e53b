#include "state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int state_find(struct attachment *attachment, const char *program)
{
    const char *named = getenv("VIGIL_EMULATOR_DIR");
    if (named != NULL && named[0] != '\0')
        return state_name(attachment, named);
    const char *slash = strrchr(program, '/');
    int length = slash == NULL ? 0 : (int)(slash - program + 1);
    char beside[PATH_MAX];
    if (snprintf(beside, sizeof beside, "%.*semulator-dir", length, program) >=
        (int)sizeof beside)
        return ENAMETOOLONG;
    FILE *file = fopen(beside, "re");
    if (file == NULL)
        return errno;
    char directory[PATH_MAX];
    bool read = fgets(directory, sizeof directory, file) != NULL;
    fclose(file);
    if (!read)
        return ENOENT;
    directory[strcspn(directory, "\n")] = '\0';
    return state_name(attachment, directory);
}
