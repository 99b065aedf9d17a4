/* The bounded tables of a lane, with open addressing. Row 0 of a table counts the entries for which there is no
   room. */
#ifndef MPICOLOC_TABLE_H
#define MPICOLOC_TABLE_H

#include "common/mpicoloc.h"

/* The tables of one lane, large or small. */
typedef struct mc_tables {
    mc_lane_head *head; /* NULL: none */
    mc_site_row *sites;
    mc_peer_row *peers;
    mc_cycle_row *cycles;
    mc_collective_row *collectives;
    mc_part_row *parts;
    uint32_t n_sites, n_peers, n_cycles, n_collectives, n_parts;
} mc_tables;

/* For functions that read a table while its thread writes it. The numbers in a row may then be from different calls,
   and TSan must not report that. */
#define MC_READS_TORN __attribute__((no_sanitize("thread")))

enum { MC_N_ALL_LANES = MC_N_LANES + MC_N_SMALL_LANES };

mc_tables mc_lane_tables(mc_segment *segment, int i_lane);

/* The lane of another process's thread; NULL if it has none. Reads only lanes that are allocated in the file. */
const mc_lane_head *mc_lane_of_thread(mc_segment *segment, int tid);

/* Offset of lane i in its segment, and its size. */
size_t mc_lane_offset(int i_lane);
size_t mc_lane_size(int i_lane);

/* Each returns a row index; 0 when the table is full. */
uint32_t mc_site_find(mc_segment *segment, mc_tables *tables, uint32_t call, const void *site);
uint32_t mc_cycle_find(mc_tables *tables, uint32_t from, uint32_t to, uint64_t bytes);
uint32_t mc_peer_find(mc_tables *tables, int peer, uint32_t size_class);
uint32_t mc_collective_find(mc_tables *tables, uint64_t group, uint64_t to_group, uint32_t call, int root,
                            uint64_t bytes);
uint32_t mc_part_find(mc_tables *tables, int peer);

/* A well-mixed hash, never 0. */
uint64_t mc_mix(uint64_t x);

/* Size class: 0 for 0 bytes, otherwise 2 log2(bytes) rounded down to half octaves, plus 2. A half octave begins at 1.5
   times a power of 2. Classes are used because exact sizes would fill the table if a program's message sizes vary. */
uint32_t mc_half_octave(uint64_t bytes);

/* Size class by octaves: 0 for 0 bytes, otherwise 1 + floor(log2(bytes)). */
static inline uint32_t mc_octave(uint64_t bytes)
{
    return bytes ? 64 - (uint32_t)__builtin_clzll(bytes) : 0;
}

/* Add to the row's pending cell of window i_window, which waits for the verdict. Returns 0 if there is no room. */
int mc_pending_add(mc_tables *tables, uint32_t i_row, uint64_t i_window, const mc_sample *add);

/* Move pending cells whose shutters have a verdict into the table. If all != 0, drop the pending cells whose shutters
   have no verdict. */
void mc_pending_settle(const mc_sampling *sampling, mc_tables *tables, int all);

/* Call this for a copy that was made while the job ran. Drop rows whose numbers may be newer than the copied key and
   name. */
void mc_tables_drop_unborn(mc_tables *tables);

/* Fill in the counters that are derived from the tables. */
void mc_tables_add_up(mc_tables *tables);

static inline void mc_cell_add(mc_cell *cell, const mc_cell *add)
{
    cell->comp_ns += add->comp_ns;
    cell->mpi_ns += add->mpi_ns;
    cell->n += add->n;
}

static inline void mc_sample_add(mc_sample *sample, const mc_sample *add)
{
    mc_cell_add(&sample->cell, &add->cell);
    sample->cut_ns += add->cut_ns;
    sample->done_ns += add->done_ns;
}

#endif
