/* Loaded, passed often and unloaded again (unload.c). Libraries of different SALT differ in the last byte of some long
   instructions only. */
#include <stdint.h>

uint64_t library_work(uint64_t x, int n);

static uint64_t mix(uint64_t x, int n)
{
    uint32_t y = (uint32_t)x, z = (uint32_t)(x >> 32);
    for (int i = 0; i < n; i++) {
        y = (y ^ (SALT + 0x00345678u)) * (SALT + 0x0019660du) + (SALT + 0x0004f35fu);
        z = (z ^ 0x7f4a7c15u) * (SALT + 0x00695477u) + (y & (SALT | 0x80ffff0fu));
        y += ((z & (SALT | 0x80ffff3fu)) ^ (SALT + 0x00d1e995u)) + (z >> 7);
        z = (z + (SALT + 0x00123457u)) ^ (y << 3);
    }
    return (uint64_t)z << 32 | y;
}

uint64_t library_work(uint64_t x, int n)
{
    for (int i = 0; i < n; i++)
        x = mix(x, 10000) + 0x01234567u;
    return x;
}
