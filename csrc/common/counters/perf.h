/* Hardware counters of one thread: a group of instructions and cycles, in user space. */
#ifndef MPICOLOC_PERF_H
#define MPICOLOC_PERF_H

#include "common/mpicoloc.h"

enum {
    MC_N_EVENTS = 2,
    MC_LOST_NS = 1000000, /* if a group did not count for longer than this, it takes turns with other groups */
};

/* The two events of one thread, read together. */
typedef struct mc_group {
    int fds[MC_N_EVENTS];
} mc_group;

struct perf_event_attr;
/* Attributes of an event in user code. Reading it also gives the times for which it was enabled and counted. */
void mc_perf_in_user_code(struct perf_event_attr *attr, uint32_t type, uint64_t config);

/* Open a thread's counters. tid 0: the calling thread. A pinned group gets hardware counters before groups that take
   turns; if none are free, it does not count and cannot be read. Returns MC_E_PERF and sets errno if this fails. */
int mc_group_open(mc_group *group, int tid, int is_pinned);
void mc_group_close(mc_group *group);
/* Read a group. Counts are scaled up if the group takes turns on the counters. */
int mc_group_read(const mc_group *group, mc_ipc *out, int *is_shared);

/* Move a counter's descriptor to a high number, closed on exec, where it does not disturb the application. Returns -1
   if that fails. *id identifies the counter. */
int mc_perf_keep(int fd, uint64_t *id);
/* 1 if this descriptor still refers to the counter `id`: an application may close descriptors that it did not open, and
   the numbers are then reused. */
int mc_perf_is_kept(int fd, uint64_t id);

/* Whether counters can be used: MC_OK, or MC_E_PERF with the reason in words. This is safe even if a system-call filter
   kills processes that try it. */
int mc_perf_available(char *reason, size_t size);

#endif
