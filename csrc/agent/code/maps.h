/* Executable mappings of a process whose code may show the progress of the process. */
#ifndef MPICOLOC_MAPS_H
#define MPICOLOC_MAPS_H

#include "common/mpicoloc.h"

enum { MC_N_MAPS = 512, MC_N_MAP_PATHS = 256, MC_N_PASSED_OVER = 128 };

typedef struct mc_map {
    uint64_t start, end, offset; /* offset in the file */
    int i_path;
} mc_map;

/* Code that is left out, because a thread that runs it may only be waiting. */
typedef struct mc_range {
    uint64_t start, end;
    int is_libc;
} mc_range;

typedef struct mc_maps {
    int n, n_paths, n_passed_over;
    mc_range passed_over[MC_N_PASSED_OVER];
    mc_map rows[MC_N_MAPS];
    char paths[MC_N_MAP_PATHS][MC_PATH_LEN];
} mc_maps;

/* Read the executable mappings of files. The C library, MPI, and the libraries that MPI uses are left out: code that
   runs there may only be waiting. */
int mc_maps_read(mc_maps *maps, int pid);

/* The mapping that holds this address; NULL: none. */
const mc_map *mc_maps_find(const mc_maps *maps, uint64_t address);

/* The contiguous piece of a file around this address. It consists of one mapping or of several that are joined. There
   must be a mapping that holds the address. */
mc_map mc_maps_piece(const mc_maps *maps, uint64_t address);

/* The left-out library that holds this address; NULL: none. */
const mc_range *mc_maps_passed_over(const mc_maps *maps, uint64_t address);

/* Address at which this offset of a file is loaded; 0: it is not loaded. */
uint64_t mc_maps_address(const mc_maps *maps, const char *path, uint64_t offset);

#endif
