/* Function entries of program files. They are read from the unwinding table, which stripped files have too, and from
   the symbols. */
#ifndef MPICOLOC_ENTRIES_H
#define MPICOLOC_ENTRIES_H

#include <stddef.h>
#include <stdint.h>

enum { MC_N_LOADS = 16 };

typedef struct mc_span {
    uint64_t address, offset, size;
} mc_span;

/* A program or library, open for reading. Places in it are file offsets, which do not depend on where it is loaded. */
typedef struct mc_object {
    int fd;
    int n_loads;
    mc_span loads[MC_N_LOADS];
    mc_span unwind;  /* .eh_frame_hdr; size 0: none */
    mc_span symbols; /* its address is not used */
} mc_object;

/* MC_OK, or MC_E_GONE: there is no such file, or its format is not supported. */
int mc_object_open(mc_object *object, const char *path);
void mc_object_close(mc_object *object);

/* The entry of the function that holds the instruction at this offset; MC_E_GONE: unknown. */
int mc_object_entry(const mc_object *object, uint64_t offset, uint64_t *entry);

/* 1: it has a section of this name. */
int mc_object_has_section(const mc_object *object, const char *name);

/* 1: it has a section of this name with this text in it. */
int mc_object_section_holds(const mc_object *object, const char *name, const char *text);

/* Read bytes of the file from this offset on; returns their number. */
size_t mc_object_read(const mc_object *object, uint64_t offset, void *to, size_t size);

#endif
