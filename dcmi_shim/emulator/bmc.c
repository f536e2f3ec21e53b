#include "bmc.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
    NETFN_VENDOR = 0x30,
    COMMAND_LABEL = 0x90,
    COMMAND_EVENTS = 0x94,
    EVENT_BYTES = 15,
    HEADER_BYTES = 8, /* completion code, vendor, total, count, revision */
    ANY_SUBJECT = 0xff,
};

enum { COMPLETION_WRONG_LENGTH = 0xc7, COMPLETION_WRONG_FIELD = 0xcc };

/* Request bytes that stand behind the network function and the command. */
static const uint8_t events_head[] = {0xdb, 0x07, 0x00, 0x40, 0x00};
static const uint8_t label_head[] = {0x05, 0x00, 0x03};
enum { EVENTS_DATA = 9, LABEL_DATA = 6, LABEL_SERIAL = 4, LABEL_MANUFACTURER = 0 };

void bmc_reset(struct bmc *bmc)
{
    memset(bmc, 0, sizeof *bmc);
    bmc->events_per_reply = 10;
    snprintf(bmc->serial, sizeof bmc->serial, "2102314VIGIL0000001");
    snprintf(bmc->manufacturer, sizeof bmc->manufacturer, "Huawei");
}

static bool begins(const uint8_t *data, size_t length, const uint8_t *head, size_t head_length)
{
    return length >= head_length && memcmp(data, head, head_length) == 0;
}

/* What a request asks for, by which replies to be played are chosen; -1 for a foreign one. */
static int key_of(uint8_t command, const uint8_t *data, size_t length)
{
    if (command == COMMAND_EVENTS && begins(data, length, events_head, sizeof events_head) &&
        length >= EVENTS_DATA)
        return data[5] | data[6] << 8;
    if (command == COMMAND_LABEL && begins(data, length, label_head, sizeof label_head) &&
        length >= LABEL_DATA)
        return data[3];
    return -1;
}

static const struct played_reply *find_played(const struct bmc *bmc, uint8_t command, int key)
{
    for (uint32_t number = 0; number < bmc_at_most(bmc->played_count, MAX_PLAYED_REPLIES);
         number++) {
        const struct played_reply *played = &bmc->played[number];
        if (played->command == command && (played->key < 0 || played->key == key))
            return played;
    }
    return NULL;
}

static void write_event(uint8_t *event, const struct alarm *alarm)
{
    memset(event, 0, EVENT_BYTES);
    for (int byte = 0; byte < 4; byte++) {
        event[byte] = (uint8_t)(alarm->code >> 8 * byte);
        event[4 + byte] = (uint8_t)(alarm->raised_s >> 8 * byte);
    }
    event[8] = alarm->severity;
    event[9] = alarm->subject_type;
    event[10] = alarm->index;
}

static size_t answer_events(const struct bmc *bmc, const uint8_t *data, size_t length,
                            uint8_t *reply)
{
    if (length != EVENTS_DATA) {
        reply[0] = COMPLETION_WRONG_LENGTH;
        return 1;
    }
    if (!begins(data, length, events_head, sizeof events_head)) {
        reply[0] = COMPLETION_WRONG_FIELD;
        return 1;
    }
    unsigned first = data[5] | (unsigned)data[6] << 8;
    uint8_t severities = data[7];
    uint8_t subject = data[8];
    unsigned page = bmc_at_most(bmc->events_per_reply, MAX_EVENTS_PER_REPLY);
    unsigned total = 0;
    unsigned count = 0;
    for (uint32_t number = 0; number < bmc_alarms(bmc); number++) {
        const struct alarm *alarm = &bmc->alarms[number];
        if (!(severities >> (alarm->severity & 7) & 1) ||
            (subject != ANY_SUBJECT && subject != alarm->subject_type))
            continue;
        if (total >= first && count < page)
            write_event(reply + HEADER_BYTES + EVENT_BYTES * count++, alarm);
        total++;
    }
    reply[0] = COMPLETION_OK;
    memcpy(reply + 1, events_head, 3);
    reply[4] = (uint8_t)total;
    reply[5] = (uint8_t)(total >> 8);
    reply[6] = (uint8_t)count;
    reply[7] = 0;
    return HEADER_BYTES + EVENT_BYTES * count;
}

static size_t answer_label(const struct bmc *bmc, const uint8_t *data, size_t length,
                           uint8_t *reply)
{
    int field = key_of(COMMAND_LABEL, data, length);
    if (length != LABEL_DATA || (field != LABEL_SERIAL && field != LABEL_MANUFACTURER)) {
        reply[0] = length == LABEL_DATA ? COMPLETION_WRONG_FIELD : COMPLETION_WRONG_LENGTH;
        return 1;
    }
    const char *text = field == LABEL_SERIAL ? bmc->serial : bmc->manufacturer;
    size_t bytes = strnlen(text, BMC_TEXT_BYTES);
    reply[0] = COMPLETION_OK;
    reply[1] = 0;
    memcpy(reply + 2, text, bytes);
    return 2 + bytes;
}

size_t bmc_answer(const struct bmc *bmc, const uint8_t *request, size_t length,
                  uint8_t reply[BMC_REPLY_BYTES])
{
    if (length < 2 || request[0] != NETFN_VENDOR) {
        reply[0] = COMPLETION_INVALID_COMMAND;
        return 1;
    }
    uint8_t command = request[1];
    const uint8_t *data = request + 2;
    size_t data_length = length - 2;
    const struct played_reply *played =
        find_played(bmc, command, key_of(command, data, data_length));
    if (played != NULL) {
        size_t bytes = bmc_at_most(played->length, BMC_REPLY_BYTES);
        memcpy(reply, played->bytes, bytes);
        return bytes;
    }
    if (bmc->completion_code != 0) {
        reply[0] = (uint8_t)bmc->completion_code;
        return 1;
    }
    if (command == COMMAND_EVENTS)
        return answer_events(bmc, data, data_length, reply);
    if (command == COMMAND_LABEL)
        return answer_label(bmc, data, data_length, reply);
    reply[0] = COMPLETION_INVALID_COMMAND;
    return 1;
}
