#define _GNU_SOURCE
#include "common/table.h"

#include <errno.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

/* A table counts as full after this many probes, which bounds the time spent on the hot path. */
enum { MAX_PROBES = 64 };

uint64_t mc_mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    x ^= x >> 33;
    return x | 1; /* 0 marks a free row */
}

uint32_t mc_half_octave(uint64_t bytes)
{
    uint32_t octave = mc_octave(bytes);
    if (octave < 2)
        return 2 * octave;
    return 2 * octave + (uint32_t)((bytes >> (octave - 2)) & 1);
}

/* A loaded object that contains a given address. */
typedef struct object {
    uint64_t address, base;
    char path[MC_TEXT_LEN];
} object;

static int holds(struct dl_phdr_info *info, size_t size, void *data)
{
    object *found = data;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type != PT_LOAD || found->address - info->dlpi_addr - header->p_vaddr >= header->p_memsz)
            continue;
        found->base = info->dlpi_addr;
        /* The loader has no name for the program itself. The program's addresses may be absolute. */
        if (info->dlpi_name && info->dlpi_name[0])
            memcpy(found->path, info->dlpi_name, strnlen(info->dlpi_name, MC_TEXT_LEN - 1));
        else if (readlink("/proc/self/exe", found->path, MC_TEXT_LEN - 1) < 0)
            memcpy(found->path, program_invocation_name, strnlen(program_invocation_name, MC_TEXT_LEN - 1));
        return 1;
    }
    return 0;
}

/* Store a call site relative to its object, so that profiles of different ranks and runs can be compared. Only new rows
   take the loader's lock. dladdr would be slow, because it also searches for the function's name, which takes 100 us in
   a library with 60,000 symbols. */
static void locate(mc_segment *segment, mc_site_row *row, const void *site)
{
    object found = {.address = (uint64_t)(uintptr_t)site};
    row->i_module = MC_N_MODULES;
    row->offset = found.address;
    if (!dl_iterate_phdr(holds, &found))
        return;
    uint64_t base = found.base;
    uint64_t n = __atomic_load_n(&segment->n_modules, __ATOMIC_RELAXED);
    for (uint64_t i = 0; i < n && i < MC_N_MODULES; i++) {
        const mc_module *module = &segment->modules[i];
        if (__atomic_load_n(&module->is_complete, __ATOMIC_ACQUIRE) && module->base == base) {
            row->i_module = (uint32_t)i;
            row->offset -= base;
            return;
        }
    }
    /* Each thread gets its own index, so two threads may add objects at the same time. At worst the same object appears
       twice. */
    n = __atomic_fetch_add(&segment->n_modules, 1, __ATOMIC_RELAXED);
    if (n >= MC_N_MODULES) {
        __atomic_store_n(&segment->n_modules, (uint64_t)MC_N_MODULES, __ATOMIC_RELAXED);
        return;
    }
    mc_module *module = &segment->modules[n];
    module->base = base;
    memcpy(module->path, found.path, sizeof found.path);
    __atomic_store_n(&module->is_complete, 1, __ATOMIC_RELEASE);
    row->i_module = (uint32_t)n;
    row->offset -= base;
}

/* Find a row by its key, with which the rows of every table begin. Returns the row with this key or a free row
   (*is_new); 0 if the table is full. */
static uint32_t probe(void *rows, size_t row_size, uint32_t n_rows, uint64_t key, int *is_new)
{
    uint32_t i = (uint32_t)(((key >> 32) * (n_rows - 1)) >> 32) + 1;
    for (uint32_t n = 0; n < MAX_PROBES; n++) {
        uint64_t found = *(const uint64_t *)((char *)rows + i * row_size);
        if (found == key || found == 0) {
            *is_new = found == 0;
            return i;
        }
        i = i + 1 < n_rows ? i + 1 : 1;
    }
    *is_new = 0;
    return 0;
}

/* Store the key after the row's other fields: a reader that sees the key while the job runs also sees the other
   fields. */
static void publish(uint64_t *at, uint64_t key)
{
    __atomic_store_n(at, key, __ATOMIC_RELEASE);
}

uint32_t mc_site_find(mc_segment *segment, mc_tables *tables, uint32_t call, const void *site)
{
    int is_new;
    uint64_t key = mc_mix((uint64_t)(uintptr_t)site ^ ((uint64_t)call << 48));
    uint32_t i = probe(tables->sites, sizeof *tables->sites, tables->n_sites, key, &is_new);
    if (is_new) {
        mc_site_row *row = &tables->sites[i];
        row->call = call;
        locate(segment, row, site);
        publish(&row->key, key);
    }
    return i;
}

