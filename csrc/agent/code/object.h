/* Program files and libraries, open for reading. Positions in them are file offsets, which do not depend on the load
   address. */
#ifndef MPICOLOC_OBJECT_H
#define MPICOLOC_OBJECT_H

#include <stddef.h>
#include <stdint.h>

typedef struct mc_object {
    int fd;
} mc_object;

/* Returns MC_OK, or MC_E_GONE if there is no such file or its format is not supported. */
int mc_object_open(mc_object *object, const char *path);
void mc_object_close(mc_object *object);

/* 1: the file has a section of this name. */
int mc_object_has_section(const mc_object *object, const char *name);

/* 1: the file has a section of this name that contains this text. */
int mc_object_section_holds(const mc_object *object, const char *name, const char *text);

/* Read bytes of the file from this offset on; returns their number. */
size_t mc_object_read(const mc_object *object, uint64_t offset, void *to, size_t size);

#endif
