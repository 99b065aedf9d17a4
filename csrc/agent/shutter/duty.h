/* The duty limit: for what part of its time this job may be held up, by pauses for others and by its own meter. */
#ifndef MPICOLOC_DUTY_H
#define MPICOLOC_DUTY_H

#include "agent/shutter/ranks.h"

typedef struct mc_duty {
    uint64_t t_open; /* the limit is a part of the time since then, */
    double frac;
    uint64_t allowance_ns; /* and this: else nobody could have a shutter soon */
    uint64_t longest_ns;   /* of one pause */
    uint64_t asked_ns;     /* others have asked the ranks to stand still for so long */
    uint64_t stood_ns;     /* the ranks say that they stood still for so long, mean over them */
    uint64_t counting_ns;  /* counting has taken this from each thread that ran */
} mc_duty;

/* Read what measuring has cost so far. Call it between any two pauses. */
void mc_duty_update(mc_duty *duty, mc_job_ranks *ranks, const mc_node *node, uint64_t now);
uint64_t mc_duty_spent_ns(const mc_duty *duty);
/* 1: the limit leaves room for so much more. */
int mc_duty_allows(const mc_duty *duty, uint64_t more_ns, uint64_t now);
/* The part of its time that the job is held up beyond the pauses that others ask it for. */
double mc_duty_own_frac(const mc_duty *duty, uint64_t now);

#endif