uint32_t mc_cycle_find(mc_tables *tables, uint32_t from, uint32_t to, uint64_t bytes)
{
    int is_new;
    uint32_t size_class = mc_half_octave(bytes);
    uint64_t key = mc_mix(((uint64_t)from << 40) ^ ((uint64_t)to << 16) ^ size_class);
    uint32_t i = probe(tables->cycles, sizeof *tables->cycles, tables->n_cycles, key, &is_new);
    if (is_new) {
        mc_cycle_row *row = &tables->cycles[i];
        row->from = from;
        row->to = to;
        row->size_class = size_class;
        publish(&row->key, key);
    }
    return i;
}

uint32_t mc_peer_find(mc_tables *tables, int peer, uint32_t size_class)
{
    int is_new;
    uint64_t key = mc_mix(((uint64_t)(uint32_t)peer << 8) ^ size_class);
    uint32_t i = probe(tables->peers, sizeof *tables->peers, tables->n_peers, key, &is_new);
    if (is_new) {
        tables->peers[i] = (mc_peer_row){.peer = peer, .size_class = size_class};
        publish(&tables->peers[i].key, key);
    }
    return i;
}

uint32_t mc_collective_find(mc_tables *tables, uint64_t group, uint64_t to_group, uint32_t call, int root,
                            uint64_t bytes)
{
    int is_new;
    uint32_t size_class = mc_octave(bytes);
    uint64_t groups = to_group ? mc_mix(group + to_group) : group;
    uint64_t key = mc_mix(groups ^ ((uint64_t)call << 48) ^ ((uint64_t)(uint32_t)root << 8) ^ size_class);
    uint32_t i = probe(tables->collectives, sizeof *tables->collectives, tables->n_collectives, key, &is_new);
    if (is_new) {
        tables->collectives[i] = (mc_collective_row){
            .group = group, .to_group = to_group, .call = call, .root = root, .size_class = size_class};
        publish(&tables->collectives[i].key, key);
    }
    return i;
}

uint32_t mc_part_find(mc_tables *tables, int peer)
{
    int is_new;
    uint64_t key = mc_mix((uint64_t)(uint32_t)peer + 1);
    uint32_t i = probe(tables->parts, sizeof *tables->parts, tables->n_parts, key, &is_new);
    if (is_new) {
        tables->parts[i].peer = peer;
        publish(&tables->parts[i].key, key);
    }
    return i;
}

int mc_pending_add(mc_tables *tables, uint32_t i_row, uint64_t i_window, const mc_sample *add)
{
    mc_lane_head *head = tables->head;
    mc_cycle_row *row = &tables->cycles[i_row];
    uint32_t i = row->i_pending;
    if (i >= head->n_pending || head->pending[i].i_row != i_row || head->pending[i].i_window != i_window) {
        if (head->n_pending >= MC_N_PENDING)
            return 0;
        i = (uint32_t)head->n_pending++;
        head->pending[i] = (mc_pending){.i_window = i_window, .i_row = i_row};
        row->i_pending = i;
    }
    mc_sample_add(&head->pending[i].sample, add);
    return 1;
}

static uint64_t verdict_of(const mc_sampling *sampling, const mc_lane_head *head, uint64_t i_window)
{
    uint64_t n = __atomic_load_n(&sampling->n_windows, __ATOMIC_ACQUIRE);
    if (head->void_window == i_window + 1 || i_window + MC_N_WINDOWS <= n)
        return MC_VERDICT_SILENT;
    return __atomic_load_n(&sampling->windows[i_window % MC_N_WINDOWS].verdict, __ATOMIC_ACQUIRE);
}

void mc_pending_settle(const mc_sampling *sampling, mc_tables *tables, int all)
{
    uint64_t n_kept = 0;
    mc_lane_head *head = tables->head;
    for (uint64_t i = 0; i < head->n_pending && i < MC_N_PENDING; i++) {
        mc_pending *pending = &head->pending[i];
        if (pending->i_row >= tables->n_cycles)
            continue;
        mc_cycle_row *row = &tables->cycles[pending->i_row];
        uint64_t verdict = verdict_of(sampling, head, pending->i_window);
        if (verdict == MC_VERDICT_VALID)
            mc_sample_add(&row->solo[pending->i_window % MC_N_GROUPS], &pending->sample);
        else if (verdict == MC_VERDICT_UNKNOWN && !all) {
            row->i_pending = (uint32_t)n_kept;
            head->pending[n_kept++] = *pending;
        }
    }
    head->n_pending = n_kept;
}

