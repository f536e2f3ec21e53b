/*
 * Callers give tools an environment of their own, often an empty one. So the state is that of
 * $VIGIL_EMULATOR_DIR, else of the caller's $VIGIL_EMULATOR_DIR, else the path in `emulator-dir`
 * beside the program.
 */
#define _GNU_SOURCE
#include "tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST_WAIT_MS = 500 };

static struct attachment attachment = ATTACHMENT_INITIALIZER;

static const char *const names[] = {
#define TOOL(name, scope) #name,
#include "tools.h"
#undef TOOL
};

/* Looks NAME up in the environment that the calling process was started with. */
static bool read_caller(const char *name, char *value, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)getppid());
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    char *line = NULL;
    size_t room = 0;
    size_t length = strlen(name);
    bool found = false;
    while (!found && getdelim(&line, &room, '\0', file) > 0) {
        if (strncmp(line, name, length) != 0 || line[length] != '=' || line[length + 1] == '\0')
            continue;
        found = (size_t)snprintf(value, size, "%s", line + length + 1) < size;
    }
    free(line);
    fclose(file);
    return found;
}

static int find_state(void)
{
    char directory[PATH_MAX];
    const char *named = getenv("VIGIL_EMULATOR_DIR");
    if (named != NULL && named[0] != '\0')
        return state_name(&attachment, named);
    if (read_caller("VIGIL_EMULATOR_DIR", directory, sizeof directory))
        return state_name(&attachment, directory);
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return errno;
    self[length] = '\0';
    return state_name_beside(&attachment, self);
}

static _Noreturn void give_up(enum tool tool, int error)
{
    fprintf(stderr, "%s: the emulated hardware cannot be used: %s\n", names[tool],
            strerror(error));
    exit(1);
}

static void join(struct tool_trouble *into, const struct tool_trouble *trouble)
{
    into->hang |= trouble->hang;
    into->garble |= trouble->garble;
    into->busy |= trouble->busy;
    into->other_chip |= trouble->other_chip;
    if (trouble->slow_ms > into->slow_ms)
        into->slow_ms = trouble->slow_ms;
    if (trouble->exit_status != 0) {
        into->exit_status = trouble->exit_status;
        memcpy(into->text, trouble->text, sizeof into->text);
    }
}

/* The trouble of all runs together with that of runs about CHIP. */
static struct tool_trouble trouble_of(const struct state *state, enum tool tool, int chip)
{
    struct tool_trouble joined = state->tools[tool][0];
    if (chip >= 0 && chip < MAX_CHIPS)
        join(&joined, &state->tools[tool][1 + chip]);
    return joined;
}

static void print_rubbish(void)
{
    static const char rubbish[] = "\x1b[2J?\xff\xfe link st\0\x01:: 0x7f3a DOWNUP\r\n%s%n|+-+|\n";
    fwrite(rubbish, 1, sizeof rubbish - 1, stdout);
}

void tool_wait(enum tool tool, struct tool_run *run, int64_t wait_ms)
{
    uint32_t *word = &run->state->control_word;
    uint32_t seen = *word;
    state_unlock(&attachment);
    word_wait(word, seen, wait_ms < LONGEST_WAIT_MS ? wait_ms : LONGEST_WAIT_MS);
    int error = state_lock(&attachment, &run->state);
    if (error != 0)
        give_up(tool, error);
}

struct tool_run tool_begin(enum tool tool, int chip)
{
    struct tool_run run = {0};
    bool was_claimed = false;
    int64_t begin_ns = monotonic_ns();
    int error = find_state();
    if (error == 0)
        error = state_lock(&attachment, &run.state);
    if (error != 0)
        give_up(tool, error);
    for (;;) {
        struct tool_trouble trouble = trouble_of(run.state, tool, chip);
        was_claimed = was_claimed || tool_claim(&attachment, tool);
        run.profile = &profiles[run.state->profile];
        run.is_busy = trouble.busy && !was_claimed;
        run.other_chip = trouble.other_chip;
        if (run.is_busy)
            return run;
        int64_t left_ms = trouble.slow_ms - (monotonic_ns() - begin_ns) / MS;
        if (!trouble.hang && left_ms <= 0) {
            if (trouble.exit_status != 0) {
                if (trouble.text[0] != '\0')
                    fprintf(stderr, "%.*s\n", TOOL_TEXT, trouble.text);
                exit((int)trouble.exit_status);
            }
            if (trouble.garble) {
                print_rubbish();
                exit(0);
            }
            return run;
        }
        tool_wait(tool, &run, trouble.hang ? LONGEST_WAIT_MS : left_ms);
    }
}
