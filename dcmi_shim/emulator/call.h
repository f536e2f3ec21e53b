/* The frame around every exported function. */
#ifndef VIGIL_EMULATOR_CALL_H
#define VIGIL_EMULATOR_CALL_H

#include "profile.h"
#include "state.h"

#define DCMI_EXPORT __attribute__((visibility("default")))

/* What a call is about. */
struct target {
    enum { ON_NODE, ON_CARD, ON_DEVICE, ON_INDEX } kind;
    int card;
    int device;
    unsigned index;
};

#define NODE ((struct target){.kind = ON_NODE})
#define CARD(id) ((struct target){.kind = ON_CARD, .card = (id)})
#define DEVICE(card_id, device_id) \
    ((struct target){.kind = ON_DEVICE, .card = (card_id), .device = (device_id)})
#define INDEX(id) ((struct target){.kind = ON_INDEX, .index = (id)})

struct call {
    enum function function;
    bool is_concurrent;            /* and not yet counted */
    struct state *state;           /* locked between begin and finish */
    const struct profile *profile;
    unsigned chip;                 /* logic and physical id; the card's first chip for ON_CARD */
    int card;
    int die;
};

/*
 * Waits and fails as the hooks require, checks arguments and ids, locks the state. Where the answer is
 * not DCMI_OK the function returns it at once. ARGUMENTS_OK is false for a NULL output and the like.
 */
int call_begin(struct call *call, enum function function, struct target target, bool arguments_ok);
int call_finish(struct call *call, int code);

/*
 * Waits until *WORD of the state changes, without the lock; may return early. Where the answer is
 * not DCMI_OK the call is finished already.
 */
int call_wait(struct call *call, uint32_t *word, int64_t wait_ms);

/* Gives the state back, waits (a reset of the emulator ends the wait), and finishes. */
int call_finish_after(struct call *call, int64_t wait_ms, int code);

/* What the next call of this thread stands for: its counterpart of the second generation. */
void call_stand_in(enum function function);

/* Any call of a function that these chips do not have. */
int call_unsupported(enum function function, struct target target);

#define BEGIN(name, target, arguments_ok)                                           \
    struct call call;                                                               \
    int begun = call_begin(&call, F_##name, (target), (arguments_ok));              \
    if (begun != DCMI_OK)                                                           \
    return begun

#define UNSUPPORTED(name, target, ...)                                              \
    DCMI_EXPORT int name(__VA_ARGS__)                                               \
    {                                                                               \
        return call_unsupported(F_##name, (target));                                \
    }

/* Whether the library was initialised, and this process's access to the state. */
extern struct attachment attachment;
bool is_initialised(void);
void set_initialised(void);

/* A driver's return code for an errno of the state file. */
int code_of_error(int error);

#endif
