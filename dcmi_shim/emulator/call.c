#define _GNU_SOURCE
#include "call.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No wait of the library sleeps longer, so that a replaced state file is noticed. */
enum { LONGEST_WAIT_MS = 500 };

struct attachment attachment = ATTACHMENT_INITIALIZER;

static atomic_bool initialised;
static atomic_int inside;

bool is_initialised(void)
{
    return atomic_load(&initialised);
}

void set_initialised(void)
{
    atomic_store(&initialised, true);
}

int code_of_error(int error)
{
    return error == EACCES || error == EPERM ? DCMI_PERMISSION_DENIED : DCMI_INTERNAL_ERROR;
}

static _Thread_local bool stands_in;
static _Thread_local enum function stood_for;

void call_stand_in(enum function function)
{
    stands_in = true;
    stood_for = function;
}

static bool is_of_switches(enum function function)
{
    return function >= F_lq_dcmi_init;
}

static bool is_v2(enum function function)
{
    return function >= F_dcmiv2_init && !is_of_switches(function);
}

/* Whether FUNCTION is of the other generation than the chips; those of switches are of none. */
static bool is_of_others(enum function function, const struct profile *profile)
{
    return !is_of_switches(function) && is_v2(function) != profile->second_generation;
}

static bool is_init(enum function function)
{
    return function == F_dcmi_init || function == F_dcmiv2_init || function == F_lq_dcmi_init;
}

static int code_of_access(enum function function, int error)
{
    return is_of_switches(function) ? LQ_DEVICE_OPEN_FAILED : code_of_error(error);
}

static int find_state(void)
{
    const char *named = getenv("VIGIL_EMULATOR_DIR");
    if (named != NULL && named[0] != '\0')
        return state_name(&attachment, named);
    Dl_info self;
    if (dladdr((void *)&attachment, &self) == 0 || self.dli_fname == NULL)
        return ENOENT;
    return state_name_beside(&attachment, self.dli_fname);
}

/* The interface must not be entered by two threads of a process at once (docs/spec/dcmi.md#12). */
static bool enter(enum function function)
{
    if (atomic_fetch_add(&inside, 1) == 0)
        return false;
    const char *wish = getenv("VIGIL_EMULATOR_CONCURRENT");
    if (wish != NULL && strcmp(wish, "abort") == 0) {
        static const char *const names[] = {
#define FUNCTION(name, scope) #name,
#include "functions.h"
#undef FUNCTION
        };
        fprintf(stderr, "%s entered while another thread is in a call\n",
                names[function]);
        abort();
    }
    return true;
}

static void leave(void)
{
    atomic_fetch_sub(&inside, 1);
}

static int resolve(struct call *call, const struct target *target)
{
    const struct profile *profile = &profiles[call->state->profile];
    call->profile = profile;
    call->card = call->die = 0;
    call->chip = 0;
    if (target->kind == ON_NODE)
        return DCMI_OK;
    if (target->kind == ON_INDEX) {
        if (target->index >= (unsigned)profile_chips(profile))
            return DCMI_INVALID_DEVICE;
        call->chip = target->index;
        call->card = (int)target->index / profile->dies;
        call->die = (int)target->index % profile->dies;
        return DCMI_OK;
    }
    if (target->card < 0 || target->card >= profile->cards)
        return is_v2(call->function) ? DCMI_INVALID_DEVICE : DCMI_INVALID_PARAMETER;
    if (target->kind == ON_DEVICE && (target->device < 0 || target->device >= profile->dies))
        return DCMI_INVALID_DEVICE;
    call->card = target->card;
    call->die = target->kind == ON_DEVICE ? target->device : 0;
    call->chip = (unsigned)(call->card * profile->dies + call->die);
    return DCMI_OK;
}

static void join(struct hook *into, const struct hook *hook)
{
    into->hang |= hook->hang;
    if (hook->slow_ms > into->slow_ms)
        into->slow_ms = hook->slow_ms;
    if (hook->fail != 0)
        into->fail = hook->fail;
}

/* The hook for all chips together with those of the chips that the call is about. */
static struct hook hook_of(const struct call *call, const struct target *target)
{
    const struct hook *hooks = call->state->hooks[call->function];
    struct hook joined = hooks[0];
    if (target->kind == ON_NODE)
        return joined;
    unsigned chips = target->kind == ON_CARD ? (unsigned)call->profile->dies : 1;
    for (unsigned chip = call->chip; chip < call->chip + chips; chip++)
        join(&joined, &hooks[1 + chip]);
    return joined;
}

