#ifndef MPICOLOC_HANDLES_H
#define MPICOLOC_HANDLES_H

/* An array argument with handles of C, or of Fortran, which are integers. */
typedef struct mc_handles {
    const void *items;
    int is_fortran;
} mc_handles;

#endif
