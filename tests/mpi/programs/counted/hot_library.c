/* Loaded, passed often and unloaded again (unload.c). Libraries of different SALT differ in one byte only: the last one
   of an instruction. */
#include <stdint.h>

uint64_t library_work(uint64_t x, int n);

static uint64_t mix(uint64_t x, int n)
{
    uint32_t y = (uint32_t)x, z = (uint32_t)(x >> 32);
    for (int i = 0; i < n; i++) {
        y = (y ^ 0x21345678u) * (SALT + 0x0019660du) + 0x3c6ef35fu;
        z = (z ^ 0x7f4a7c15u) * 22695477u + (y & 0x0fffff0fu);
        y += ((z & 0x3fffff3fu) ^ 0x5bd1e995u) + (z >> 7);
        z = (z + 0x11123457u) ^ (y << 3);
    }
    return (uint64_t)z << 32 | y;
}

uint64_t library_work(uint64_t x, int n)
{
    for (int i = 0; i < n; i++)
        x = mix(x, 10000) + 0x01234567u;
    return x;
}
