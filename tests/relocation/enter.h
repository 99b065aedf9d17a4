/* A whole processor state, and code run from it. */
#ifndef MC_ENTER_H
#define MC_ENTER_H

#include <stdint.h>

enum { N_GPR = 16, N_ZMM = 32, N_MASK = 8, RSP = 4, RBP = 5 };

/* enter.S knows this layout. Registers as in ModRM bytes: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 ... */
typedef struct state {
    uint8_t fx[512]; /* x87, MMX, MXCSR */
    uint8_t zmm[N_ZMM][64];
    uint64_t k[N_MASK];
    uint64_t gpr[N_GPR];
    uint64_t flags;
} __attribute__((aligned(64))) state;

extern uint8_t has_zmm;      /* else only the 16 ymm registers are loaded and saved */
extern uint64_t target;      /* where enter_window jumps to */
extern state saved, at_rest; /* what leave_window found; what it leaves */
void enter_window(const state *in);
void leave_window(void); /* is jumped to */

#endif
