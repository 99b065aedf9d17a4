#define _GNU_SOURCE
#include "agent/count/gaps.h"

#include "agent/relocation/relocate.h"
#include "agent/shutter/intervals.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The heap grows upwards and the stack downwards, and the kernel maps new memory just below the lowest mapping: keep
   away from the edges, and leave room to what is mapped before the stubs are. */
static const uint64_t EDGE_BYTES = 1u << 20, ROOM_BYTES = MC_REACH_BYTES / 16, HEAP_BYTES = (uint64_t)1 << 32,
                      LOWEST = 1u << 20, HIGHEST = ((uint64_t)1 << 48) - (1u << 20), PROGRAMS_END = (uint64_t)1 << 46;

/* 64 KiB with some kernels of aarch64. */
static uint64_t page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static void add(mc_gaps *gaps, uint64_t low, uint64_t high)
{
    if (high > low && high - low >= page_bytes() && gaps->n < MC_N_GAPS)
        gaps->rows[gaps->n++] = (mc_gap){low, high};
}

int mc_gaps_read(mc_gaps *gaps, int pid)
{
    char name[64], line[MC_PATH_LEN + 128];
    uint64_t start, end, last = LOWEST;
    int was_heap = 0;
    snprintf(name, sizeof name, "/proc/%d/maps", pid);
    gaps->n = 0;
    FILE *file = fopen(name, "re");
    if (!file)
        return MC_E_GONE;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%" SCNx64 "-%" SCNx64, &start, &end) != 2 || start >= HIGHEST)
            continue;
        uint64_t edge = was_heap ? HEAP_BYTES : EDGE_BYTES;
        int is_stack = strstr(line, "[stack") != NULL;
        if (start > last && start - last > edge + EDGE_BYTES && !is_stack) {
            uint64_t half = (start - last - edge) / 2;
            add(gaps, last + edge, start - mc_max(EDGE_BYTES, mc_min(ROOM_BYTES, half)));
        }
        /* A program's own data are below the heap, also before it has any. */
        was_heap = strstr(line, "[heap]") != NULL || (start < PROGRAMS_END && strchr(line, '/') != NULL);
        last = end;
    }
    fclose(file);
    return MC_OK;
}

static uint64_t nearest(const mc_gap *gap, uint64_t address)
{
    uint64_t last = gap->high - page_bytes();
    uint64_t at = address < gap->low ? gap->low : address > last ? last : address;
    return at & ~(page_bytes() - 1);
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

uint64_t mc_gap_take(mc_gaps *gaps, uint64_t address, uint64_t reach_bytes)
{
    int i_best = -1;
    uint64_t best = 0;
    for (int i = 0; i < gaps->n; i++) {
        uint64_t at = nearest(&gaps->rows[i], address);
        if (at < gaps->rows[i].low || distance(at, address) >= reach_bytes ||
            (i_best >= 0 && distance(at, address) >= distance(best, address)))
            continue;
        i_best = i;
        best = at;
    }
    if (i_best < 0)
        return 0;
    /* The rest of the gap: of its two parts the one that is farther from the address is as good as any. */
    mc_gap *gap = &gaps->rows[i_best];
    if (best > address)
        gap->low = best + page_bytes();
    else
        gap->high = best;
    return best;
}
