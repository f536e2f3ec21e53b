/* A program that looks like the vendor's hccn_tool (dcmi#7): arguments and exit status. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "faults.h"
#include "hccn.h"
#include "links.h"
#include "tool.h"

enum { FIRST_ID_OF_NONE = 16 };

static const char *const commands[] = {
    "link",    "speed",     "link_stat", "stat", "optical", "bandwidth", "net_health", "ip",
    "gateway", "netdetect", "tls",       "fec",  "lldp",    "scdr",      "ping",       "mac",
    "mtu",     "duplex",    "dev_info",  "port_info",       "cfg",
};

static bool is_command(const char *name)
{
    for (size_t index = 0; index < sizeof commands / sizeof *commands; index++)
        if (strcmp(commands[index], name) == 0)
            return true;
    return false;
}

static bool read_number(const char *text, long largest, long *number)
{
    char *end;
    errno = 0;
    *number = text == NULL ? -1 : strtol(text, &end, 10);
    return text != NULL && end != text && *end == '\0' && errno == 0 && *number >= 0 &&
           *number <= largest;
}

/* Reads what follows OPTION; answers how many arguments that took, or -1. */
static int read_option(struct request *request, const char *option, char **rest)
{
    long number = 0;
    if (strcmp(option, "s") == 0) {
        request->set = rest[0];
        return request->set == NULL ? -1 : 1;
    }
    if (strcmp(option, "d") == 0) {
        request->device = rest[0];
        return request->device == NULL ? -1 : 1;
    }
    if (strcmp(option, "u") == 0 || strcmp(option, "p") == 0) {
        if (!read_number(rest[0], 255, &number))
            return -1;
        *(option[0] == 'u' ? &request->udie : &request->port) = (unsigned)number;
        return 1;
    }
    if (strcmp(option, "t") == 0 || strcmp(option, "time") == 0 ||
        strcmp(option, "optical_id") == 0) {
        if (!read_number(rest[0], 10000, &number))
            return -1;
        request->count = number;
        return 1;
    }
    return -1;
}

/* A word without a dash: what is to be shown, an address, a count. Answers like read_option. */
static int read_word(struct request *request, char **words)
{
    if (strcmp(words[0], "address") == 0) {
        request->address = words[1];
        return words[1] == NULL ? -1 : 2;
    }
    if (strcmp(words[0], "pkt") == 0)
        return read_number(words[1], 1000, &request->count) ? 2 : -1;
    request->word = words[0];
    return 1;
}

static int read_request(struct request *request, char **arguments)
{
    request->a5 = arguments[0] != NULL && strcmp(arguments[0], "-g") == 0;
    bool is_chip_right = true;
    bool is_unknown = false;
    while (arguments[0] != NULL) {
        const char *name = arguments[0][0] == '-' ? arguments[0] + 1 : NULL;
        int taken = 1;
        if (name == NULL) {
            taken = read_word(request, arguments);
        } else if (strcmp(name, "g") == 0) {
            request->get = true;
        } else if (strcmp(name, "inet6") == 0) {
            request->inet6 = true;
        } else if (strcmp(name, "i") == 0) {
            long id = NO_CHIP;
            is_chip_right = read_number(arguments[1], FIRST_ID_OF_NONE - 1, &id);
            request->chip = (int)id;
            taken = arguments[1] == NULL ? 1 : 2;
        } else if (request->command == NULL && is_command(name)) {
            request->command = name;
        } else {
            int read = read_option(request, name, arguments + 1);
            is_unknown = is_unknown || read < 0;
            taken = 1 + (read < 0 ? 0 : read);
        }
        if (taken < 0)
            return HCCN_WRONG_COUNT;
        arguments += taken;
    }
    if (request->command == NULL)
        return HCCN_NO_COMMAND;
    if (!is_chip_right || request->chip < 0)
        return HCCN_NO_DEVICE_ID;
    return is_unknown ? HCCN_UNKNOWN_OPTION : HCCN_OK;
}

