/*
 * The emulated hardware: one file, mapped by every process that loads the library and by every
 * control. The kernel drops the locks of a process that dies, so a killed one blocks nobody.
 */
#ifndef VIGIL_EMULATOR_STATE_H
#define VIGIL_EMULATOR_STATE_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "bmc.h"
#include "dcmi_abi.h"
#include "lingqu_abi.h"

enum {
    MAX_CHIPS = 16,
    MAX_CODES = 128,
    MAX_FAULTS = 256,
    MAX_SWITCH_FAULTS = 512,
    EVENT_QUEUE = 1024,
    MAX_SUBSCRIBERS = 64 + 15,
    LINK_RECORDS = 10,
    MAX_PROCESSES = 32,
    MAX_VIRTUAL = 32,
    TOOL_TEXT = 120,
};

/* A range of the table of subscribers. */
struct places {
    unsigned first;
    unsigned count;
};

#define CHIP_SUBSCRIBERS ((struct places){0, 64})
#define SWITCH_SUBSCRIBERS ((struct places){64, 15})

enum function {
#define FUNCTION(name, scope) F_##name,
#include "functions.h"
#undef FUNCTION
    FUNCTION_COUNT
};

enum tool {
#define TOOL(name, scope) T_##name,
#include "tools.h"
#undef TOOL
    TOOL_COUNT
};

enum { DROP_NONE = 0, DROP_HEALTH = 1, DROP_HARD = 2 };

#define MS 1000000LL

/* One occurrence of a code on a chip, until its recovery has left the error list. */
struct fault {
    uint32_t code;          /* 0: this place is free; written last, so a killed control is harmless */
    uint32_t severity;
    int32_t serial;         /* grows from fault to fault */
    uint32_t spare;
    uint64_t raised_ms;     /* CLOCK_REALTIME */
    int64_t occurred_ns;    /* CLOCK_MONOTONIC */
    int64_t recovered_ns;   /* 0 while it lasts */
};

struct link_record {
    int64_t at_seconds;     /* CLOCK_REALTIME */
    uint32_t up;
    uint32_t spare;
};

/* A link without an address. */
#define NO_ADDRESS 0xFFFFFFFFu

struct link_state {
    uint32_t down;          /* 2: both Ethernet ports, of chips that have two */
    uint32_t ups;
    uint32_t downs;
    uint32_t records;       /* so far; record n is at n % LINK_RECORDS */
    uint32_t still;         /* up, but nobody sends anything */
    uint32_t address;       /* IPv4, first byte highest; 0: what the profile gives, or NO_ADDRESS */
    int64_t carried_ns;     /* how long there was traffic until the last change */
    int64_t changed_ns;     /* CLOCK_MONOTONIC */
    struct link_record history[LINK_RECORDS];
};

/* What a chip is doing. */
struct load {
    uint32_t aicore;        /* percent */
    uint32_t hbm;           /* percent; 0: what an idle chip has in use */
    uint32_t processes;
    uint32_t virtual_devices;
    int32_t process[MAX_PROCESSES];
};

/* Counts of a damaged state file may be anything. */
static inline unsigned at_most(uint32_t count, unsigned most)
{
    return count < most ? count : most;
}

struct chip_state {
    struct link_state link;
    struct load load;
    uint32_t drop;
    uint32_t spod_status;
    int64_t reset_ns;       /* 0: never reset */
    uint64_t replaced;      /* how many cards came before in this place */
    struct fault faults[MAX_FAULTS];
};

/* Where an on-board switch has a fault; with the event type it identifies a fault. */
struct switch_place {
    uint32_t sub_type;
    uint16_t peer_device;
    uint16_t peer_port;
    uint16_t chip;
    uint16_t port;
};

struct switch_fault {
    struct fault fault;     /* its code is the event type */
    struct switch_place place;
};

struct queued_event {
    uint32_t chip;
    uint32_t spare;
    struct dcmi_dms_fault_event event;
};

