/* MPI calls an error handler with the handle of the swapped communicator; the application knows that world as
   MPI_COMM_WORLD. A handler gets no argument of its own, so each function gets one of a fixed set of callers. */
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include "guest/hooks.h"
#include "guest/mpi/app_world.h"

typedef void (*handler)(MPI_Comm *, int *, ...);

enum { N_HANDLERS = 16 };
static _Atomic(handler) functions[N_HANDLERS];

static void show_world(int i, MPI_Comm *comm, int *code, va_list rest)
{
    /* what follows is the library's own; Open MPI passes two pointers, MPICH one */
    void *first = va_arg(rest, void *), *second = va_arg(rest, void *);
    MPI_Comm shown = *comm == mc_app_world ? mc_known.world : *comm;
    functions[i](&shown, code, first, second);
}

#define CALLER(i) \
    static void caller##i(MPI_Comm *comm, int *code, ...) \
    { \
        va_list rest; \
        va_start(rest, code); \
        show_world(i, comm, code, rest); \
        va_end(rest); \
    }

CALLER(0)
CALLER(1)
CALLER(2)
CALLER(3)
CALLER(4)
CALLER(5)
CALLER(6)
CALLER(7)
CALLER(8)
CALLER(9)
CALLER(10)
CALLER(11)
CALLER(12)
CALLER(13)
CALLER(14)
CALLER(15)

static const handler callers[N_HANDLERS] = {
    caller0, caller1, caller2,  caller3,  caller4,  caller5,  caller6,  caller7,
    caller8, caller9, caller10, caller11, caller12, caller13, caller14, caller15,
};

/* With a swapped world, replace the function at this address by one that is called with MPI_COMM_WORLD. */
void mc_errhandler_given(void *function)
{
    handler given;
    if (!mc_is_swapped || function == NULL)
        return;
    memcpy(&given, function, sizeof given);
    if (given == NULL)
        return;
    for (int i = 0; i < N_HANDLERS; i++) {
        handler there = NULL;
        /* the same function keeps its caller; when all callers are taken, the function sees the other handle */
        if (atomic_compare_exchange_strong(&functions[i], &there, given) || there == given) {
            memcpy(function, &callers[i], sizeof given);
            return;
        }
    }
}
