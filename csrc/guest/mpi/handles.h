#ifndef MPICOLOC_HANDLES_H
#define MPICOLOC_HANDLES_H

/* An array argument, in C or in Fortran, where handles are integers. */
typedef struct mc_handles {
    const void *items;
    int is_fortran;
} mc_handles;

#endif
