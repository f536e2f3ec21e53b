#define _GNU_SOURCE
#include "control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "faults.h"
#include "links.h"
#include "switch_faults.h"
#include "troubles.h"

static const char *const function_names[] = {
#define FUNCTION(name, scope) #name,
#include "functions.h"
#undef FUNCTION
};

DCMI_EXPORT int vigil_emulator_open(const char *directory, struct emulator **emulator)
{
    struct emulator *opened = malloc(sizeof *opened);
    if (opened == NULL)
        return ENOMEM;
    opened->attachment = (struct attachment)ATTACHMENT_INITIALIZER;
    int error = state_name(&opened->attachment, directory);
    if (error == 0)
        *emulator = opened;
    else
        free(opened);
    return error;
}

DCMI_EXPORT void vigil_emulator_close(struct emulator *emulator)
{
    state_close(&emulator->attachment);
    free(emulator);
}

DCMI_EXPORT int vigil_emulator_start(struct emulator *emulator, const char *profile)
{
    int index = profile_index(profile);
    return index < 0 ? EDOM : state_create(&emulator->attachment, (uint32_t)index);
}

DCMI_EXPORT int vigil_emulator_reset(struct emulator *emulator)
{
    struct state *state;
    int error = state_lock(&emulator->attachment, &state);
    if (error != 0)
        return error;
    state_reset(state);
    state_unlock(&emulator->attachment);
    return 0;
}

static bool has_chip(const struct state *state, int chip)
{
    return chip >= 0 && chip < profile_chips(&profiles[state->profile]);
}

/* Locks the state for a change of CHIP. */
static int lock_chip(struct emulator *emulator, int chip, struct state **state)
{
    int error = state_lock(&emulator->attachment, state);
    if (error == 0 && !has_chip(*state, chip)) {
        state_unlock(&emulator->attachment);
        error = EDOM;
    }
    return error;
}

DCMI_EXPORT int vigil_emulator_occur(struct emulator *emulator, int chip, uint32_t code,
                                     uint32_t severity)
{
    struct state *state;
    int error = lock_chip(emulator, chip, &state);
    if (error != 0)
        return error;
    error = faults_occur(state, (unsigned)chip, code, severity);
    state_unlock(&emulator->attachment);
    return error;
}

DCMI_EXPORT int vigil_emulator_recover(struct emulator *emulator, int chip, uint32_t code)
{
    struct state *state;
    int error = lock_chip(emulator, chip, &state);
    if (error != 0)
        return error;
    error = faults_recover(state, (unsigned)chip, code);
    state_unlock(&emulator->attachment);
    return error;
}

DCMI_EXPORT int vigil_emulator_once(struct emulator *emulator, int chip, uint32_t code,
                                    uint32_t severity)
{
    struct state *state;
    int error = lock_chip(emulator, chip, &state);
    if (error != 0)
        return error;
    faults_once(state, (unsigned)chip, code, severity);
    state_unlock(&emulator->attachment);
    return 0;
}

DCMI_EXPORT int vigil_emulator_drop(struct emulator *emulator, int chip, uint32_t drop)
{
    struct state *state;
    int error = lock_chip(emulator, chip, &state);
    if (error != 0)
        return error;
    state->chips[chip].drop = drop;
    state_unlock(&emulator->attachment);
    return 0;
}

DCMI_EXPORT int vigil_emulator_replace(struct emulator *emulator, int chip)
{
    struct state *state;
    int error = lock_chip(emulator, chip, &state);
    if (error != 0)
        return error;
    int dies = profiles[state->profile].dies;
    for (int die = chip / dies * dies; die < (chip / dies + 1) * dies; die++) {
        struct chip_state *on = &state->chips[die];
        memset(on->faults, 0, sizeof on->faults);
        on->drop = DROP_NONE;
        on->replaced++;
    }
    state_unlock(&emulator->attachment);
    return 0;
}

static int lock_hooks(struct emulator *emulator, unsigned function, int chip, struct state **state)
{
    if (function >= FUNCTION_COUNT)
        return EDOM;
    return chip < 0 ? state_lock(&emulator->attachment, state) : lock_chip(emulator, chip, state);
}

DCMI_EXPORT int vigil_emulator_hook(struct emulator *emulator, unsigned function, int chip,
                                    int hang, int slow_ms, int fail)
{
    struct state *state;
    int error = lock_hooks(emulator, function, chip, &state);
    if (error != 0)
        return error;
    struct hook *hook = &state->hooks[function][chip < 0 ? 0 : 1 + chip];
    if (hang >= 0)
        hook->hang = (uint32_t)hang;
    if (slow_ms >= 0)
        hook->slow_ms = (uint32_t)slow_ms;
    if (fail < 0)
        hook->fail = fail;
    word_advance(&state->control_word);
    state_unlock(&emulator->attachment);
    return 0;
}

