/* Loaded, passed often and unloaded again (unload.c). */
#include "hot.h"

uint64_t library_work(uint64_t x, int n);

uint64_t library_work(uint64_t x, int n)
{
    for (int i = 0; i < n; i++)
        x = scramble(x ^ SALT, 10000) + 0x01234567u;
    return x;
}
