/* Facts about processes and threads, read from /proc without heap memory, and the clock that all processes of a node
   share. */
#ifndef MPICOLOC_PROC_H
#define MPICOLOC_PROC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/* A clock's time, ns; 0 if the clock cannot be read, for example because its process has ended. */
uint64_t mc_clock_ns(clockid_t clock);
/* CLOCK_MONOTONIC. */
uint64_t mc_now_ns(void);

/* Sleep until t_ns (CLOCK_MONOTONIC), or until mc_wake sets *wake. A nap also ends when a signal arrives. */
void mc_sleep_until(uint64_t t_ns, int *wake);
void mc_nap_until(uint64_t t_ns, int *wake);
void mc_wake(int *wake);

/* Ask the scheduler to run this thread soon after it wakes. This needs no privilege and does not raise the priority. */
void mc_wake_promptly(void);

/* Read the beginning of a file as text; returns its length, or -1. */
ssize_t mc_proc_read_text(const char *path, char *text, size_t size);

typedef struct mc_proc_stat {
    char state; /* R, S, D, Z ... as in /proc/<pid>/stat */
    uint64_t start_ticks;
} mc_proc_stat;

/* Returns MC_OK or MC_E_GONE. */
int mc_proc_read_stat(mc_proc_stat *out, int pid);

/* 1 if a process with this pid is running and started at that time. Only the low halves of the times are compared,
   because the board stores no more. A zombie is not alive. */
int mc_proc_alive(int pid, uint64_t start_ticks);

/* 1 if the process has a handler for the signal, so that the signal does not kill it. */
int mc_proc_catches(int pid, int signal);
/* 1 if a debugger is attached. */
int mc_proc_is_traced(int pid);
/* Number of the process's system-call filters (seccomp). A filter could kill a process for a call that only our code
   makes. pid 0: the filters of this thread. */
uint64_t mc_proc_n_filters(int pid);

/* 1 if this thread's filters do not kill a process that calls `what`. A forked child tries the call, unless there are
   no filters. Call this only in our own processes, because an application could wait for the child. */
int mc_proc_survives(void (*what)(void));

typedef struct mc_proc_thread {
    char state;
    int handles; /* 1: the signal would be handled at once: it has a handler, and is neither blocked nor pending */
    uint64_t n_sleeps; /* voluntary context switches so far */
} mc_proc_thread;

/* Returns MC_OK or MC_E_GONE. */
int mc_proc_read_thread(mc_proc_thread *out, int pid, int tid, int signal);

/* Read the thread IDs of a process. Returns their number, at most n_max, and adds the number of IDs that did not fit to
   *n_left. */
int mc_proc_threads(int pid, int *tids, int n_max, int *n_left);
/* Time for which a thread has waited for a processor so far, ns; UINT64_MAX if the kernel does not report it. */
uint64_t mc_proc_waited_ns(int pid, int tid);

/* For each name in a folder that begins with prefix and ends with suffix, call found() with the part in between. */
void mc_dir_scan(const char *dir, const char *prefix, const char *suffix, void (*found)(void *, const char *),
                 void *data);

#endif
