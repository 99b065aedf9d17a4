#define _GNU_SOURCE
#include "agent/count/stubs.h"

#include "agent/count/loops.h"
#include "agent/count/patching.h"
#include "agent/relocation/relocate.h"
#include "agent/shutter/intervals.h"
#include "agent/code/maps.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

enum { AROUND_BYTES = MC_LOOP_BYTES, N_SLOTS = MC_STUB_PAGE_BYTES / MC_STUB_BYTES, N_GAPS = 512 };

typedef struct gap {
    uint64_t low, high; /* the addresses from low up to high are unused */
} gap;

/* Unused addresses of a process, for stubs near its code. */
typedef struct free_memory {
    int n;
    gap rows[N_GAPS];
} free_memory;

/* Stubs of one rank. */
typedef struct stubs {
    mc_counting *counting;
    int pid;
    mc_maps maps;
    free_memory gaps;
    int n_used[MC_N_STUB_PAGES];
} stubs;

/* The heap grows upwards and the stack downwards, and the kernel maps new memory just below the lowest mapping. Stubs
   therefore keep away from the edges of a gap, so that the program has room for what it maps before the stubs are
   written. */
static const uint64_t EDGE_BYTES = 1u << 20, ROOM_BYTES = MC_REACH_BYTES / 16, HEAP_BYTES = (uint64_t)1 << 32,
                      LOWEST = 1u << 20, HIGHEST = ((uint64_t)1 << 48) - (1u << 20), PROGRAMS_END = (uint64_t)1 << 46;

static void add(free_memory *gaps, uint64_t low, uint64_t high)
{
    if (high > low && high - low >= (uint64_t)MC_STUB_PAGE_BYTES && gaps->n < N_GAPS)
        gaps->rows[gaps->n++] = (gap){low, high};
}

static int read_gaps(free_memory *gaps, int pid)
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
        /* A program's heap grows from its data upwards, so leave room there even before it has a heap. */
        was_heap = strstr(line, "[heap]") != NULL || (start < PROGRAMS_END && strchr(line, '/') != NULL);
        last = end;
    }
    fclose(file);
    return MC_OK;
}

