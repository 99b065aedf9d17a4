/* Length and frequency of this job's shutters: long enough for its cycles, rare enough for the duty limit. */
#ifndef MPICOLOC_LENGTHS_H
#define MPICOLOC_LENGTHS_H

#include "agent/shutter/board_view.h"

/* Values of the options. */
typedef struct mc_shutter_options {
    uint64_t period_ns, duration_ns, max_ns;
    double duty_frac;
    uint64_t per_turn;
    int adapts;
} mc_shutter_options;

typedef struct mc_lengths {
    mc_shutter_options options;
    uint64_t t_open;
    uint64_t period_ns;   /* period of the present grid, which all jobs share */
    uint64_t duration_ns; /* shutter length that this job wishes */
    double own_frac;      /* fraction of its time that measuring costs this job beyond the pauses that others request */
    double stretch;       /* fraction of the longest allowed length to request; halved whenever neighbours refuse */
    uint64_t n_offered;   /* number of instants offered to this job so far */
    uint64_t t_adapted;
} mc_lengths;

void mc_lengths_open(mc_lengths *lengths, uint64_t t_open);

/* Length of the next shutter: at least the wish. Jobs with different wishes share one grid, so a job that wishes short
   shutters takes longer shutters if the duty limits allow them. */
uint64_t mc_lengths_planned_ns(const mc_lengths *lengths, const mc_board_view *view, uint64_t now);

enum { MC_TAKE_NONE, MC_TAKE_FULL, MC_TAKE_PARTIAL };
/* Choose the shutter that this job takes at an instant offered to it: MC_TAKE_*. */
int mc_lengths_takes(mc_lengths *lengths, int may_be_partial, uint64_t now);
/* A shutter of this length was refused. */
void mc_lengths_refused(mc_lengths *lengths, uint64_t duration_ns);

/* 1: it is time for a new wish. */
int mc_lengths_is_due(const mc_lengths *lengths, const mc_board_view *view, uint64_t now);
/* Set the wish so that it suits cycles of length cycle_ns; -1: unknown length. */
void mc_lengths_adapt(mc_lengths *lengths, double cycle_ns, uint64_t now);
/* Write the wish into the job's slot. */
void mc_lengths_tell(const mc_lengths *lengths, const mc_board_view *view);

#endif
