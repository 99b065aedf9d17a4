/* Callbacks under a swapped world. MPI calls error handlers and attribute functions with the handle of the swapped
   communicator, but the application expects MPI_COMM_WORLD. */
#define _GNU_SOURCE
#include <dlfcn.h>
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

/* ---- error handlers: MPI passes them no user data, so there is a fixed set of callers, each of which serves one
   handler ---- */

typedef void (*handler)(MPI_Comm *, int *, ...);

enum { N_HANDLERS = 16 };
static _Atomic(handler) functions[N_HANDLERS];

static void show_world(int i, MPI_Comm *comm, int *code, va_list rest)
{
    /* further arguments depend on the library: Open MPI passes two pointers, MPICH one */
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

/* With a swapped world, replace the error handler at this address by a caller that passes MPI_COMM_WORLD. */
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
        /* a function that has a caller keeps it; if all callers are taken, the function gets the swapped handle */
        if (atomic_compare_exchange_strong(&functions[i], &there, given) || there == given) {
            memcpy(function, &callers[i], sizeof given);
            return;
        }
    }
}

/* ---- attribute functions: the extra state holds the application's function ---- */

typedef int (*copy_function)(MPI_Comm, int, void *, void *, void *, int *);
typedef int (*delete_function)(MPI_Comm, int, void *, void *);

/* The records are never freed, because a communicator can have an attribute after the attribute's key has been freed.
   They are kept in a list, so that the application's leak checkers see that the records are in use. */
struct record {
    struct record *before;
};
static struct record *records;

static void *new_record(size_t size)
{
    struct record *made = malloc(size);
    if (made != NULL) {
        made->before = __atomic_load_n(&records, __ATOMIC_ACQUIRE);
        while (!__atomic_compare_exchange_n(&records, &made->before, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            ;
    }
    return made;
}

struct attribute {
    struct record record;
    copy_function copy;
    delete_function drop;
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
    return given->drop(shown(comm), key, value, given->extra);
}

/* 0 for MPI's predefined functions, which can be small numbers and need no extra state. */
static int is_function(const void *const *at)
{
    return (uintptr_t)*at > 255;
}

static void replace_in_c(void *copy, void *drop, void *extra)
{
    struct attribute *given = new_record(sizeof *given);
    if (given == NULL)
        return;
    memcpy(&given->copy, copy, sizeof given->copy);
    memcpy(&given->drop, drop, sizeof given->drop);
    memcpy(&given->extra, extra, sizeof given->extra);
    if (is_function(copy))
        memcpy(copy, &(copy_function){copy_attribute}, sizeof given->copy);
    if (is_function(drop))
        memcpy(drop, &(delete_function){delete_attribute}, sizeof given->drop);
    memcpy(extra, &given, sizeof given);
}

#ifdef MC_HAS_FORTRAN
typedef void (*f_copy_function)(MPI_Fint *, void *, MPI_Aint *, void *, void *, void *, void *);
typedef void (*f_delete_function)(MPI_Fint *, void *, void *, MPI_Aint *, void *);

/* Extra state in Fortran, which is passed by address. Some libraries store the address, others the value. */
struct f_attribute {
    struct record record;
    struct f_attribute *self;
    f_copy_function copy;
    f_delete_function drop;
    MPI_Aint extra;
};

static MPI_Fint f_shown(MPI_Fint comm)
{
    return mc_is_swapped && comm == mc_f_app_world ? mc_f_world : comm;
}

static struct f_attribute *f_attribute_at(const MPI_Aint *own)
{
    struct f_attribute *given;
    memcpy(&given, own, sizeof given);
    return given;
}

static void f_copy_attribute(MPI_Fint *comm, void *key, MPI_Aint *own, void *value, void *copy, void *flag, void *error)
{
    struct f_attribute *given = f_attribute_at(own);
    MPI_Fint known = f_shown(*comm);
    given->copy(&known, key, &given->extra, value, copy, flag, error);
}

static void f_delete_attribute(MPI_Fint *comm, void *key, void *value, MPI_Aint *own, void *error)
{
    struct f_attribute *given = f_attribute_at(own);
    MPI_Fint known = f_shown(*comm);
    given->drop(&known, key, value, &given->extra, error);
}

static void replace_in_fortran(void *copy, void *drop, void *extra)
{
    const MPI_Aint *from;
    memcpy(&from, extra, sizeof from);
    struct f_attribute *given = is_function(copy) && is_function(drop) ? new_record(sizeof *given) : NULL;
    if (given == NULL)
        return;
    given->self = given, given->extra = *from;
    memcpy(&given->copy, copy, sizeof given->copy);
    memcpy(&given->drop, drop, sizeof given->drop);
    memcpy(copy, &(f_copy_function){f_copy_attribute}, sizeof given->copy);
    memcpy(drop, &(f_delete_function){f_delete_attribute}, sizeof given->drop);
    struct f_attribute **self = &given->self;
    memcpy(extra, &self, sizeof self);
}

/* 1 if the call came from Fortran: MPICH's Fortran library calls the C function. */
static int is_fortran(const void *site)
{
    Dl_info found;
    return site == NULL || (dladdr(site, &found) && found.dli_fname && strstr(found.dli_fname, "fort"));
}
#endif

/* With a swapped world, replace the attribute functions at these addresses by callers that pass MPI_COMM_WORLD. `site`
   is NULL in Fortran. */
void mc_keyval_given(void *copy, void *drop, void *extra, void *site)
{
    if (!mc_is_swapped || (!is_function(copy) && !is_function(drop)))
        return;
    if (site != NULL && !mc_is_library(site))
        replace_in_c(copy, drop, extra);
#ifdef MC_HAS_FORTRAN
    else if (is_fortran(site))
        replace_in_fortran(copy, drop, extra);
#endif
}

/* mc_keyval_given for MPI_Keyval_create in C. Its Fortran counterpart is not handled, because there the extra state is
   a smaller integer. */
void mc_old_keyval_given(void *copy, void *drop, void *extra, void *site)
{
    if (site != NULL && !mc_is_library(site))
        mc_keyval_given(copy, drop, extra, site);
}
