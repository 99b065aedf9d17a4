/* A window: an instruction that the rules admit and those behind it, through the one that writes the flags. */
#ifndef MC_WINDOWS_H
#define MC_WINDOWS_H

#include "agent/relocation/relocate.h"

#include <stdio.h>

enum { N_WINDOW_MAX = 240 };

typedef struct window {
    uint8_t remainder; /* of its address modulo 64, which operands may have to be aligned to */
    uint8_t is_cut;    /* what writes the flags is too far: a test stands for it */
    uint8_t n_bytes;
    uint8_t bytes[N_WINDOW_MAX];
} window;

static inline int write_window(const window *w)
{
    return fwrite(w, offsetof(window, bytes), 1, stdout) == 1 && fwrite(w->bytes, w->n_bytes, 1, stdout) == 1;
}

static inline int read_window(window *w)
{
    return fread(w, offsetof(window, bytes), 1, stdin) == 1 && w->n_bytes <= N_WINDOW_MAX &&
           fread(w->bytes, w->n_bytes, 1, stdin) == 1;
}

#endif