static void wait_for_control(struct state *state, int64_t wait_ms)
{
    uint32_t *word = &state->control_word;
    uint32_t seen = *word;
    state_unlock(&attachment);
    word_wait(word, seen, wait_ms < LONGEST_WAIT_MS ? wait_ms : LONGEST_WAIT_MS);
}

/* Leaves the state locked when the answer is DCMI_OK. */
static int enter_state(struct call *call, const struct target *target)
{
    int64_t begin_ns = monotonic_ns();
    for (;;) {
        int error = state_lock(&attachment, &call->state);
        if (error != 0)
            return code_of_access(call->function, error);
        call->state->concurrent_calls += call->is_concurrent;
        call->is_concurrent = false;
        int code = resolve(call, target);
        struct hook hook = {0};
        if (code == DCMI_OK)
            hook = hook_of(call, target);
        int64_t left_ms = hook.slow_ms - (monotonic_ns() - begin_ns) / MS;
        if (hook.hang || left_ms > 0) {
            wait_for_control(call->state, hook.hang ? LONGEST_WAIT_MS : left_ms);
            continue;
        }
        bool has_chip = target->kind == ON_DEVICE || target->kind == ON_INDEX;
        if (code == DCMI_OK && hook.fail != 0)
            code = hook.fail;
        else if (is_of_others(call->function, call->profile))
            code = DCMI_NOT_SUPPORTED;
        else if (!is_init(call->function) && !is_initialised())
            code = DCMI_NOT_READY;
        else if (code == DCMI_OK && has_chip && call->state->chips[call->chip].drop == DROP_HARD)
            code = DCMI_NOT_READY;
        if (code != DCMI_OK)
            state_unlock(&attachment);
        return code;
    }
}

static int begin(struct call *call, struct target target, bool arguments_ok)
{
    if (is_init(call->function) || (is_v2(call->function) && !is_initialised())) {
        int error = find_state();
        if (error != 0)
            return code_of_access(call->function, error);
    } else if (!is_initialised()) {
        if (is_of_switches(call->function))
            return LQ_NOT_INITIALISED;
        bool is_list = call->function == F_dcmi_get_card_list;
        return is_list ? DCMI_INTERNAL_ERROR : DCMI_NOT_READY;
    }
    if (arguments_ok)
        return enter_state(call, &target);
    /* Chips of the other generation look at no argument. */
    struct state *state;
    if (state_lock(&attachment, &state) != 0)
        return DCMI_INVALID_PARAMETER;
    bool is_not_here = is_of_others(call->function, &profiles[state->profile]);
    state_unlock(&attachment);
    return is_not_here ? DCMI_NOT_SUPPORTED : DCMI_INVALID_PARAMETER;
}

int call_begin(struct call *call, enum function function, struct target target, bool arguments_ok)
{
    if (stands_in)
        function = stood_for;
    stands_in = false;
    call->function = function;
    call->is_concurrent = enter(function);
    int code = begin(call, target, arguments_ok);
    if (code == DCMI_OK && (function == F_dcmi_init || function == F_dcmiv2_init))
        set_initialised();
    if (code != DCMI_OK)
        leave();
    return code;
}

int call_finish(struct call *call, int code)
{
    (void)call;
    state_unlock(&attachment);
    leave();
    return code;
}

int call_wait(struct call *call, uint32_t *word, int64_t wait_ms)
{
    uint32_t seen = *word;
    state_unlock(&attachment);
    word_wait(word, seen, wait_ms < LONGEST_WAIT_MS ? wait_ms : LONGEST_WAIT_MS);
    int error = state_lock(&attachment, &call->state);
    if (error != 0)
        leave();
    return error == 0 ? DCMI_OK : code_of_error(error);
}

int call_finish_after(struct call *call, int64_t wait_ms, int code)
{
    uint32_t epoch = call->state->epoch;
    int64_t end_ns = monotonic_ns() + wait_ms * MS;
    for (;;) {
        int64_t left_ms = (end_ns - monotonic_ns() + MS - 1) / MS;
        if (left_ms <= 0 || call->state->epoch != epoch)
            return call_finish(call, code);
        int waited = call_wait(call, &call->state->control_word, left_ms);
        if (waited != DCMI_OK)
            return waited;
    }
}

int call_unsupported(enum function function, struct target target)
{
    struct call call;
    int code = call_begin(&call, function, target, true);
    return code == DCMI_OK ? call_finish(&call, DCMI_NOT_SUPPORTED) : code;
}