DCMI_EXPORT int vigil_emulator_clear(struct emulator *emulator, unsigned function, int chip)
{
    struct state *state;
    int error = lock_hooks(emulator, function, chip, &state);
    if (error != 0)
        return error;
    for (int place = 0; place <= MAX_CHIPS; place++)
        if (chip < 0 || place == 1 + chip)
            state->hooks[function][place] = (struct hook){0};
    word_advance(&state->control_word);
    state_unlock(&emulator->attachment);
    return 0;
}

DCMI_EXPORT int vigil_emulator_lose(struct emulator *emulator, uint32_t events, uint32_t everything)
{
    struct state *state;
    int error = state_lock(&emulator->attachment, &state);
    if (error != 0)
        return error;
    state->lose_events += events;
    state->lose_everything += everything;
    state_unlock(&emulator->attachment);
    return 0;
}

DCMI_EXPORT int vigil_emulator_link(struct emulator *emulator, int chip, int down, int quietly)
{
    struct state *state;
    int error = lock_chip(emulator, chip, &state);
    if (error != 0)
        return error;
    if (down > 1 && !profiles[state->profile].second_generation) {
        state_unlock(&emulator->attachment);
        return ERANGE;
    }
    uint32_t lose_events = state->lose_events;
    uint32_t code = link_down_code(&profiles[state->profile]);
    state->lose_events += quietly != 0;
    if (down)
        error = faults_occur(state, (unsigned)chip, code, LINK_DOWN_SEVERITY);
    else
        faults_recover(state, (unsigned)chip, code);
    if (quietly)
        state->lose_events = lose_events;
    if (error == 0)
        link_set(state, (unsigned)chip, (unsigned)down);
    state_unlock(&emulator->attachment);
    return error;
}

static void load_processes(struct load *load, int count, const int *processes)
{
    load->processes = (uint32_t)count;
    for (int index = 0; index < count; index++)
        load->process[index] = processes[index];
}

DCMI_EXPORT int vigil_emulator_load(struct emulator *emulator, int chip, int aicore, int hbm,
                                    int still, int count, const int *processes)
{
    struct state *state;
    if (aicore > 100 || hbm > 100 || count > MAX_PROCESSES)
        return ERANGE;
    int error = lock_chip(emulator, chip, &state);
    if (error != 0)
        return error;
    struct load *load = &state->chips[chip].load;
    if (aicore >= 0)
        load->aicore = (uint32_t)aicore;
    if (hbm >= 0)
        load->hbm = (uint32_t)hbm;
    if (still >= 0)
        link_still(state, (unsigned)chip, still != 0);
    if (count >= 0)
        load_processes(load, count, processes);
    state_unlock(&emulator->attachment);
    return 0;
}

DCMI_EXPORT int vigil_emulator_address(struct emulator *emulator, int chip, unsigned address)
{
    struct state *state;
    int error = lock_chip(emulator, chip, &state);
    if (error != 0)
        return error;
    state->chips[chip].link.address = address;
    state_unlock(&emulator->attachment);
    return 0;
}

DCMI_EXPORT int vigil_emulator_virtual(struct emulator *emulator, int chip, unsigned count)
{
    struct state *state;
    if (count > MAX_VIRTUAL)
        return ERANGE;
    int error = lock_chip(emulator, chip, &state);
    if (error != 0)
        return error;
    state->chips[chip].load.virtual_devices = count;
    state_unlock(&emulator->attachment);
    return 0;
}

DCMI_EXPORT int vigil_emulator_tool(struct emulator *emulator, unsigned tool, int chip,
                                    unsigned trouble, uint32_t value, const char *text)
{
    struct state *state;
    if (tool >= TOOL_COUNT)
        return EDOM;
    int error = chip < 0 ? state_lock(&emulator->attachment, &state)
                         : lock_chip(emulator, chip, &state);
    if (error != 0)
        return error;
    int first = chip < 0 ? 0 : 1 + chip;
    int last = chip < 0 && trouble == TROUBLE_NONE ? MAX_CHIPS : first;
    for (int place = first; place <= last; place++)
        trouble_make(&state->tools[tool][place], trouble, value, text);
    word_advance(&state->control_word);
    state_unlock(&emulator->attachment);
    return 0;
}

static const char *separator(bool *is_first)
{
    const char *text = *is_first ? "" : ", ";
    *is_first = false;
    return text;
}

