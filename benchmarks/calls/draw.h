/* Numbers that look drawn, the same in every run. */
#ifndef MC_BENCH_DRAW_H
#define MC_BENCH_DRAW_H

#include <stdint.h>

static uint64_t seed = 88172645463325252u;

static uint64_t draw(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

/* A time around 2^bits ns, most often less and now and then a hundred times more. */
static uint64_t draw_ns(int bits)
{
    uint64_t r = draw();
    return (r >> (64 - bits)) * (r % 128 == 0 ? 100 : 1) + 100;
}

#endif
