/* Fault codes taken apart and put into words (docs/spec/dcmi.md#5.2 to 5.4). */
#ifndef VIGIL_EMULATOR_CODE_WORDS_H
#define VIGIL_EMULATOR_CODE_WORDS_H

#include <stdint.h>

/* Node type of a code: 11 bits of an ordinary one; a black-box code does not name its node. */
unsigned code_node_type(uint32_t code);
const char *code_node_name(uint32_t code);

/* Words, or a number written into BUFFER where no words are known. */
const char *code_sensor_name(uint32_t code, char buffer[16]);
const char *code_state_name(uint32_t code, char buffer[16]);

#endif
