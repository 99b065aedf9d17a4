/* The duty limit: the largest fraction of a job's time that pauses for other jobs and its own meter may cost. */
#ifndef MPICOLOC_DUTY_H
#define MPICOLOC_DUTY_H

#include "agent/shutter/ranks.h"

typedef struct mc_duty {
    uint64_t t_open; /* start of the time of which the fraction `frac` is the limit */
    double frac;
    uint64_t allowance_ns; /* added to the limit, so that others can have shutters from the start */
    uint64_t longest_ns;   /* longest pause that is allowed */
    uint64_t asked_ns;     /* total length of the pauses that others requested */
    uint64_t stood_ns;     /* time paused according to the ranks: mean over the ranks */
    uint64_t counting_ns;  /* time that counting took from each running thread */
} mc_duty;

/* Update the time that measuring has cost so far. Call this between any two pauses. */
void mc_duty_update(mc_duty *duty, mc_job_ranks *ranks, const mc_node *node, uint64_t now);
uint64_t mc_duty_spent_ns(const mc_duty *duty);
/* 1: the limit allows more_ns in addition. */
int mc_duty_allows(const mc_duty *duty, uint64_t more_ns, uint64_t now);
/* Fraction of the job's time that measuring cost beyond the pauses that others requested. */
double mc_duty_own_frac(const mc_duty *duty, uint64_t now);

#endif
