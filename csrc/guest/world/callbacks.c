/* MPI calls error handlers and functions of attributes with the handle of the swapped communicator; the application
   knows that world as MPI_COMM_WORLD. */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "guest/hooks.h"
#include "guest/mpi/app_world.h"

static MPI_Comm shown(MPI_Comm comm)
{
    return mc_is_swapped && comm == mc_app_world ? mc_known.world : comm;
}

/* ---- error handlers: they get no argument of their own, so each function gets one of a fixed set of callers ---- */

typedef void (*handler)(MPI_Comm *, int *, ...);

enum { N_HANDLERS = 16 };
static _Atomic(handler) functions[N_HANDLERS];

static void show_world(int i, MPI_Comm *comm, int *code, va_list rest)
{
    /* what follows is the library's own; Open MPI passes two pointers, MPICH one */
    void *first = va_arg(rest, void *), *second = va_arg(rest, void *);
    MPI_Comm known = shown(*comm);
    functions[i](&known, code, first, second);
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

/* ---- functions of attributes: what they get of their own tells whom to call ---- */

typedef int (*copy_function)(MPI_Comm, int, void *, void *, void *, int *);
typedef int (*delete_function)(MPI_Comm, int, void *, void *);

/* Never freed: a communicator may have the attribute after its key is gone. */
struct attribute {
    copy_function copy;
    delete_function delete;
    void *extra;
};

static int copy_attribute(MPI_Comm comm, int key, void *own, void *value, void *copy, int *flag)
{
    const struct attribute *given = own;
    return given->copy(shown(comm), key, given->extra, value, copy, flag);
}

static int delete_attribute(MPI_Comm comm, int key, void *value, void *own)
{
    const struct attribute *given = own;
    return given->delete (shown(comm), key, value, given->extra);
}

/* MPI's own functions may be small numbers. They need nothing of their own. */
static int is_function(const void *const *at)
{
    return (uintptr_t)*at > 255;
}

/* With a swapped world, replace the functions at these addresses by ones that are called with MPI_COMM_WORLD. MPICH's
   Fortran calls this as well, from `site`, and its functions take other arguments. */
void mc_keyval_given(void *copy, void *delete, void *extra, void *site)
{
    if (!mc_is_swapped || copy == NULL || mc_is_library(site) || (!is_function(copy) && !is_function(delete)))
        return;
    struct attribute *given = malloc(sizeof *given);
    if (given == NULL)
        return;
    memcpy(&given->copy, copy, sizeof given->copy);
    memcpy(&given->delete, delete, sizeof given->delete);
    memcpy(&given->extra, extra, sizeof given->extra);
    if (is_function(copy))
        memcpy(copy, &(copy_function){copy_attribute}, sizeof given->copy);
    if (is_function(delete))
        memcpy(delete, &(delete_function){delete_attribute}, sizeof given->delete);
    memcpy(extra, &given, sizeof given);
}
