/* What /proc says about processes and threads, read without heap memory, and the one clock of a node. */
#ifndef MPICOLOC_PROC_H
#define MPICOLOC_PROC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* CLOCK_MONOTONIC. */
uint64_t mc_now_ns(void);

/* Sleep until t_ns (CLOCK_MONOTONIC) or until *wake is not 0 (mc_wake); a nap also ends when a signal comes. */
void mc_sleep_until(uint64_t t_ns, int *wake);
void mc_nap_until(uint64_t t_ns, int *wake);
void mc_wake(int *wake);

/* Ask the scheduler to run this thread soon after it wakes; no privilege needed, no priority gained. */
void mc_wake_promptly(void);

/* The beginning of a file as a text; returns its length, or -1. */
ssize_t mc_proc_read_text(const char *path, char *text, size_t size);

typedef struct mc_proc_stat {
    char state; /* R, S, D, Z ... as in /proc/<pid>/stat */
    uint64_t start_ticks;
} mc_proc_stat;

/* tid 0: the process. Returns MC_OK or MC_E_GONE. */
int mc_proc_read_stat(mc_proc_stat *out, int pid, int tid);

/* 1 if the process runs and started then. Only the low halves are compared, as the board keeps no more. A zombie is
   not alive. */
int mc_proc_alive(int pid, uint64_t start_ticks);

/* 1 if the process has a handler for the signal, so that sending it does not kill. */
int mc_proc_catches(int pid, int signal);
/* Filters of its system calls (seccomp), which may end it for one that it does not use itself.
   pid 0: of this thread. */
uint64_t mc_proc_n_filters(int pid);

/* 1 if none of this thread's filters ends a process for `what`, as a forked child shows that does it; without filters
   none is needed. For a process of our own, as the application may look after its children. */
int mc_proc_survives(void (*what)(void));

typedef struct mc_proc_thread {
    char state;
    int handles;       /* it would handle the signal at once: has a handler, blocks it not, and none waits already */
    uint64_t n_sleeps; /* how often it has gone to sleep by itself, ever */
} mc_proc_thread;

/* Returns MC_OK or MC_E_GONE. */
int mc_proc_read_thread(mc_proc_thread *out, int pid, int tid, int signal);

/* Thread ids of a process; returns their number, at most n_max. Those for which there was no room are added to n_left. */
int mc_proc_threads(int pid, int *tids, int n_max, int *n_left);
int mc_proc_has_thread(int pid, int tid);

/* Names in a folder that begin with prefix and end with suffix: what lies between is handed to found(). */
void mc_dir_scan(const char *dir, const char *prefix, const char *suffix, void (*found)(void *, const char *),
                 void *data);

#endif