static int finish(int code)
{
    static const struct {
        int code;
        bool to_stdout;
        const char *text;
    } messages[] = {
        {HCCN_NO_COMMAND, false,
         "Get invalid major cmd.\nEnter [ hccn_tool -h ] for more details."},
        {HCCN_NO_DEVICE_ID, false, "Get invalid device id."},
        {HCCN_UNKNOWN_OPTION, false, "Get unknown option!"},
        {HCCN_WRONG_COUNT, false, "The total count of input parameters is wrong!"},
        {HCCN_BUSY, true, "hccn_tool is busy, please try again."},
        {HCCN_NOT_SUPPORTED, true, "The command is not supported on this product."},
        {HCCN_ABORTED, false, "User aborts command."},
        {HCCN_FAILED, false, "Command execute failed!"},
        {HCCN_NO_HEALTH, false, "Get device health status failed!"},
        {HCCN_NOT_THERE, false, "The device is not exist!"},
        {HCCN_LINK_DOWN, false, "Execute failed: Link status is down."},
    };
    for (size_t index = 0; index < sizeof messages / sizeof *messages; index++)
        if (messages[index].code == code)
            fprintf(messages[index].to_stdout ? stdout : stderr, "%s\n", messages[index].text);
    return code & 0xff;
}

/* Without somebody to answer, as in a script, the command is done. */
static bool is_confirmed(void)
{
    printf("This command will change the link. Do you want to continue? (y/n)");
    fflush(stdout);
    int answer = getchar();
    printf("\n");
    return answer == EOF || answer == 'y' || answer == 'Y';
}

static int set_link(struct state *state, unsigned chip, bool down)
{
    int error = 0;
    uint32_t code = link_down_code(&profiles[state->profile]);
    if (down)
        error = faults_occur(state, chip, code, LINK_DOWN_SEVERITY);
    else
        faults_recover(state, chip, code);
    link_set(state, chip, down);
    printf("Cmd executed successfully!\n");
    return error == 0 ? HCCN_OK : HCCN_FAILED;
}

static int change(const struct request *request, struct state *state, unsigned chip)
{
    if (strcmp(request->command, "cfg") == 0 && request->word != NULL &&
        strcmp(request->word, "recovery") == 0)
        return set_link(state, chip, false);
    if (strcmp(request->command, "link") == 0 && request->set != NULL) {
        bool down = strcmp(request->set, "down") == 0;
        return down || strcmp(request->set, "up") == 0 ? set_link(state, chip, down)
                                                       : HCCN_UNKNOWN_OPTION;
    }
    if (strcmp(request->command, "optical") == 0 && request->count >= 0)
        return printf("Cmd executed successfully!\n") < 0 ? HCCN_FAILED : HCCN_OK;
    return HCCN_WRONG_COUNT;
}

static bool is_active(const struct chip_state *chip, uint32_t code)
{
    for (unsigned index = 0; index < MAX_FAULTS; index++)
        if (chip->faults[index].code == code && fault_is_active(&chip->faults[index]))
            return true;
    return false;
}

static bool is_question(const struct request *request)
{
    return request->get || (strcmp(request->command, "scdr") == 0 && request->count >= 0);
}

int main(int count, char **arguments)
{
    static char buffer[1 << 14];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    struct request request = {.chip = NO_CHIP, .count = -1};
    int code = count < 2 ? HCCN_NO_COMMAND : read_request(&request, arguments + 1);
    if (code != HCCN_OK)
        return finish(code);
    if (request.set != NULL && !is_confirmed())
        return finish(HCCN_ABORTED);
    struct tool_run run = tool_begin(T_hccn_tool, request.chip);
    unsigned chips = (unsigned)profile_chips(run.profile);
    unsigned chip = (unsigned)request.chip;
    if (run.is_busy)
        return finish(HCCN_BUSY);
    if (!run.profile->network)
        return finish(HCCN_NOT_SUPPORTED);
    if (chip >= chips)
        return finish(HCCN_NOT_THERE);
    if (run.state->chips[chip].drop != DROP_NONE)
        return finish(HCCN_NO_HEALTH);
    if (!is_question(&request))
        return finish(change(&request, run.state, chip));
    if (run.other_chip) {
        chip = (chip + 1) % chips;
        printf("[devid %u]", chip);
    }
    const struct link_state *link = &run.state->chips[chip].link;
    request.has_unified_bus = run.profile->second_generation;
    request.is_uboe_down = is_active(&run.state->chips[chip], UBOE_PORT_DOWN_CODE);
    request.is_ub_down = is_active(&run.state->chips[chip], UB_PORT_DOWN_CODE);
    return finish(request.a5 ? hccn_answer_a5(&request, link, chip)
                             : hccn_answer(&request, link, chip));
}
