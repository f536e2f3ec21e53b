#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "call.h"
#include "control.h"

/* Gives the state back after a change that somebody may wait for. */
static int changed(struct emulator *emulator, struct state *state)
{
    word_advance(&state->control_word);
    state_unlock(&emulator->attachment);
    return 0;
}

DCMI_EXPORT int vigil_emulator_bmc_alarms(struct emulator *emulator, const struct alarm *alarms,
                                          unsigned count)
{
    struct state *state;
    if (count > MAX_ALARMS)
        return ENOSPC;
    int error = state_lock(&emulator->attachment, &state);
    if (error != 0)
        return error;
    memcpy(state->bmc.alarms, alarms, count * sizeof *alarms);
    state->bmc.alarm_count = count;
    return changed(emulator, state);
}

static bool is_same(const struct alarm *one, const struct alarm *other)
{
    return one->code == other->code && one->subject_type == other->subject_type &&
           one->index == other->index;
}

DCMI_EXPORT int vigil_emulator_bmc_occur(struct emulator *emulator, const struct alarm *alarm)
{
    struct state *state;
    int error = state_lock(&emulator->attachment, &state);
    if (error != 0)
        return error;
    struct bmc *bmc = &state->bmc;
    uint32_t place = 0;
    uint32_t count = bmc_alarms(bmc);
    while (place < count && !is_same(&bmc->alarms[place], alarm))
        place++;
    if (place == MAX_ALARMS) {
        state_unlock(&emulator->attachment);
        return ENOSPC;
    }
    bmc->alarms[place] = *alarm;
    bmc->alarm_count = place == count ? count + 1 : count;
    return changed(emulator, state);
}

DCMI_EXPORT int vigil_emulator_bmc_recover(struct emulator *emulator, const struct alarm *alarm)
{
    struct state *state;
    int error = state_lock(&emulator->attachment, &state);
    if (error != 0)
        return error;
    struct bmc *bmc = &state->bmc;
    uint32_t kept = 0;
    for (uint32_t place = 0; place < bmc_alarms(bmc); place++)
        if (!is_same(&bmc->alarms[place], alarm))
            bmc->alarms[kept++] = bmc->alarms[place];
    bool is_there = kept < bmc_alarms(bmc);
    bmc->alarm_count = kept;
    changed(emulator, state);
    return is_there ? 0 : ESRCH;
}

static void change(uint32_t *value, int to)
{
    if (to >= 0)
        *value = (uint32_t)to;
}

DCMI_EXPORT int vigil_emulator_bmc_set(struct emulator *emulator, int absent, int hang,
                                       int delay_ms, int completion_code, int events_per_reply)
{
    struct state *state;
    int error = state_lock(&emulator->attachment, &state);
    if (error != 0)
        return error;
    change(&state->bmc.is_absent, absent);
    change(&state->bmc.hang, hang);
    change(&state->bmc.delay_ms, delay_ms);
    change(&state->bmc.completion_code, completion_code);
    change(&state->bmc.events_per_reply, events_per_reply);
    return changed(emulator, state);
}

DCMI_EXPORT int vigil_emulator_bmc_label(struct emulator *emulator, const char *serial,
                                         const char *manufacturer)
{
    struct state *state;
    int error = state_lock(&emulator->attachment, &state);
    if (error != 0)
        return error;
    if (serial != NULL)
        snprintf(state->bmc.serial, BMC_TEXT_BYTES, "%s", serial);
    if (manufacturer != NULL)
        snprintf(state->bmc.manufacturer, BMC_TEXT_BYTES, "%s", manufacturer);
    return changed(emulator, state);
}

DCMI_EXPORT int vigil_emulator_bmc_replies(struct emulator *emulator,
                                           const struct played_reply *replies, unsigned count)
{
    struct state *state;
    if (count > MAX_PLAYED_REPLIES)
        return ENOSPC;
    int error = state_lock(&emulator->attachment, &state);
    if (error != 0)
        return error;
    memcpy(state->bmc.played, replies, count * sizeof *replies);
    state->bmc.played_count = count;
    return changed(emulator, state);
}

void write_bmc(FILE *json, const struct bmc *bmc)
{
    static const char *const hangs[BMC_HANG_COUNT] = {
        "null", "\"reply\"", "\"ioctl\"", "\"open\""};
    fprintf(json,
            "{\"present\": %s, \"hang\": %s, \"delay_ms\": %u, \"completion_code\": %u, "
            "\"events_per_reply\": %u, \"alarms\": [",
            bmc->is_absent ? "false" : "true",
            hangs[bmc->hang < BMC_HANG_COUNT ? bmc->hang : BMC_ANSWERS], bmc->delay_ms,
            bmc->completion_code, bmc->events_per_reply);
    for (uint32_t place = 0; place < bmc_alarms(bmc); place++) {
        const struct alarm *alarm = &bmc->alarms[place];
        fprintf(json,
                "%s{\"code\": \"%08X\", \"type\": %u, \"index\": %u, \"severity\": %u, "
                "\"raised_at_seconds\": %u}",
                place == 0 ? "" : ", ", alarm->code, alarm->subject_type, alarm->index,
                alarm->severity, alarm->raised_s);
    }
    fprintf(json, "], \"played_replies\": %u}", bmc->played_count);
}