static void write_chip(FILE *json, const struct state *state, unsigned chip)
{
    static const char *const drops[] = {"null", "\"health\"", "\"hard\""};
    const struct chip_state *on = &state->chips[chip];
    unsigned dies = (unsigned)profiles[state->profile].dies;
    unsigned codes[MAX_CODES];
    unsigned health;
    unsigned count = faults_listed(on, monotonic_ns(), codes, &health);
    fprintf(json, "{\"chip\": %u, \"card\": %u, \"device\": %u, \"dropped\": %s, \"health\": %u, ",
            chip, chip / dies, chip % dies, drops[on->drop <= DROP_HARD ? on->drop : DROP_HARD],
            health);
    fprintf(json, "\"link\": \"%s\", \"traffic\": \"%s\", \"aicore\": %u, ",
            on->link.down ? "down" : "up", on->link.still ? "still" : "flowing", on->load.aicore);
    fprintf(json, "\"virtual_devices\": %u, \"processes\": [", on->load.virtual_devices);
    for (unsigned index = 0; index < at_most(on->load.processes, MAX_PROCESSES); index++)
        fprintf(json, "%s%d", index == 0 ? "" : ", ", on->load.process[index]);
    fprintf(json, "], \"listed\": [");
    for (unsigned index = 0; index < count; index++)
        fprintf(json, "%s\"%08X\"", index == 0 ? "" : ", ", codes[index]);
    fprintf(json, "], \"active\": [");
    bool is_first = true;
    for (unsigned index = 0; index < MAX_FAULTS; index++) {
        const struct fault *fault = &on->faults[index];
        if (fault->code != 0 && fault_is_active(fault))
            fprintf(json,
                    "%s{\"code\": \"%08X\", \"severity\": %u, \"serial\": %d, \"raised_at_ms\": "
                    "%llu}",
                    separator(&is_first), fault->code, fault->severity, fault->serial,
                    (unsigned long long)fault->raised_ms);
    }
    fprintf(json, "]}");
}

static void write_subscribers(FILE *json, const struct attachment *access,
                              const struct state *state, struct places places, uint64_t events)
{
    bool is_first = true;
    for (unsigned slot = places.first; slot < places.first + places.count; slot++) {
        const struct subscriber *subscriber = &state->subscribers[slot];
        if (subscriber->token != 0 && slot_is_held(access, slot))
            fprintf(json, "%s{\"pid\": %d, \"waiting\": %llu, \"dropped\": %llu}",
                    separator(&is_first), subscriber->pid,
                    (unsigned long long)(events - subscriber->cursor),
                    (unsigned long long)subscriber->dropped);
    }
}

static void write_hooks(FILE *json, const struct state *state)
{
    bool is_first = true;
    for (unsigned function = 0; function < FUNCTION_COUNT; function++) {
        for (int place = 0; place <= MAX_CHIPS; place++) {
            const struct hook *hook = &state->hooks[function][place];
            if (!hook->hang && hook->slow_ms == 0 && hook->fail == 0)
                continue;
            fprintf(json, "%s{\"function\": \"%s\", \"chip\": ", separator(&is_first),
                    function_names[function]);
            if (place == 0)
                fprintf(json, "null");
            else
                fprintf(json, "%d", place - 1);
            fprintf(json, ", \"hang\": %s, \"slow_ms\": %u, \"return_code\": %d}",
                    hook->hang ? "true" : "false", hook->slow_ms, hook->fail);
        }
    }
}

DCMI_EXPORT int vigil_emulator_status(struct emulator *emulator, char *text, size_t size)
{
    FILE *json = fmemopen(text, size, "w");
    if (json == NULL)
        return errno;
    struct state *state;
    int error = state_lock(&emulator->attachment, &state);
    if (error != 0) {
        fclose(json);
        return error;
    }
    const struct profile *profile = &profiles[state->profile];
    fprintf(json, "{\"profile\": \"%s\", \"events\": %llu, \"concurrent_calls\": %llu, ",
            profile->name, (unsigned long long)state->events,
            (unsigned long long)state->concurrent_calls);
    fprintf(json, "\"losing_events\": %u, \"losing_everything\": %u, \"chips\": [",
            state->lose_events, state->lose_everything);
    for (int chip = 0; chip < profile_chips(profile); chip++) {
        fprintf(json, "%s", chip == 0 ? "" : ", ");
        write_chip(json, state, (unsigned)chip);
    }
    fprintf(json, "], \"subscribers\": [");
    write_subscribers(json, &emulator->attachment, state, CHIP_SUBSCRIBERS, state->events);
    if (profile->switches) {
        fprintf(json, "], \"switch\": {\"events\": %llu, \"faults\": [",
                (unsigned long long)state->switch_events);
        switch_write_faults(json, state);
        fprintf(json, "], \"processes\": [");
        write_subscribers(json, &emulator->attachment, state, SWITCH_SUBSCRIBERS,
                          state->switch_events);
        fprintf(json, "]}, \"hooks\": [");
    } else {
        fprintf(json, "], \"switch\": null, \"hooks\": [");
    }
    write_hooks(json, state);
    fprintf(json, "], \"tools\": [");
    troubles_write(json, state);
    fprintf(json, "], \"bmc\": ");
    write_bmc(json, &state->bmc);
    fprintf(json, "}");
    state_unlock(&emulator->attachment);
    fflush(json);
    bool fits = !ferror(json) && ftell(json) < (long)size;
    fclose(json);
    return fits ? 0 : ENOBUFS;
}
