/* Where a job's threads are in the windows of one shutter, by samples of their program counters: how much of the time
   outside MPI they are near the counted places. */
#ifndef MPICOLOC_WINDOW_SAMPLES_H
#define MPICOLOC_WINDOW_SAMPLES_H

#include "agent/count/loops.h"
#include "agent/count/places.h"

enum { MC_N_WINDOW_EDGES = MC_N_BEFORE_WINDOWS + 3, MC_N_OTHER_SPOTS = 512, MC_N_MISSED_SPOTS = 2048 };

/* The edge at which a window begins; it ends at the next one. Between the last window before the shutter and that in it
   there is time that counts for neither. */
static inline int mc_window_begin(int i_window)
{
    return i_window < MC_N_BEFORE_WINDOWS ? i_window : MC_N_BEFORE_WINDOWS + 1;
}

/* Of one thread at one instant. */
typedef struct mc_sampler_reading {
    /* Samples so far; processor time; time outside MPI, if it has a lane; time for which it waited for a processor. */
    uint64_t n_records, ran_ns, outside_ns, waited_ns, t;
} mc_sampler_reading;

/* An instruction far from all counted places, and its samples in each window. */
typedef struct mc_other_spot {
    uint64_t offset, n[MC_N_COUNT_WINDOWS];
    int i_path, is_waiting;
} mc_other_spot;

typedef struct mc_window_samples {
    mc_spots *spots; /* its samplers are used */
    mc_loops loops;
    uint64_t stretch;                     /* samples are so many times as far apart as usual */
    uint64_t i_set, n_failed[MC_N_LOOPS]; /* of the loops of this set: shutters in which they told nothing */
    mc_sampler_reading readings[MC_N_SAMPLERS][MC_N_WINDOW_EDGES];
    int n_others;
    mc_other_spot others[MC_N_OTHER_SPOTS];
    int n_missed;
    /* Others before shutters, since they were recalled; n is the time that they stand for, ns. */
    mc_spot missed[MC_N_MISSED_SPOTS];
} mc_window_samples;

/* What the samples are compared with. */
typedef struct mc_counted_code {
    const mc_place_set *set;
    mc_decoder *decoder;
    mc_program_files *files;
    mc_counts *counts;
} mc_counted_code;

mc_window_samples *mc_window_samples_new(void); /* NULL: no memory */
void mc_window_samples_free(mc_window_samples *samples);

/* Begin to sample some running threads for so long; registers too, if the set has loops. MC_OK, or nothing is sampled. */
int mc_window_samples_begin(mc_window_samples *samples, const mc_job_ranks *ranks, const mc_place_set *set, int i_first,
                            uint64_t length_ns);
/* An edge of a window is now. */
void mc_window_samples_edge(mc_window_samples *samples, int i_edge);
/* Stop. The shutter gets the samples of all threads outside MPI in each window, and how many of them were near the
   counted places. Time in the C library and in
   the kernel is outside MPI as far as the thread was. The shutter also gets the part of its last window for which one
   of them, the one that did most, waited for a processor. *cost_ns grows by what the samples took of the threads. */
void mc_window_samples_end(mc_window_samples *samples, const mc_counted_code *code, mc_shutter *shutter,
                           uint64_t *cost_ns);
/* Afterwards: passes of the loops of the row's set, in their units, into its columns; returns their sum. A loop that tells
   nothing several times is given up. */
uint64_t mc_window_samples_loops(mc_window_samples *samples, mc_counts *counts, mc_count_row *row);
/* Afterwards: part of the time from the first edge to the last for which a sampled thread had a processor. */
double mc_window_samples_busy_frac(const mc_window_samples *samples);
/* Add to the spots what no place was near since the last time: a search samples some seconds only, and the program may
   have rarer phases. */
void mc_window_samples_recall(mc_window_samples *samples, mc_spots *spots);

#endif
