/* Loops with instructions that are long enough to be counted. */
#ifndef HOT_H
#define HOT_H

#include <stdint.h>

static inline uint64_t scramble(uint64_t x, int n)
{
    uint32_t y = (uint32_t)x, z = (uint32_t)(x >> 32);
    for (int i = 0; i < n; i++) {
        y = (y ^ 0x9e3779b9u) * 1664525u + 1013904223u;
        z = (z ^ 0x7f4a7c15u) * 22695477u + (y & 0x0fffff0fu);
        y += (z & 0x3fffff3fu) ^ 0x5bd1e995u;
    }
    return (uint64_t)z << 32 | y;
}

#endif
