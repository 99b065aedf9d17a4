/* Functions for Python (linked into _contract) and for all C programs. None of them knows MPI.
   Part of the contract: only mpicoloc.h includes it. */
#ifndef MPICOLOC_FUNCTIONS_H
#define MPICOLOC_FUNCTIONS_H

/* Name (0), unit (1) or meaning (2) of counter i; NULL past the end. */
const char *mc_counter_text(int i, int i_text);

/* Path of <shm dir>/mpicoloc.<key>.<what>. */
int mc_shm_path(char *path, size_t size, const char *key, const char *what);
/* Why a job that began now might not see all others of the node; NULL: it would. */
const char *mc_board_would_not_see(void);
/* The name of the abstract socket where jobs meet; 0: they meet in the shared-memory folder alone. */
int mc_board_socket_name(char *name, size_t size);
/* Copy the node's board, without jobs that have ended. MC_E_GONE: there is none. */
int mc_board_read(mc_board *out);
/* Number of jobs on a board of any version whose agents are alive, or whose heartbeat is less than quiet_ns old.
   MC_E_...: it cannot be read, or is no board. */
int mc_board_n_alive(const char *path, uint64_t quiet_ns);
/* Number of jobs on this node's boards of other versions whose agents are alive and have a recent heartbeat. */
int mc_board_n_foreign(void);
/* Open a file in a folder where other users make files too, with the flags of open(2). It never waits, even if a
   pipe or a leased file is there. It refuses (-1, errno) everything but regular files, also links; with is_own it
   refuses files of other users. A file made by O_CREAT is private to the user. Async-signal-safe. */
int mc_shm_open(const char *path, int flags, int is_own);
/* Map a file of this user; create makes it. Size 0: the whole file. */
int mc_shm_map(void **out, const char *path, size_t size_bytes, int create);
void mc_shm_unmap(void *map, size_t size_bytes);
/* Map a rank's segment; NULL: it is not complete yet, or none of this version. Unmap it with mc_shm_unmap. */
mc_segment *mc_segment_map(const char *path);
/* The same for a node file. */
mc_node *mc_node_map(const char *path);
/* Path of a file beside the profile: <profile without .h5><suffix>. out_path comes from a segment and may lack its
   terminating 0. */
int mc_path_beside(char *path, size_t size, const char *out_path, const char *suffix);
/* 1 if files may grow to this size. A process that exceeds its limit is killed (SIGXFSZ), and with it the
   application. */
int mc_file_may_have(size_t size_bytes);
/* Tell the waiting rank what became of the profile. */
void mc_segment_set_outcome(mc_segment *segment, uint64_t profile, const char *complaint);
/* Allocate these bytes of a mapped file now, so that writing to them cannot fail for want of memory (SIGBUS). */
int mc_shm_reserve(const char *path, size_t offset_bytes, size_t size_bytes);

/* Prepare a copy of a segment for reading. Pending cycles go where the verdicts on their shutters say. Cycles
   without a verdict are dropped, and so are rows that were being made during the copy. Counters that follow from the
   tables are filled in. */
void mc_segment_settle(mc_segment *segment);

#endif
