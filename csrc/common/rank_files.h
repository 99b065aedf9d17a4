/* The segments of a job's ranks on this node, found by the names of their files. */
#ifndef MPICOLOC_RANK_FILES_H
#define MPICOLOC_RANK_FILES_H

/* Call found() for each rank of the job that has a segment file on this node now, complete or not. */
void mc_rank_files_scan(const char *key, void (*found)(void *data, int world_rank, const char *path), void *data);

#endif
