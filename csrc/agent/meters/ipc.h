/* The meter ipc: instructions and cycles of all threads, in windows before, in and after each shutter of this job. */
#ifndef MPICOLOC_IPC_METER_H
#define MPICOLOC_IPC_METER_H

#include "agent/shutter/own_shutter.h"
#include "agent/meters/thread_counts.h"

/* Waits until all three windows are over, or *wake is not 0. */
void mc_ipc_measure(mc_thread_counts *counts, mc_own_shutter *own, const mc_job_ranks *ranks, mc_node *node, int *wake);

#endif
