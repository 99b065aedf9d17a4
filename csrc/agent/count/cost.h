/* What one pass of a counted place costs. */
#ifndef MPICOLOC_COUNT_COST_H
#define MPICOLOC_COUNT_COST_H

/* In ns, measured on this thread. */
double mc_pass_ns(void);

#endif
