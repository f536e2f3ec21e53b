#include "troubles.h"

static const char *const tool_names[] = {
#define TOOL(name, scope) #name,
#include "tools.h"
#undef TOOL
};

void trouble_make(struct tool_trouble *on, unsigned trouble, uint32_t value,
                  const char *text)
{
    switch (trouble) {
    case TROUBLE_NONE:
        *on = (struct tool_trouble){0};
        break;
    case TROUBLE_HANG:
        on->hang = 1;
        break;
    case TROUBLE_SLOW:
        on->slow_ms = value;
        break;
    case TROUBLE_FAIL:
        on->exit_status = value;
        snprintf(on->text, sizeof on->text, "%s", text);
        break;
    case TROUBLE_GARBLE:
        on->garble = 1;
        break;
    case TROUBLE_BUSY:
        on->busy = 1;
        break;
    case TROUBLE_OTHER_CHIP:
        on->other_chip = 1;
        break;
    }
}

static void write_text(FILE *json, const char *text, size_t size)
{
    fputc('"', json);
    for (size_t at = 0; at < size && text[at] != '\0'; at++) {
        unsigned char letter = (unsigned char)text[at];
        if (letter == '"' || letter == '\\')
            fprintf(json, "\\%c", letter);
        else if (letter < ' ' || letter > '~')
            fprintf(json, "\\u%04x", letter);
        else
            fputc(letter, json);
    }
    fputc('"', json);
}

void troubles_write(FILE *json, const struct state *state)
{
    bool is_first = true;
    for (unsigned tool = 0; tool < TOOL_COUNT; tool++) {
        for (int place = 0; place <= MAX_CHIPS; place++) {
            const struct tool_trouble *trouble = &state->tools[tool][place];
            if (!trouble->hang && trouble->slow_ms == 0 && trouble->exit_status == 0 &&
                !trouble->garble && !trouble->busy && !trouble->other_chip)
                continue;
            fprintf(json, "%s{\"tool\": \"%s\", \"chip\": ", is_first ? "" : ", ",
                    tool_names[tool]);
            is_first = false;
            if (place == 0)
                fprintf(json, "null");
            else
                fprintf(json, "%d", place - 1);
            fprintf(json,
                    ", \"hang\": %s, \"slow_ms\": %u, \"garble\": %s, \"busy\": %s, "
                    "\"other_chip\": %s, \"exit_status\": %u, \"text\": ",
                    trouble->hang ? "true" : "false", trouble->slow_ms,
                    trouble->garble ? "true" : "false", trouble->busy ? "true" : "false",
                    trouble->other_chip ? "true" : "false", trouble->exit_status);
            write_text(json, trouble->text, sizeof trouble->text);
            fprintf(json, "}");
        }
    }
}
