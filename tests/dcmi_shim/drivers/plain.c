/* Well behaved. It lacks all functions that a driver may lack: chip info v2, board, version, pod. */
#include "base.h"
