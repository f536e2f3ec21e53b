/* The list cannot be asked for. */
#define WITHOUT_LIST
#include "switch.c"
