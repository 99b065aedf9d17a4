/* Functions for Python (linked into _contract) and for all C programs. None of them uses MPI.
   Part of the contract: only mpicoloc.h includes this file. */
#ifndef MPICOLOC_FUNCTIONS_H
#define MPICOLOC_FUNCTIONS_H

/* Name (i_text 0), unit (1) or meaning (2) of counter i; NULL if there is no counter i. */
const char *mc_counter_text(int i, int i_text);

/* Path of <shm dir>/mpicoloc.<key>.<what>. */
int mc_shm_path(char *path, size_t size, const char *key, const char *what);
/* Reason why a job that began now might not see all other jobs of the node; NULL if the job would see all of them. */
const char *mc_board_would_not_see(void);
/* Get the name of the abstract socket where jobs meet. Returns 0 if they meet only in the shared-memory folder. */
int mc_board_socket_name(char *name, size_t size);
/* Copy the node's board, without jobs that have ended. Returns MC_E_GONE if there is no board. */
int mc_board_read(mc_board *out);
/* Number of jobs on a board of any version whose agents are alive, or whose heartbeat is less than quiet_ns old.
   Returns MC_E_... if the file cannot be read or is not a board. */
int mc_board_n_alive(const char *path, uint64_t quiet_ns);
/* Number of jobs on this node's boards of other versions whose agents are alive and have a recent heartbeat. */
int mc_board_n_foreign(void);
/* Open a file in a folder where other users can create files too, with the flags of open(2). This function never
   blocks, even if the file is a pipe or has a lease. It opens only regular files, not links, and with is_own only files
   of this user. Otherwise it returns -1 and sets errno. A file created by O_CREAT is private to the user. The function
   is async-signal-safe. */
int mc_shm_open(const char *path, int flags, int is_own);
/* Map a file of this user. If `create` is set, create the file. With a size of 0, map the whole file. */
int mc_shm_map(void **out, const char *path, size_t size_bytes, int create);
void mc_shm_unmap(void *map, size_t size_bytes);
/* Map a rank's segment. Returns NULL if the segment is incomplete or of another version. Unmap it with mc_shm_unmap. */
mc_segment *mc_segment_map(const char *path);
/* Map a node file, like mc_segment_map. */
mc_node *mc_node_map(const char *path);
/* Path of a file beside the profile: <profile without .h5><suffix>. out_path comes from a segment, and its terminating
   0 may be missing. */
int mc_path_beside(char *path, size_t size, const char *out_path, const char *suffix);
/* 1 if the file size limit allows this size. Exceeding the limit would kill the process (SIGXFSZ), and with it the
   application. */
int mc_file_may_have(size_t size_bytes);
/* Report to the waiting rank whether the profile was written. */
void mc_segment_set_outcome(mc_segment *segment, uint64_t profile, const char *complaint);
/* Allocate these bytes of a mapped file now, so that a later write to them cannot run out of memory (SIGBUS). */
int mc_shm_reserve(const char *path, size_t offset_bytes, size_t size_bytes);

/* Prepare a copy of a segment for reading. Pending cycles are settled by the verdicts on their shutters. Cycles without
   a verdict are dropped, and so are rows that were being created during the copy. The counters that are derived from
   the tables are filled in. */
void mc_segment_settle(mc_segment *segment);

#endif
