/* Samples of program counters: they show where a job's threads spend their time. */
#ifndef MPICOLOC_SPOTS_H
#define MPICOLOC_SPOTS_H

#include "agent/code/maps.h"
#include "agent/code/sample_ring.h"
#include "agent/shutter/ranks.h"
#include "common/mpicoloc.h"

enum { MC_N_SAMPLERS = 8, MC_N_SPOTS = 2048, MC_SAMPLE_EVERY_NS = 1000000 };

/* A sampled instruction: an offset in a file of mc_counts.paths, and its number of samples. */
typedef struct mc_spot {
    uint64_t offset, n;
    int i_path;
} mc_spot;

typedef struct mc_sampler {
    mc_sample_ring ring;
    const mc_rank *rank;
    int tid;
    mc_maps maps;
} mc_sampler;

typedef struct mc_spots {
    int n_samplers;
    mc_sampler *samplers; /* MC_N_SAMPLERS */
    uint64_t n_samples;   /* number of all samples, including samples in left-out libraries */
    int n;
    mc_spot rows[MC_N_SPOTS]; /* the most frequent first */
} mc_spots;

mc_spots *mc_spots_new(void); /* NULL: no memory */
void mc_spots_free(mc_spots *spots);

/* Sample some running threads from now on, beginning with rank i_first, at intervals of every_ns of their processor
   time, with registers if has_registers. Returns MC_E_GONE if no thread runs at the moment, and MC_E_PERF, with errno
   set, if the kernel refuses. */
int mc_spots_begin(mc_spots *spots, const mc_job_ranks *ranks, int i_first, uint64_t every_ns, int has_registers);
uint64_t mc_spots_n_taken(const mc_spots *spots);
/* Add `more` to the row of its instruction, or to a new row if there is room. */
void mc_spot_add(mc_spot rows[], int *n_rows, int n_max, const mc_spot *more);
/* Sort the spots by number of samples, the most frequent first. */
void mc_spots_sort(mc_spots *spots);
/* Stop sampling, and forget the samples. */
void mc_spots_stop(mc_spots *spots);
/* Index of a file in counts->paths; -1: it is not listed there. */
int mc_spots_path(const mc_counts *counts, const char *path);
/* Stop sampling, and count the samples of each instruction. */
void mc_spots_end(mc_spots *spots, mc_counts *counts);

#endif
