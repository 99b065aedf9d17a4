/* The ipc meter: instructions and cycles of a job's threads, in user space. */
#ifndef MPICOLOC_PERF_H
#define MPICOLOC_PERF_H

#include "common/mpicoloc.h"

enum {
    MC_N_EVENTS = 2,
    MC_LOST_NS = 1000000, /* a group that was off the processor's counters for longer has to share them */
};

/* The two events of one thread, read together. */
typedef struct mc_group {
    int fds[MC_N_EVENTS];
} mc_group;

struct perf_event_attr;
/* An event of user code, read with the times in which it was enabled and counted. */
void mc_perf_in_user_code(struct perf_event_attr *attr, uint32_t type, uint64_t config);

/* tid 0: the calling thread. A pinned group has the processor's counters before all that take turns, or does not count
   at all and cannot be read. MC_E_PERF, with errno. */
int mc_group_open(mc_group *group, int tid, int is_pinned);
void mc_group_close(mc_group *group);
/* Scaled up where the counters are shared with others by turns. */
int mc_group_read(const mc_group *group, mc_ipc *out, int *is_shared);

/* Move a counter's descriptor out of the application's way, closed on exec; -1 where that cannot be.
   `id` tells the counter. */
int mc_perf_keep(int fd, uint64_t *id);
/* An application may close what it did not open, and the number is another file's then:
   1 if it is still that counter's. */
int mc_perf_is_kept(int fd, uint64_t id);

/* MC_OK, or MC_E_PERF with the reason in words. Harmless where a filter of system calls ends who tries. */
int mc_perf_available(char *reason, size_t size);

/* What an error number of perf_event_open means to a user who wanted such things. */
void mc_perf_why(const char *what, int error, char *reason, size_t size);
void mc_perf_why_not_tried(char *reason, size_t size);

typedef struct mc_perf mc_perf;

/* A thread to watch, and what it publishes of its MPI calls. */
typedef struct mc_followed {
    int tid;
    int is_untold;            /* it may call MPI without publishing anything */
    const mc_lane_head *lane; /* NULL: none, it calls no MPI */
} mc_followed;

mc_perf *mc_perf_open(void); /* NULL: no memory */
void mc_perf_close(mc_perf *perf);

/* Watch exactly these threads from now on; counters of known ones run on. Returns the number of those that are not
   watched: there are too many, or too many files are open. */
int mc_perf_follow(mc_perf *perf, const mc_followed *threads, int n);

/* Note what all followed threads have counted by now: at the begin (0) or the end (1) of a window in this span. */
void mc_perf_note(mc_perf *perf, int i_end, uint64_t span);

/* What they counted between these two. Returns 1 if `outside`, the part outside MPI calls, is known of every one,
   else 0; MC_E_PERF, and no counts, where those of one could not be read. */
int mc_perf_between(const mc_perf *perf, mc_ipc *all, mc_ipc *outside);

#endif
