/* Programs that live in sessions. They have no MPI_COMM_WORLD, so the first session brings one of ours with it, with a
   communicator of all processes; it goes before the application's last one, so that the library can be torn down. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef MC_HAS_FORTRAN
#include "fortran.h"
#endif

#include "launch.h"
#include "requests.h"
#include "world.h"

#ifdef MC_HAS_SESSIONS

/* Threads may open sessions at the same time: whoever comes first joins the job, the others wait for it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int n_open;

static struct {
    int is_open;
    MPI_Session session;
    MPI_Group group;
    MPI_Comm real, app;
} own;

static int have_sessions(void)
{
    return MC_HAVE(MPI_Session_init) && MC_HAVE(MPI_Session_finalize) && MC_HAVE(MPI_Group_from_session_pset) &&
           MC_HAVE(MPI_Comm_create_from_group) && MC_HAVE(MPI_Group_free) && MC_HAVE(MPI_Comm_free);
}

/* The coordinators make the same calls with the same tag. */
static int open_own_session(void)
{
    if (!have_sessions() ||
        MC_REAL(MPI_Session_init)(mc_known.info_null, mc_known.errors_return, &own.session) != MPI_SUCCESS)
        return 0;
    if (MC_REAL(MPI_Group_from_session_pset)(own.session, "mpi://WORLD", &own.group) == MPI_SUCCESS) {
        own.is_open = MC_REAL(MPI_Comm_create_from_group)(own.group, "mpicoloc", mc_known.info_null,
                                                          mc_known.errors_return, &own.real) == MPI_SUCCESS;
        MC_REAL(MPI_Group_free)(&own.group);
    }
    if (!own.is_open)
        MC_REAL(MPI_Session_finalize)(&own.session);
    return own.is_open;
}

void mc_close_own_session(void)
{
    static MPI_Comm none;
    mc_next_round();
    if (!own.is_open)
        return;
    if (mc_app_world == own.app)
        mc_app_world = none;
    if (own.app != own.real)
        MC_REAL(MPI_Comm_free)(&own.app);
    MC_REAL(MPI_Comm_free)(&own.real);
    MC_REAL(MPI_Session_finalize)(&own.session);
    own.is_open = 0;
}

MPI_Comm mc_first_real(void)
{
    return own.is_open ? own.real : mc_known.world;
}

static void join(void)
{
    if (!mc_is_ours() || (mc_is_over() && !mc_is_wrapped()))
        return;
    if (!open_own_session())
        return mc_disable("this MPI library makes no communicator of all processes of a session", MC_E_MPI);
    own.app = mc_is_wrapped() ? mc_split(own.real) : own.real;
    if (own.app == mc_known.comm_null)
        own.app = own.real;
    mc_app_world = own.app;
    mc_begin(own.app);
}

void mc_before_session_init(void)
{
    mc_ops_share(); /* the threads of a program of sessions ask for no thread level */
    pthread_mutex_lock(&lock);
    if (n_open == 0 && !mc_is_world_open() && mc_has_coordinator())
        mc_announce("session");
    pthread_mutex_unlock(&lock);
}

void mc_after_session_init(void)
{
    pthread_mutex_lock(&lock);
    if (n_open++ == 0 && !mc_is_world_open() && !own.is_open)
        join();
    pthread_mutex_unlock(&lock);
}

void mc_before_session_finalize(void)
{
    pthread_mutex_lock(&lock);
    if (n_open > 0 && --n_open == 0 && !mc_is_world_open() && own.is_open) {
        if (!mc_end())
            mc_say_goodbye();
        mc_close_own_session();
    }
    pthread_mutex_unlock(&lock);
}

static MPI_Group group_at(mc_handles group)
{
#if defined(MC_HAS_FORTRAN) && defined(OPEN_MPI)
    if (group.is_fortran)
        return MC_HAVE(MPI_Group_f2c) ? MC_REAL(MPI_Group_f2c)(*(const MPI_Fint *)group.items) : mc_known.group_null;
#endif
    return *(const MPI_Group *)group.items;
}

static void put_group(mc_handles at, MPI_Group group)
{
#if defined(MC_HAS_FORTRAN) && defined(OPEN_MPI)
    if (at.is_fortran) {
        *(MPI_Fint *)(uintptr_t)at.items = MC_REAL(MPI_Group_c2f)(group);
        return;
    }
#endif
    *(MPI_Group *)(uintptr_t)at.items = group;
}

/* Only the process set of all processes has coordinators in it on one node; it is known by its size. The ranks are
   counted out, because MPICH aborts where groups of two sessions meet in one call. */
void mc_hide_in_group(mc_handles at)
{
    MPI_Group group = group_at(at), kept;
    int size = 0;
    if (mc_app_size == 0 || group == mc_known.group_null || !MC_HAVE(MPI_Group_size) || !MC_HAVE(MPI_Group_incl) ||
        MC_REAL(MPI_Group_size)(group, &size) != MPI_SUCCESS || size != mc_real_size ||
        MC_REAL(MPI_Group_incl)(group, mc_app_size, mc_app_ranks, &kept) != MPI_SUCCESS)
        return;
    put_group(at, kept);
    MC_REAL(MPI_Group_free)(&group);
}

static MPI_Info info_at(mc_handles info)
{
#if defined(MC_HAS_FORTRAN) && defined(OPEN_MPI)
    if (info.is_fortran)
        return MC_HAVE(MPI_Info_f2c) ? MC_REAL(MPI_Info_f2c)(*(const MPI_Fint *)info.items) : mc_known.info_null;
#endif
    return *(const MPI_Info *)info.items;
}

void mc_hide_in_info(mc_handles at)
{
    MPI_Info info = info_at(at);
    char text[32];
    int flag = 0;
    if (mc_app_size == 0 || !MC_HAVE(MPI_Info_get) || !MC_HAVE(MPI_Info_set) ||
        MC_REAL(MPI_Info_get)(info, "mpi_size", sizeof text - 1, text, &flag) != MPI_SUCCESS || !flag ||
        atoi(text) != mc_real_size)
        return;
    snprintf(text, sizeof text, "%d", mc_app_size);
    MC_REAL(MPI_Info_set)(info, "mpi_size", text);
}

#else
void mc_close_own_session(void)
{
    mc_next_round();
}

MPI_Comm mc_first_real(void)
{
    return mc_known.world;
}
#endif
