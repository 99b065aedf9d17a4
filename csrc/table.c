#define _GNU_SOURCE
#include "table.h"

#include <dlfcn.h>
#include <string.h>

/* Beyond this many probes a table counts as full: the hot path stays bounded. */
enum { MAX_PROBES = 16 };

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    x ^= x >> 33;
    return x | 1; /* 0 marks a free row */
}

uint32_t mc_octave(uint64_t bytes)
{
    return bytes ? 64 - (uint32_t)__builtin_clzll(bytes) : 0;
}

uint32_t mc_half_octave(uint64_t bytes)
{
    uint32_t octave = mc_octave(bytes);
    if (octave < 2)
        return 2 * octave;
    return 2 * octave + (uint32_t)((bytes >> (octave - 2)) & 1);
}

/* Call sites are stored relative to their object, so that profiles of ranks and runs can be compared. dladdr takes
   the loader's lock, which is why only new rows pay for it. */
static void locate(mc_segment *segment, mc_site_row *row, const void *site)
{
    Dl_info info;
    row->i_module = MC_N_MODULES;
    row->offset = (uint64_t)(uintptr_t)site;
    if (!dladdr(site, &info) || !info.dli_fname)
        return;
    uint64_t base = (uint64_t)(uintptr_t)info.dli_fbase;
    uint64_t n = segment->n_modules;
    for (uint64_t i = 0; i < n && i < MC_N_MODULES; i++) {
        if (segment->modules[i].base == base) {
            row->i_module = (uint32_t)i;
            row->offset -= base;
            return;
        }
    }
    /* A reserved index is never shared, so two threads may add at once (the same object twice, at worst). */
    n = __atomic_fetch_add(&segment->n_modules, 1, __ATOMIC_RELAXED);
    if (n >= MC_N_MODULES) {
        __atomic_store_n(&segment->n_modules, (uint64_t)MC_N_MODULES, __ATOMIC_RELAXED);
        return;
    }
    segment->modules[n].base = base;
    size_t length = strnlen(info.dli_fname, MC_TEXT_LEN - 1);
    memcpy(segment->modules[n].path, info.dli_fname, length);
    row->i_module = (uint32_t)n;
    row->offset -= base;
}

uint32_t mc_site_find(mc_segment *segment, mc_lane *lane, uint32_t call, const void *site)
{
    uint64_t key = mix((uint64_t)(uintptr_t)site ^ ((uint64_t)call << 48));
    for (uint32_t probe = 0; probe < MAX_PROBES; probe++) {
        uint32_t i = (uint32_t)((key + probe) % (MC_N_SITES - 1)) + 1;
        mc_site_row *row = &lane->sites[i];
        if (row->key == key)
            return i;
        if (row->key == 0) {
            row->call = call;
            locate(segment, row, site);
            row->key = key;
            return i;
        }
    }
    return 0;
}

uint32_t mc_cycle_find(mc_lane *lane, uint32_t from, uint32_t to, uint64_t bytes)
{
    uint32_t size_class = mc_half_octave(bytes);
    uint64_t key = mix(((uint64_t)from << 40) ^ ((uint64_t)to << 16) ^ size_class);
    for (uint32_t probe = 0; probe < MAX_PROBES; probe++) {
        uint32_t i = (uint32_t)((key + probe) % (MC_N_CYCLES - 1)) + 1;
        mc_cycle_row *row = &lane->cycles[i];
        if (row->key == key)
            return i;
        if (row->key == 0) {
            row->from = from;
            row->to = to;
            row->size_class = size_class;
            row->key = key;
            return i;
        }
    }
    return 0;
}

uint32_t mc_peer_find(mc_lane *lane, int peer, uint64_t bytes)
{
    uint32_t size_class = mc_octave(bytes);
    uint64_t key = mix(((uint64_t)(uint32_t)peer << 8) ^ size_class);
    for (uint32_t probe = 0; probe < MAX_PROBES; probe++) {
        uint32_t i = (uint32_t)((key + probe) % (MC_N_PEERS - 1)) + 1;
        mc_peer_row *row = &lane->peers[i];
        if (row->key == key)
            return i;
        if (row->key == 0) {
            row->peer = peer;
            row->size_class = size_class;
            row->key = key;
            return i;
        }
    }
    return 0;
}

int mc_pending_add(mc_lane *lane, uint32_t i_row, uint64_t i_window, const mc_cell *add)
{
    mc_cycle_row *row = &lane->cycles[i_row];
    uint32_t i = row->i_pending;
    if (i >= lane->n_pending || lane->pending[i].i_row != i_row || lane->pending[i].i_window != i_window) {
        if (lane->n_pending >= MC_N_PENDING)
            return 0;
        i = (uint32_t)lane->n_pending++;
        lane->pending[i] = (mc_pending){.i_window = i_window, .i_row = i_row};
        row->i_pending = i;
    }
    mc_cell_add(&lane->pending[i].cell, add);
    return 1;
}

static uint64_t verdict_of(const mc_sampling *sampling, const mc_lane *lane, uint64_t i_window)
{
    uint64_t n = __atomic_load_n(&sampling->n_windows, __ATOMIC_ACQUIRE);
    if (lane->void_window == i_window + 1 || i_window + MC_N_WINDOWS <= n)
        return MC_VERDICT_SILENT;
    return __atomic_load_n(&sampling->windows[i_window % MC_N_WINDOWS].verdict, __ATOMIC_ACQUIRE);
}

void mc_pending_settle(const mc_sampling *sampling, mc_lane *lane, int all)
{
    uint64_t n_kept = 0;
    for (uint64_t i = 0; i < lane->n_pending && i < MC_N_PENDING; i++) {
        mc_pending *pending = &lane->pending[i];
        uint64_t verdict = verdict_of(sampling, lane, pending->i_window);
        if (verdict == MC_VERDICT_VALID && pending->i_row < MC_N_CYCLES)
            mc_cell_add(&lane->cycles[pending->i_row].solo[pending->i_window % MC_N_GROUPS], &pending->cell);
        else if (verdict == MC_VERDICT_UNKNOWN && !all && pending->i_row < MC_N_CYCLES) {
            lane->cycles[pending->i_row].i_pending = (uint32_t)n_kept;
            lane->pending[n_kept++] = *pending;
        }
    }
    lane->n_pending = n_kept;
}
