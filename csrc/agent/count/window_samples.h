/* Samples of the threads' program counters in the windows of one shutter. They show for what fraction of their time
   outside MPI the threads are near counted places. */
#ifndef MPICOLOC_WINDOW_SAMPLES_H
#define MPICOLOC_WINDOW_SAMPLES_H

#include "agent/count/loops.h"
#include "agent/count/places.h"

enum { MC_N_WINDOW_EDGES = MC_N_BEFORE_WINDOWS + 3, MC_N_OTHER_SPOTS = 512, MC_N_MISSED_SPOTS = 2048 };

/* Index of the edge at which a window begins; the window ends at the next edge. The time between the last window before
   the shutter and the window in the shutter belongs to neither window. */
static inline int mc_window_begin(int i_window)
{
    return i_window < MC_N_BEFORE_WINDOWS ? i_window : MC_N_BEFORE_WINDOWS + 1;
}

/* Readings of one thread at one instant. */
typedef struct mc_sampler_reading {
    /* Number of samples so far; processor time; time outside MPI, if the thread has a lane; time for which the thread
       waited for a processor. */
    uint64_t n_records, ran_ns, outside_ns, waited_ns, t;
} mc_sampler_reading;

/* An instruction far from all counted places, and its samples in each window. */
typedef struct mc_other_spot {
    uint64_t offset, n[MC_N_COUNT_WINDOWS];
    int i_path, is_waiting;
} mc_other_spot;

typedef struct mc_window_samples {
    mc_spots *spots; /* only its samplers are used */
    mc_loops loops;
    uint64_t stretch; /* factor by which the sampling intervals are extended */
    /* For each loop of set i_set: number of shutters in which its passes could not be computed. */
    uint64_t i_set, n_failed[MC_N_LOOPS];
    mc_sampler_reading readings[MC_N_SAMPLERS][MC_N_WINDOW_EDGES];
    int n_others;
    mc_other_spot others[MC_N_OTHER_SPOTS];
    int n_missed;
    /* Other spots, from samples in windows before shutters since the last recall. Here n is the time for which the
       samples of a spot stand, in ns. */
    mc_spot missed[MC_N_MISSED_SPOTS];
} mc_window_samples;

/* The code that samples are compared with. */
typedef struct mc_counted_code {
    const mc_place_set *set;
    mc_decoder *decoder;
    mc_program_files *files;
    mc_counts *counts;
} mc_counted_code;

mc_window_samples *mc_window_samples_new(void); /* NULL: no memory */
void mc_window_samples_free(mc_window_samples *samples);

/* Begin to sample some running threads for length_ns, with registers if the set has loops. If the result is not MC_OK,
   nothing is sampled. */
int mc_window_samples_begin(mc_window_samples *samples, const mc_job_ranks *ranks, const mc_place_set *set, int i_first,
                            uint64_t length_ns);
/* Take the readings at an edge of a window, which is now. */
void mc_window_samples_edge(mc_window_samples *samples, int i_edge);
/* Stop sampling. Record in the shutter, for each window, the samples of all threads outside MPI, and how many of them
   were near counted places. Samples in the C library and in the kernel count only in proportion to the time that the
   thread spent outside MPI according to its call times. Also record the longest time for which one thread waited for a
   processor, as a fraction of the last window. Add the time that sampling took from the threads to *cost_ns. */
void mc_window_samples_end(mc_window_samples *samples, const mc_counted_code *code, mc_shutter *shutter,
                           uint64_t *cost_ns);
/* Call this after mc_window_samples_end. Writes the passes of the set's loops, in their units, into the row; returns
   their sum. A loop is given up if several times its passes could not be computed from its samples. */
uint64_t mc_window_samples_loops(mc_window_samples *samples, mc_counts *counts, mc_count_row *row);
/* After mc_window_samples_end: fraction of the time from the first edge to the last for which a sampled thread had a
   processor. */
double mc_window_samples_busy_frac(const mc_window_samples *samples);
/* Add the samples since the last call that were far from all places to the spots, because a search samples for only a
   few seconds and can miss rare phases. */
void mc_window_samples_recall(mc_window_samples *samples, mc_spots *spots);

#endif