/* Write only to words that are not zero, so that pages that have never been written still take no memory. */
static void clear(char *row, size_t size)
{
    uint64_t *words = (uint64_t *)row;
    for (size_t i = 0; i < size / sizeof *words; i++)
        if (words[i] != 0)
            words[i] = 0;
}

static void drop_unborn(void *rows, size_t row_size, uint32_t n_rows)
{
    char *row = rows;
    for (uint32_t i = 1; i < n_rows; i++)
        if (*(const uint64_t *)(row + i * row_size) == 0)
            clear(row + i * row_size, row_size);
}

void mc_tables_drop_unborn(mc_tables *tables)
{
    drop_unborn(tables->sites, sizeof *tables->sites, tables->n_sites);
    drop_unborn(tables->peers, sizeof *tables->peers, tables->n_peers);
    drop_unborn(tables->collectives, sizeof *tables->collectives, tables->n_collectives);
    drop_unborn(tables->parts, sizeof *tables->parts, tables->n_parts);
    drop_unborn(tables->cycles, sizeof *tables->cycles, tables->n_cycles);
}

static uint64_t n_cycles_of(const mc_cycle_row *row)
{
    uint64_t n = row->alone.n;
    for (int i = 0; i < MC_N_GROUPS; i++)
        n += row->corun[i].n + row->solo[i].cell.n;
    return n;
}

void mc_tables_add_up(mc_tables *tables)
{
    mc_counters *counters = &tables->head->counters;
    uint64_t gap_ns = tables->head->gap_ns;
    counters->n_calls = counters->mpi_ns = counters->sent_bytes = counters->recv_bytes = 0;
    counters->n_sent = counters->n_recv = 0;
    for (uint32_t i = 0; i < tables->n_sites; i++) {
        counters->n_calls += tables->sites[i].n;
        counters->mpi_ns += tables->sites[i].time_ns;
        counters->sent_bytes += tables->sites[i].sent_bytes;
        counters->recv_bytes += tables->sites[i].recv_bytes;
    }
    counters->sent_bytes -= counters->written_bytes; /* the bytes of call sites include file accesses */
    counters->recv_bytes -= counters->read_bytes;
    for (uint32_t i = 0; i < tables->n_peers; i++) {
        counters->n_sent += tables->peers[i].n;
        counters->n_recv += tables->peers[i].n_recv;
    }
    counters->comp_ns = gap_ns > counters->sampled_ns ? gap_ns - counters->sampled_ns : 0;
    counters->n_site_overflow = tables->sites[0].n;
    counters->n_peer_overflow = tables->peers[0].n + tables->peers[0].n_recv;
    counters->n_collective_overflow = tables->collectives[0].n + tables->parts[0].n;
    counters->n_cycle_overflow = n_cycles_of(&tables->cycles[0]);
}

mc_tables mc_lane_tables(mc_segment *segment, int i_lane)
{
    if (i_lane < MC_N_LANES) {
        mc_lane *lane = &segment->lanes[i_lane];
        return (mc_tables){&lane->head, lane->sites, lane->peers, lane->cycles,     lane->collectives, lane->parts,
                           MC_N_SITES,  MC_N_PEERS,  MC_N_CYCLES, MC_N_COLLECTIVES, MC_N_PARTS};
    }
    mc_small_lane *lane = &segment->small_lanes[i_lane - MC_N_LANES];
    return (mc_tables){&lane->head,     lane->sites,      lane->peers,      lane->cycles,      lane->collectives,
                       lane->parts,     MC_N_SMALL_SITES, MC_N_SMALL_PEERS, MC_N_SMALL_CYCLES, MC_N_SMALL_COLLECTIVES,
                       MC_N_SMALL_PARTS};
}

const mc_lane_head *mc_lane_of_thread(mc_segment *segment, int tid)
{
    uint64_t n_lanes = __atomic_load_n(&segment->n_lanes, __ATOMIC_ACQUIRE);
    for (int i = 0; i < MC_N_ALL_LANES && (uint64_t)i < n_lanes; i++) {
        const mc_lane_head *head = mc_lane_tables(segment, i).head;
        if (__atomic_load_n(&head->owner_tid, __ATOMIC_ACQUIRE) == (uint64_t)tid)
            return head;
    }
    return NULL;
}

size_t mc_lane_offset(int i_lane)
{
    if (i_lane < MC_N_LANES)
        return offsetof(mc_segment, lanes) + (size_t)i_lane * sizeof(mc_lane);
    return offsetof(mc_segment, small_lanes) + (size_t)(i_lane - MC_N_LANES) * sizeof(mc_small_lane);
}

size_t mc_lane_size(int i_lane)
{
    return i_lane < MC_N_LANES ? sizeof(mc_lane) : sizeof(mc_small_lane);
}
