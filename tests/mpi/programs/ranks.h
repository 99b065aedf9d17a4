/* What most programs begin with: MPI, the place of this rank in the world, and lines that name the rank. */
#ifndef MC_TEST_RANKS_H
#define MC_TEST_RANKS_H

#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static inline void find_place(void)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

static inline void begin(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    find_place();
}

static inline void say(const char *format, ...)
{
    char text[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    printf("rank %d: %s\n", rank, text);
    fflush(stdout);
}

static inline int is(const char *way, const char *name)
{
    return strcmp(way, name) == 0;
}

#endif
