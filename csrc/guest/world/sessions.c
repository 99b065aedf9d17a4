/* Programs with sessions. They have no MPI_COMM_WORLD, so the application's first session opens one of ours as well,
   with a communicator of all processes. Ours closes before the application's last one, so that the library can shut
   down. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef MC_HAS_FORTRAN
#include "guest/mpi/fortran.h"
#endif

#include "guest/calls/requests.h"
#include "guest/hooks.h"
#include "guest/world/launch.h"
#include "guest/world/presence.h"
#include "guest/world/world.h"

#ifdef MC_HAS_SESSIONS

/* Threads may open sessions at the same time: the first one joins the job, the others wait for it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int n_open, n_opening;

static struct {
    int is_open, has_comm, size;
    MPI_Session session;
    MPI_Group group;
    MPI_Comm real, app;
} own;

static int have_sessions(void)
{
    return MC_HAVE(MPI_Session_init) && MC_HAVE(MPI_Session_finalize) && MC_HAVE(MPI_Group_from_session_pset) &&
           MC_HAVE(MPI_Comm_create_from_group) && MC_HAVE(MPI_Group_size) && MC_HAVE(MPI_Group_free) &&
           MC_HAVE(MPI_Comm_free);
}

static int open_own_session(void)
{
    if (!have_sessions() ||
        MC_REAL(MPI_Session_init)(mc_known.info_null, mc_known.errors_return, &own.session) != MPI_SUCCESS)
        return 0;
    own.is_open = MC_REAL(MPI_Group_from_session_pset)(own.session, "mpi://WORLD", &own.group) == MPI_SUCCESS;
    if (own.is_open)
        MC_REAL(MPI_Group_size)(own.group, &own.size);
    else
        MC_REAL(MPI_Session_finalize)(&own.session);
    return own.is_open;
}

/* The coordinators make the same calls with the same tag. */
static int make_own_comm(void)
{
    own.has_comm = MC_REAL(MPI_Comm_create_from_group)(own.group, "mpicoloc", mc_known.info_null,
                                                       mc_known.errors_return, &own.real) == MPI_SUCCESS;
    return own.has_comm;
}

void mc_close_own_session(void)
{
    static MPI_Comm none;
    mc_next_round();
    if (!own.is_open)
        return;
    if (own.has_comm && mc_app_world == own.app)
        mc_app_world = none;
    if (own.has_comm && own.app != own.real)
        MC_REAL(MPI_Comm_free)(&own.app);
    if (own.has_comm)
        MC_REAL(MPI_Comm_free)(&own.real);
    MC_REAL(MPI_Group_free)(&own.group);
    MC_REAL(MPI_Session_finalize)(&own.session);
    own.is_open = own.has_comm = 0;
}

MPI_Comm mc_first_real(void)
{
    return own.has_comm ? own.real : mc_known.world;
}

int mc_has_session(void)
{
    return __atomic_load_n(&n_open, __ATOMIC_RELAXED) > 0;
}

static void join(void)
{
    if (!make_own_comm())
        return mc_disable("this MPI library makes no communicator of all processes of a session", MC_E_MPI);
    own.app = mc_is_wrapped() ? mc_split(own.real) : own.real;
    if (own.app == mc_known.comm_null)
        own.app = own.real;
    mc_app_world = own.app;
    mc_begin(own.app);
}

/* Joining waits for all processes, and some may call MPI_Init instead of opening a session. With coordinators, all
   processes of this node have said by now which they do. Without, a process joins only when it makes a communicator
   with all others. */
static void open_or_join(void)
{
    if (!mc_is_ours() || (mc_is_over() && !mc_is_wrapped()) || mc_is_announced("init"))
        return;
    if (!open_own_session())
        return mc_disable("this MPI library shows no processes of a session", MC_E_MPI);
    if (mc_is_wrapped())
        join();
}

void mc_before_session_init(void)
{
    __atomic_store_n(&mc_has_begun, 1, __ATOMIC_RELAXED);
    mc_ops_share(); /* a program with sessions does not ask for a thread level */
    pthread_mutex_lock(&lock);
    int begins = n_open + n_opening++ == 0 && !mc_is_world_open();
    if (begins && mc_has_coordinator())
        mc_announce("session");
    pthread_mutex_unlock(&lock);
    if (begins && mc_has_coordinator())
        mc_await_others();
    else if (begins)
        mc_presence_begin_sessions();
}

void mc_after_session_init(void)
{
    pthread_mutex_lock(&lock);
    n_opening--;
    if (n_open++ == 0 && !mc_is_world_open() && !own.is_open)
        open_or_join();
    pthread_mutex_unlock(&lock);
}

void mc_before_session_finalize(void)
{
    pthread_mutex_lock(&lock);
    if (n_open > 0 && --n_open == 0 && !mc_is_world_open() && own.is_open) {
        if (own.has_comm && !mc_end())
            mc_say_goodbye();
        mc_close_own_session();
    }
    pthread_mutex_unlock(&lock);
}

void mc_after_session_finalize(void)
{
    pthread_mutex_lock(&lock);
    if (n_open + n_opening == 0)
        mc_presence_end_sessions();
    pthread_mutex_unlock(&lock);
}

/* The handle that a call of C or Fortran has written at this address. */
#if defined(MC_HAS_FORTRAN) && defined(OPEN_MPI)
#define F_HANDLE_AT(kind, none, at) \
    (MC_HAVE(MPI_##kind##_f2c) ? MC_REAL(MPI_##kind##_f2c)(*(const MPI_Fint *)(at).items) : (none))
#define HANDLE_AT(kind, none, at) ((at).is_fortran ? F_HANDLE_AT(kind, none, at) : *(const MPI_##kind *)(at).items)
#else
#define HANDLE_AT(kind, none, at) (*(const MPI_##kind *)(at).items)
#endif

void mc_before_comm_from_group(mc_handles at)
{
    MPI_Group group = HANDLE_AT(Group, mc_known.group_null, at);
    int size = 0;
    pthread_mutex_lock(&lock);
    if (own.is_open && !own.has_comm && !mc_is_world_open() && group != mc_known.group_null &&
        MC_REAL(MPI_Group_size)(group, &size) == MPI_SUCCESS && size == own.size)
        join();
    pthread_mutex_unlock(&lock);
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

/* On one node, only the process set of all processes contains coordinators; its size identifies it. The coordinators
   are excluded by rank, because MPICH aborts when groups of two sessions meet in one call. */
void mc_hide_in_group(mc_handles at)
{
    MPI_Group group = HANDLE_AT(Group, mc_known.group_null, at), kept;
    int size = 0;
    if (mc_app_size == 0 || group == mc_known.group_null || !MC_HAVE(MPI_Group_size) || !MC_HAVE(MPI_Group_incl) ||
        MC_REAL(MPI_Group_size)(group, &size) != MPI_SUCCESS || size != mc_real_size ||
        MC_REAL(MPI_Group_incl)(group, mc_app_size, mc_app_ranks, &kept) != MPI_SUCCESS)
        return;
    put_group(at, kept);
    MC_REAL(MPI_Group_free)(&group);
}

void mc_hide_in_info(mc_handles at)
{
    MPI_Info info = HANDLE_AT(Info, mc_known.info_null, at);
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

int mc_has_session(void)
{
    return 0;
}
#endif
