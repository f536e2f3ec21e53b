/* A process's subscription to events, and the thread that delivers them. */
#ifndef VIGIL_EMULATOR_SUBSCRIPTION_H
#define VIGIL_EMULATOR_SUBSCRIPTION_H

#include "state.h"

struct place {
    int fd;         /* holds the lock of the slot; the kernel frees it with the process */
    unsigned slot;
    uint64_t token;
    ino_t inode;
};

#define PLACE_INITIALIZER {.fd = -1}

/*
 * Takes a free slot of PLACES, or one whose process is gone, to read from event CURSOR on. The
 * state is locked. Answers 0, EBUSY when there is none, or an errno.
 */
int place_take(struct place *place, struct state *state, struct places places, uint64_t cursor);

/* Whether PLACE is still this process's: the emulator directory may have been made again. */
bool place_is_mine(const struct place *place, const struct state *state);

/* The number of the next event to read, of EVENTS so far; EVENTS when all were read. */
uint64_t place_next(const struct place *place, struct state *state, uint64_t events);

/* Starts the detached thread that calls handlers. No signal is handled there. An errno or 0. */
int dispatcher_start(void *(*dispatch)(void *));

/* To be called by that thread. */
void dispatcher_begin(const char *name);

#endif
