#define _GNU_SOURCE
#include "subscription.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "call.h"

int place_take(struct place *place, struct state *state, struct places places, uint64_t cursor)
{
    if (place->fd >= 0)
        close(place->fd);
    place->fd = open(attachment.path, O_RDWR | O_CLOEXEC);
    if (place->fd < 0)
        return errno;
    for (unsigned slot = places.first; slot < places.first + places.count; slot++) {
        if (slot_claim(place->fd, slot) != 0)
            continue;
        place->slot = slot;
        place->token = state->next_token++;
        place->inode = attachment.inode;
        state->subscribers[slot] = (struct subscriber){
            .token = place->token, .pid = getpid(), .cursor = cursor};
        return 0;
    }
    close(place->fd);
    place->fd = -1;
    return EBUSY;
}

bool place_is_mine(const struct place *place, const struct state *state)
{
    return place->fd >= 0 && place->inode == attachment.inode &&
           state->subscribers[place->slot].token == place->token;
}

uint64_t place_next(const struct place *place, struct state *state, uint64_t events)
{
    struct subscriber *subscriber = &state->subscribers[place->slot];
    if (subscriber->cursor > events)
        subscriber->cursor = events;
    if (events - subscriber->cursor > EVENT_QUEUE)
        subscriber->cursor = events - EVENT_QUEUE;
    return subscriber->cursor < events ? subscriber->cursor++ : events;
}

int dispatcher_start(void *(*dispatch)(void *))
{
    sigset_t all;
    sigset_t before;
    pthread_attr_t detached;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int error = pthread_create(&thread, &detached, dispatch, NULL);
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

void dispatcher_begin(const char *name)
{
    prctl(PR_SET_NAME, name);
    struct sched_param priority = {.sched_priority = sched_get_priority_min(SCHED_RR)};
    pthread_setschedparam(pthread_self(), SCHED_RR, &priority); /* only root may; not needed */
}