struct subscriber {
    uint64_t token;         /* 0: free */
    int32_t pid;
    uint32_t spare;
    uint64_t cursor;        /* number of the next event to read */
    uint64_t dropped;
};

/* What is to happen to calls of one function, on one chip or on all. */
struct hook {
    uint32_t hang;
    uint32_t slow_ms;
    int32_t fail;
};

/* What is to happen to runs of one command line tool, on one chip or on all. */
struct tool_trouble {
    uint32_t hang;
    uint32_t slow_ms;
    uint32_t exit_status;   /* 0: none but its own */
    uint32_t garble;        /* prints rubbish and ends well */
    uint32_t busy;          /* refuses to run while another run is going on */
    uint32_t other_chip;    /* answers for another chip than the one it was asked about */
    char text[TOOL_TEXT];   /* for standard error, with exit_status */
};

struct state {
    uint64_t magic;
    uint32_t layout;
    uint32_t size;
    uint32_t profile;
    uint32_t epoch;         /* counts resets: waits of the library end there */
    uint32_t event_word;    /* futex: an event was queued */
    uint32_t control_word;  /* futex: a hook changed */
    int64_t started_ns;
    uint64_t concurrent_calls;
    uint64_t events;        /* queued so far; event n is at n % EVENT_QUEUE */
    uint64_t next_token;
    int32_t next_serial;
    uint32_t die_policy;
    uint32_t lose_events;   /* how many of the next events are not delivered */
    uint32_t lose_everything; /* how many of the next changes leave no trace at all */
    struct subscriber subscribers[MAX_SUBSCRIBERS];
    struct chip_state chips[MAX_CHIPS];
    struct hook hooks[FUNCTION_COUNT][1 + MAX_CHIPS]; /* index 0: every chip */
    struct tool_trouble tools[TOOL_COUNT][1 + MAX_CHIPS]; /* the same */
    struct queued_event queue[EVENT_QUEUE];
    struct bmc bmc;
    uint64_t switch_events; /* queued so far; event n is at n % EVENT_QUEUE */
    struct switch_fault switch_faults[MAX_SWITCH_FAULTS];
    struct LqDcmiEvent switch_queue[EVENT_QUEUE];
};

/* One process's access to the state file. */
struct attachment {
    pthread_mutex_t mutex;
    pid_t pid;              /* 0: not used yet */
    int fd;
    dev_t device;
    ino_t inode;
    struct state *state;
    char path[PATH_MAX];
};

#define ATTACHMENT_INITIALIZER {.mutex = PTHREAD_MUTEX_INITIALIZER, .fd = -1}

int64_t monotonic_ns(void);

/* Names DIRECTORY's state file. Answers 0 or ENAMETOOLONG. */
int state_name(struct attachment *attachment, const char *directory);

/* Names the state file of what was installed beside PROGRAM. Answers 0 or an errno. */
int state_name_beside(struct attachment *attachment, const char *program);

/* Opens the file when needed, locks it and checks it. Answers 0 or an errno; only 0 is locked. */
int state_lock(struct attachment *attachment, struct state **state);
void state_unlock(struct attachment *attachment);

/* Creates the file, or repairs one that is short or foreign, keeping subscribers of a good one. */
int state_create(struct attachment *attachment, uint32_t profile);

/* Everything healthy and normal again. The state is locked. */
void state_reset(struct state *state);

void state_close(struct attachment *attachment);

/* A subscriber's slot is alive as long as its process holds the slot's lock. */
int slot_claim(int fd, unsigned slot);
bool slot_is_held(const struct attachment *attachment, unsigned slot);

/* Makes room for one more event after EVENTS: subscribers of PLACES that are too slow lose one. */
void subscribers_make_room(struct state *state, struct places places, uint64_t events);

/* The right to be the only run of TOOL, until the process ends. The state is locked or was. */
bool tool_claim(const struct attachment *attachment, enum tool tool);

/* Waits until *word is not SEEN any more, for at most TIMEOUT_MS. May return early. */
void word_wait(uint32_t *word, uint32_t seen, int64_t timeout_ms);
void word_advance(uint32_t *word);

#endif
