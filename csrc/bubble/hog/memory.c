/* The hog's memory. */
#define _GNU_SOURCE
#include "bubble/bubble.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static const uint64_t HUGE_PAGE_BYTES = 2 << 20;

/* The number in a file behind `word`, or at its beginning if word is "". 0: there is none. */
static uint64_t number_in(const char *path, const char *word)
{
    char line[256];
    uint64_t found = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    while (!found && fgets(line, sizeof line, file))
        if (strncmp(line, word, strlen(word)) == 0 && sscanf(line + strlen(word), "%lu", &found) != 1)
            found = 0;
    fclose(file);
    return found;
}

uint64_t mc_bubble_free_bytes(void)
{
    uint64_t free_bytes = number_in("/proc/meminfo", "MemAvailable:") * 1024;
    uint64_t limit = number_in("/sys/fs/cgroup/memory.max", ""), used = number_in("/sys/fs/cgroup/memory.current", "");
    if (limit && limit > used && limit - used < free_bytes)
        free_bytes = limit - used;
    return free_bytes;
}

int mc_bubble_open(mc_bubble *b, uint64_t n_bytes)
{
    memset(b, 0, sizeof *b);
    if (n_bytes < MC_BUBBLE_BYTES_MIN)
        n_bytes = MC_BUBBLE_BYTES_MIN;
    uint64_t free_bytes = mc_bubble_free_bytes();
    if (free_bytes && n_bytes > free_bytes)
        return MC_BUBBLE_E_MEMORY;
    n_bytes = (n_bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    void *map = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return errno == ENOMEM ? MC_BUBBLE_E_MEMORY : MC_BUBBLE_E_MAP;
    /* With small pages much of the pressure would be on the tables of pages. Both calls may fail without harm. */
    madvise(map, n_bytes, MADV_HUGEPAGE);
    memset(map, 0, n_bytes);
    (void)mlock(map, n_bytes);
    b->lines = map;
    b->n_bytes = n_bytes;
    for (int i = 0; i < MC_BUBBLE_CHAINS; i++)
        b->chain[i] = (uint64_t)i + 1;
    return MC_BUBBLE_OK;
}

void mc_bubble_close(mc_bubble *b)
{
    if (b->lines)
        munmap(b->lines, b->n_bytes);
    memset(b, 0, sizeof *b);
}