static uint64_t nearest(const gap *it, uint64_t address)
{
    uint64_t last = it->high - (uint64_t)MC_STUB_PAGE_BYTES;
    uint64_t at = address < it->low ? it->low : address > last ? last : address;
    return at & ~((uint64_t)MC_STUB_PAGE_BYTES - 1);
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* Take the free page nearest to this address; 0: none is within reach of a jump. */
static uint64_t take_gap(free_memory *gaps, uint64_t address)
{
    int i_best = -1;
    uint64_t best = 0;
    for (int i = 0; i < gaps->n; i++) {
        uint64_t at = nearest(&gaps->rows[i], address);
        if (at < gaps->rows[i].low || distance(at, address) >= MC_REACH_BYTES ||
            (i_best >= 0 && distance(at, address) >= distance(best, address)))
            continue;
        i_best = i;
        best = at;
    }
    if (i_best < 0)
        return 0;
    /* Keep only the part of the gap beyond the page, as seen from the address. Either part would do. */
    gap *found = &gaps->rows[i_best];
    if (best > address)
        found->low = best + (uint64_t)MC_STUB_PAGE_BYTES;
    else
        found->high = best;
    return best;
}

/* Address of a free stub in reach of the code at `address`; 0: none. */
static uint64_t new_stub(stubs *all, uint64_t address)
{
    for (int i = 0; i < MC_N_STUB_PAGES; i++) {
        mc_stub_page *page = &all->counting->pages[i];
        if (page->address == 0)
            page->address = take_gap(&all->gaps, address);
        if (page->address == 0)
            return 0;
        if (all->n_used[i] < N_SLOTS && distance(page->address, address) < MC_REACH_BYTES)
            return page->address + (uint64_t)all->n_used[i]++ * MC_STUB_BYTES;
    }
    return 0;
}

/* 1: within AROUND_BYTES of the place, the code in the rank's memory is the same as in the file. Breakpoints, other
   tools or relocations may have changed the code in memory. */
static int is_as_in_file(const stubs *all, const mc_object *object, uint64_t address)
{
    uint8_t code[2 * AROUND_BYTES], memory[2 * AROUND_BYTES];
    if (!address || !object)
        return 0;
    const mc_map map = mc_maps_piece(&all->maps, address);
    uint64_t begin = address - map.start < AROUND_BYTES ? map.start : address - AROUND_BYTES;
    uint64_t end = map.end - address < AROUND_BYTES ? map.end : address + AROUND_BYTES;
    size_t n = mc_object_read(object, begin - map.start + map.offset, code, (size_t)(end - begin));
    struct iovec local = {memory, n}, remote = {(void *)(uintptr_t)begin, n};
    return n && process_vm_readv(all->pid, &local, 1, &remote, 1, 0) == (ssize_t)n && memcmp(code, memory, n) == 0;
}

static int make_one(stubs *all, const mc_place *place, mc_decoder *decoder, const mc_object *object, const char *path,
                    int64_t counter_offset, mc_patch *patch)
{
    uint8_t code[MC_CONTEXT_BYTES + MC_CODE_BYTES] = {0};
    mc_patch_code made;
    uint64_t begin = mc_context_begin(place->offset), address = mc_maps_address(&all->maps, path, place->offset);
    uint64_t base = address - (place->offset - begin),
             left = address ? mc_maps_piece(&all->maps, address).end - base : 0;
    size_t n = object && left ? mc_object_read(object, begin, code, left < sizeof code ? left : sizeof code) : 0;
    if (!n)
        return 0;
    uint64_t stub = new_stub(all, address);
    if (!stub || mc_relocate(decoder, code, n, base, address, stub, (int32_t)counter_offset, &made) != MC_OK)
        return 0;
    uint64_t n_before = made.word_address - base, n_code = n - n_before;
    n_code = n_code < MC_CODE_BYTES ? n_code : MC_CODE_BYTES;
    *patch = (mc_patch){.word_address = made.word_address, .stub_address = stub, .n_code = n_code};
    memcpy(patch->code, code + n_before, n_code);
    memcpy(patch->before, made.before, sizeof made.before);
    memcpy(patch->after, made.after, sizeof made.after);
    memcpy(patch->stub, made.stub, made.n_stub);
    return 1;
}

/* Make all stubs. Each thread counts place i of the set in its counter i. */
static void make_all(stubs *all, const mc_place_set *set, mc_decoder *decoder, mc_program_files *files,
                     const mc_counts *counts, int is_refused[])
{
    mc_counting *counting = all->counting;
    memset(counting->pages, 0, sizeof counting->pages);
    memset(all->n_used, 0, sizeof all->n_used);
    for (uint64_t i = 0; i < set->n; i++) {
        const mc_place *place = &set->places[i];
        int64_t offset = counting->counters_offset + (int64_t)(i * sizeof(uint64_t));
        memset(&counting->patches[i], 0, sizeof counting->patches[i]);
        const mc_object *object = mc_program_file(files, counts, place->i_path);
        const char *path = counts->paths[place->i_path];
        is_refused[i] |=
            !is_as_in_file(all, object, mc_maps_address(&all->maps, path, place->offset)) ||
            (!place->n_bytes && !make_one(all, place, decoder, object, path, offset, &counting->patches[i]));
    }
    counting->n_patches = mc_loops_first(set);
}

/* Two places in one word cannot both be replaced. */
static void refuse_neighbours(const mc_place_set *set, int is_refused[])
{
    for (uint64_t i = 0; i < set->n; i++)
        for (uint64_t j = 0; j < i; j++)
            is_refused[i] |= !set->places[i].n_bytes && set->places[i].i_path == set->places[j].i_path &&
                             set->places[i].offset / MC_WORD_BYTES == set->places[j].offset / MC_WORD_BYTES;
}

static int remove_refused(mc_place_set *set, const int is_refused[])
{
    uint64_t n = 0, n_before = set->n;
    for (uint64_t i = 0; i < set->n; i++)
        if (!is_refused[i])
            set->places[n++] = set->places[i];
    set->n = n;
    return n < n_before;
}

/* 1: the process has loaded Ada's runtime, which turns faults in code of any language into exceptions. */
static int has_ada(const mc_maps *maps)
{
    for (int i = 0; i < maps->n_paths; i++)
        if (strstr(maps->paths[i], "/libgnat"))
            return 1;
    return 0;
}

static int prepare_rank(stubs *all, mc_rank *rank)
{
    all->counting = &rank->segment->counting;
    all->pid = rank->pid;
    if (!mc_patching_is_clean(rank))
        return MC_E_FULL;
    if (mc_maps_read(&all->maps, rank->pid) != MC_OK || has_ada(&all->maps))
        return MC_E_GONE;
    return read_gaps(&all->gaps, rank->pid);
}

static int make_round(stubs *all, mc_place_set *set, mc_decoder *decoder, mc_program_files *files,
                      const mc_counts *counts, mc_job_ranks *ranks, int *has_refused)
{
    int is_refused[MC_N_PLACES] = {0}, n_made = 0;
    refuse_neighbours(set, is_refused);
    for (int i = 0; i < ranks->n && set->n; i++) {
        mc_rank *rank = &ranks->rows[i];
        if (!rank->alive || !rank->segment->counting.counters_offset)
            continue;
        int status = prepare_rank(all, rank);
        if (status == MC_E_FULL)
            return status;
        if (status != MC_OK) {
            all->counting->n_patches = 0;
            continue;
        }
        make_all(all, set, decoder, files, counts, is_refused);
        n_made++;
    }
    *has_refused = remove_refused(set, is_refused);
    return n_made && set->n ? MC_OK : MC_E_GONE;
}

int mc_stubs_make(mc_place_set *set, mc_decoder *decoder, mc_program_files *files, const mc_counts *counts,
                  mc_job_ranks *ranks)
{
    stubs *all = calloc(1, sizeof *all);
    int status = all ? MC_OK : MC_E_GONE, has_refused = 1;
    /* If a place is refused, the places after it move to other counters, so all stubs are made again. */
    while (status == MC_OK && has_refused)
        status = make_round(all, set, decoder, files, counts, ranks, &has_refused);
    free(all);
    return status;
}
