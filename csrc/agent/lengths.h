/* How long the shutters of this job are, and how often: long enough for its cycles, rare enough for the duty limit. */
#ifndef MPICOLOC_LENGTHS_H
#define MPICOLOC_LENGTHS_H

#include "agent/shutter/board_view.h"

/* What the options say. */
typedef struct mc_shutter_options {
    uint64_t period_ns, duration_ns, max_ns;
    double duty_frac;
    uint64_t per_turn;
    int adapts;
} mc_shutter_options;

typedef struct mc_lengths {
    mc_shutter_options options;
    uint64_t t_open;
    uint64_t period_ns;   /* of the grid in force, which all jobs share */
    uint64_t duration_ns; /* of a shutter, as this job wishes it */
    double own_frac;      /* of this job's time: what it is held up beyond the pauses that others ask it for */
    double stretch;       /* how much of the longest allowed this job asks for; halved whenever neighbours refuse */
    uint64_t n_offered;   /* instants at which this job could take a shutter */
    uint64_t t_adapted;
} mc_lengths;

void mc_lengths_open(mc_lengths *lengths, uint64_t t_open);

/* Length of the next shutter: the wish or more. Jobs with different wishes share one grid, so a job that could do with
   short shutters uses what the duty limits leave it. */
uint64_t mc_lengths_planned_ns(const mc_lengths *lengths, const mc_board_view *view, uint64_t now);

enum { MC_TAKE_NONE, MC_TAKE_FULL, MC_TAKE_PARTIAL };
/* Which shutter this job takes at the instant that is offered to it: MC_TAKE_..., partial ones if it may. */
int mc_lengths_takes(mc_lengths *lengths, int may_be_partial, uint64_t now);
/* A shutter of this length was refused. */
void mc_lengths_refused(mc_lengths *lengths, uint64_t duration_ns);

/* 1: it is time for a new wish. */
int mc_lengths_is_due(const mc_lengths *lengths, const mc_board_view *view, uint64_t now);
/* Wish what suits cycles of this length; -1: not known. */
void mc_lengths_adapt(mc_lengths *lengths, double cycle_ns, uint64_t now);
/* Write the wish into the job's slot. */
void mc_lengths_tell(const mc_lengths *lengths, const mc_board_view *view);

#endif
