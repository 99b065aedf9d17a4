/* Functions for Python (linked into _contract) and for all C programs. None of them knows MPI.
   Part of the contract: only mpicoloc.h includes it. */
#ifndef MPICOLOC_FUNCTIONS_H
#define MPICOLOC_FUNCTIONS_H

/* Name, unit and meaning of counter i; NULL past the end. */
const char *mc_counter_name(int i);
const char *mc_counter_unit(int i);
const char *mc_counter_meaning(int i);

/* Path of <shm dir>/mpicoloc.<key>.<what>. */
int mc_shm_path(char *path, size_t size, const char *key, const char *what);
/* Jobs on a board of any version whose agents live, or gave a sign of life less than quiet_ns ago; MC_E_...: it cannot be
   read, or is no board. */
int mc_board_n_alive(const char *path, uint64_t quiet_ns);
/* Jobs on the node's boards of other versions whose agents live and gave a sign of life lately. */
int mc_board_n_foreign(void);
/* Open a file in a folder where other users make files too, with the flags of open(2). Never waits: a pipe, or a file
   under a lease, may stand in its place. Refused (-1, errno) is what is no regular file, or a link, and with is_own what
   another user made. A file that O_CREAT makes is private to the user. Async-signal-safe. */
int mc_shm_open(const char *path, int flags, int is_own);
/* Map a file of this user; create makes it. Size 0: as large as the file. */
int mc_shm_map(void **out, const char *path, size_t size_bytes, int create);
void mc_shm_unmap(void *map, size_t size_bytes);
/* Map a rank's segment; NULL: it is not complete yet, or none of this version. Unmap it with mc_shm_unmap. */
mc_segment *mc_segment_map(const char *path);
/* What lies beside the profile: <profile without .h5><suffix>. out_path: of a segment, perhaps without an end. */
int mc_path_beside(char *path, size_t size, const char *out_path, const char *suffix);
/* 1 if files may grow so large. A process that makes a larger one is killed (SIGXFSZ), with the application. */
int mc_file_may_have(size_t size_bytes);
/* What became of the profile, for the rank that waits for it. */
void mc_segment_set_outcome(mc_segment *segment, uint64_t profile, const char *complaint);
/* Make sure that writing to these bytes of a mapped file can not fail for want of memory, which would be SIGBUS. */
int mc_shm_reserve(const char *path, size_t offset_bytes, size_t size_bytes);

/* Cycles still pending go where their shutters' verdicts say; those without a verdict are dropped, and so are rows that
   were being made while they were copied. Counters that follow from the tables are filled. For a copy of a segment that
   is to be read. */
void mc_segment_settle(mc_segment *segment);

#endif
