/* The application's world, and the actions at MPI's begin and end: MPI_Init, sessions, MPI_Finalize. */
#define _GNU_SOURCE
#include "guest/mpi/app_world.h"

#ifdef MC_HAS_FORTRAN
#include "guest/mpi/fortran.h"
#endif

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/counters/pmu.h"
#include "common/options.h"
#include "common/proc.h"
#include "common/table.h"
#include "guest/calls/peers.h"
#include "guest/hooks.h"
#include "guest/world/launch.h"
#include "guest/world/presence.h"

enum { N_AT_ONCE = 256 };

static const uint64_t PATIENCE_NS = 10000000000;

int mc_is_swapped, mc_has_begun;

/* Size of the real world if it contains coordinators, else 0; and the application's ranks in the real world. */
static int real_size, app_size, *app_ranks;

MPI_Comm mc_app_world;
#ifdef MC_HAS_FORTRAN
MPI_Fint mc_f_world = -1, mc_f_app_world = -1;
#endif

/* State of this process. */
static enum { BEFORE_INIT, NOT_OURS, STARTED, STOPPED } phase;
static int own_pid;
static int is_world_open, is_spawned;
static int world_rank, is_node_first, is_kept;

/* The job's name. suffix: added to the profile's name if the job has inherited another job's name. */
static char key[MC_NAME_LEN];
static struct {
    char job_id[MC_NAME_LEN], suffix[MC_NAME_LEN];
} name;

static void copy(char *to, const char *from)
{
    snprintf(to, MC_NAME_LEN, "%s", from);
}

/* Fill app_ranks without allocating memory. Errors are not reported, because a rank that lacks memory must not keep
   other ranks waiting here. */
static int translate(MPI_Group application, MPI_Group real, int size)
{
    int ranks[N_AT_ONCE], status = MPI_SUCCESS;
    for (int first = 0; status == MPI_SUCCESS && first < size; first += N_AT_ONCE) {
        int n = size - first < N_AT_ONCE ? size - first : N_AT_ONCE;
        for (int i = 0; i < n; i++)
            ranks[i] = first + i;
        status = MC_REAL(MPI_Group_translate_ranks)(application, n, ranks, real, app_ranks + first);
    }
    return status == MPI_SUCCESS;
}

static void note_real_ranks(MPI_Comm application, MPI_Comm real)
{
    int size = 0;
    MPI_Group of_application, of_real;
    MC_REAL(MPI_Comm_size)(application, &size);
    int *ranks = realloc(app_ranks, (size_t)size * sizeof *ranks);
    app_size = 0;
    if (ranks == NULL)
        return;
    app_ranks = ranks;
    MC_REAL(MPI_Comm_group)(application, &of_application);
    MC_REAL(MPI_Comm_group)(real, &of_real);
    if (translate(of_application, of_real, size))
        app_size = size;
    MC_REAL(MPI_Group_free)(&of_application);
    MC_REAL(MPI_Group_free)(&of_real);
}

/* The world without coordinators, or MPI_COMM_NULL if that fails. The coordinators make the same call, but with colour
   1. In both new worlds, the ranks keep their real order. */
static MPI_Comm split_world(MPI_Comm real)
{
    int real_rank = 0;
    MPI_Comm application = mc_known.comm_null;
    MC_REAL(MPI_Comm_rank)(real, &real_rank);
    if (MC_REAL(MPI_Comm_split)(real, 0, real_rank, &application) != MPI_SUCCESS) {
        mc_disable("the world cannot be split from the coordinators", MC_E_MPI);
        return mc_known.comm_null;
    }
    MC_REAL(MPI_Comm_size)(real, &real_size);
    note_real_ranks(application, real);
    return application;
}

/* ---- attributes of the application's world under wrap: deleted in MPI_Finalize like those of MPI_COMM_WORLD ---- */

static int copy_nothing(MPI_Comm comm, int keyval, void *extra, void *value, void *copy, int *flag)
{
    (void)comm, (void)keyval, (void)extra, (void)value, (void)copy;
    *flag = 0;
    return MPI_SUCCESS;
}

/* MPI deletes a communicator's attributes in reverse order of setting. So the application's delete functions, which may
   still use its world, have run before this function. */
static int end_world(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)value, (void)extra;
    MPI_Comm world = mc_app_world;
    if (!mc_is_swapped || world == mc_known.world)
        return MPI_SUCCESS;
    MC_REAL(MPI_Comm_free)(&world);
    mc_app_world = mc_known.world;
#ifdef MC_HAS_FORTRAN
    mc_f_app_world = mc_f_world;
#endif
    return MPI_SUCCESS;
}

/* MPI_Finalize deletes the attributes of MPI_COMM_SELF, and then the attributes of MPI_COMM_WORLD. Under `wrap` the
   application's world is another communicator, which the delete function of an attribute of MPI_COMM_SELF frees. */
static void end_world_with_self(void)
{
    int keyval;
    if (!MC_HAVE(MPI_Comm_create_keyval) || !MC_HAVE(MPI_Comm_set_attr) || !MC_HAVE(MPI_Comm_free_keyval) ||
        MC_REAL(MPI_Comm_create_keyval)(copy_nothing, end_world, &keyval, NULL) != MPI_SUCCESS)
        return;
    MC_REAL(MPI_Comm_set_attr)(mc_known.self, keyval, NULL);
    MC_REAL(MPI_Comm_free_keyval)(&keyval);
}

static int swap_world(void)
{
    MPI_Comm application = split_world(mc_known.world);
    if (application == mc_known.comm_null)
        return 0;
    MC_REAL(MPI_Comm_set_name)(application, "MPI_COMM_WORLD");
    mc_app_world = application;
    mc_is_swapped = 1;
#ifdef MC_HAS_FORTRAN
    mc_f_world = mc_f_of_comm(mc_known.world);
    mc_f_app_world = mc_f_of_comm(application);
#endif
    end_world_with_self();
    return 1;
}

/* The key from the launcher; NULL if this job was spawned, because the environment then holds the key of its parent. */
static const char *given_key(void)
{
    return is_spawned ? NULL : mc_given_key();
}

static void agree_on_key(MPI_Comm local)
{
    const char *text = given_key();
    if (text != NULL)
        copy(key, text);
    else
        snprintf(key, sizeof key, "%d-%llx", (int)getpid(), (unsigned long long)mc_now_ns());
    MC_REAL(MPI_Bcast)(key, MC_NAME_LEN, mc_known.type_char, 0, local);
}

/* Agree on a name. A job that inherited another job's environment would use that job's name and profile, so its ranks
   take a different name. */
static void agree_on_name(int is_nested)
{
    const char *text = mc_option_text(MC_OPT_JOB_ID), *slurm = getenv("SLURM_JOB_ID");
    if (text == NULL || text[0] == '\0')
        text = slurm;
    if (is_spawned || is_nested)
        snprintf(name.suffix, sizeof name.suffix, "-%s-%d", is_spawned ? "spawn" : "nested", (int)getpid());
    if (text != NULL && text[0] != '\0')
        snprintf(name.job_id, sizeof name.job_id, "%.40s%.22s", text, name.suffix);
    else
        copy(name.job_id, key);
    for (char *at = name.job_id; (at = strchr(at, '/')) != NULL;) /* the name becomes a file name */
        *at = '-';
    MC_REAL(MPI_Bcast)(&name, sizeof name, mc_known.type_char, 0, mc_app_world);
}

/* "run.h5" becomes "run-nested-123.h5". */
static void set_profile_apart(char *path, size_t size)
{
    size_t n = strlen(path), n_end = n > 3 && strcmp(path + n - 3, ".h5") == 0 ? 3 : 0;
    char end[4];
    snprintf(end, sizeof end, "%s", path + n - n_end);
    snprintf(path + n - n_end, size - (n - n_end), "%s%s", name.suffix, end);
}

static void read_library_version(char *text)
{
    int length = 0;
    if (MC_REAL(MPI_Get_library_version)(text, &length) != MPI_SUCCESS)
        text[0] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    for (char *at = text; (at = strchr(at, '\t')) != NULL;)
        *at = ' ';
#if !defined(OPEN_MPI) && !defined(MPICH_VERSION)
    /* the header from which this shim's table of calls was made is not the library's own */
    size_t n = strlen(text);
    snprintf(text + n, MPI_MAX_LIBRARY_VERSION_STRING - n, ", standard ABI");
#endif
}

static int have_all(void)
{
    return MC_HAVE(MPI_Comm_rank) && MC_HAVE(MPI_Comm_size) && MC_HAVE(MPI_Comm_split) && MC_HAVE(MPI_Comm_set_name) &&
           MC_HAVE(MPI_Comm_free) && MC_HAVE(MPI_Bcast) && MC_HAVE(MPI_Allreduce) && MC_HAVE(MPI_Barrier) &&
           MC_HAVE(MPI_Get_library_version) && MC_HAVE(MPI_Comm_get_parent) && MC_HAVE(MPI_Ibarrier) &&
           MC_HAVE(MPI_Comm_group) && MC_HAVE(MPI_Group_translate_ranks) && MC_HAVE(MPI_Group_free) &&
           MC_HAVE(MPI_Wait) && MC_HAVE(MPI_Test);
}

/* Warn if ranks are missing: a rank on a node to which the launcher did not pass LD_PRELOAD never makes the collective
   calls. A collective call cannot be cancelled, but a waiting rank can report the cause. This is skipped when one node
   has all ranks, because the application's first request would reuse the request object of this call. In MPICH 5.0.2,
   MPI_Cancel of a send reads the object's old contents and waits forever; with a new object, it would crash. */
static void wait_for_all_nodes(void)
{
    MPI_Request request;
    int is_done = 0, size = 0;
    uint64_t patience_end = mc_now_ns() + PATIENCE_NS;
    MC_REAL(MPI_Comm_size)(mc_app_world, &size);
    if (mc_is_launchers_world(size))
        return;
    if (MC_REAL(MPI_Ibarrier)(mc_app_world, &request) != MPI_SUCCESS)
        return;
    while (!is_done && mc_now_ns() < patience_end)
        MC_REAL(MPI_Test)(&request, &is_done, MPI_STATUS_IGNORE);
    if (is_done)
        return;
    if (mc_is_node_first())
        fprintf(stderr, "mpicoloc: MPI_Init still waits for ranks without LD_PRELOAD: set it on all nodes "
                        "(mpirun -x LD_PRELOAD, mpiexec -genv LD_PRELOAD ...)\n");
    MC_REAL(MPI_Wait)(&request, MPI_STATUS_IGNORE);
}

/* Equal for ranks that share a host name, a kernel and the shared-memory folder. */
static uint64_t node_id(void)
{
    char text[256] = "";
    struct stat folder = {0};
    ssize_t n = mc_proc_read_text("/proc/sys/kernel/random/boot_id", text, sizeof text / 2);
    gethostname(text + (n > 0 ? n : 0), sizeof text / 2 - 1);
    stat(mc_option_text(MC_OPT_SHM_DIR), &folder);
    uint64_t id = mc_mix((uint64_t)folder.st_dev) ^ (uint64_t)folder.st_ino;
    for (const char *at = text; *at; at++)
        id = mc_mix(id ^ (unsigned char)*at);
    return id;
}

/* Do not use MPI_Comm_split_type, because it can separate ranks of one node. In MPICH this happens if PMI does not
   report the nodes. The job would then be its own co-runner. */
static MPI_Comm ranks_of_node(int world_rank)
{
    uint64_t id = node_id();
    MPI_Comm half = mc_known.comm_null, local = mc_known.comm_null;
    MC_REAL(MPI_Comm_split)(mc_app_world, (int)(id & INT_MAX), world_rank, &half);
    MC_REAL(MPI_Comm_split)(half, (int)(id >> 32 & INT_MAX), world_rank, &local);
    MC_REAL(MPI_Comm_free)(&half);
    return local;
}

/* Find the ranks of this node, and the number of nodes. */
static MPI_Comm look_around(mc_identity *identity, int *is_nested)
{
    MC_REAL(MPI_Comm_rank)(mc_app_world, &identity->world_rank);
    MC_REAL(MPI_Comm_size)(mc_app_world, &identity->world_size);
    MPI_Comm local = ranks_of_node(identity->world_rank);
    MC_REAL(MPI_Comm_rank)(local, &identity->local_rank);
    MC_REAL(MPI_Comm_size)(local, &identity->local_size);
    int mine[] = {identity->local_rank == 0, mc_is_nested()}, all[] = {1, 0};
    MC_REAL(MPI_Allreduce)(mine, all, 2, mc_known.type_int, mc_known.sum, mc_app_world);
    identity->n_nodes = all[0];
    *is_nested = all[1] > 0;
    return local;
}

/* Every rank makes every collective call here, even after an error, because other ranks may wait in it. */
static void start(int is_wrapped)
{
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    mc_identity identity = {.key = key, .job_id = name.job_id, .mpi_library = library};
    int is_nested = 0;
    identity.mode = is_wrapped && mc_has_coordinator() ? MC_MODE_WRAP : MC_MODE_PRELOAD;
    MPI_Comm local = look_around(&identity, &is_nested);
    is_node_first = identity.local_rank == 0;
    agree_on_key(local);
    agree_on_name(is_nested);
    read_library_version(library);
    world_rank = identity.world_rank;
    mc_learn_threads();
    int status = mc_start(&identity);
    if (status != MC_OK && identity.mode == MC_MODE_WRAP)
        mc_announce_off();
    if (status == MC_OK && name.suffix[0] != '\0' && mc_option_text(MC_OPT_OUT) != NULL)
        set_profile_apart(mc_own_segment()->out_path, MC_PATH_LEN);
    MC_REAL(MPI_Barrier)(local); /* the keeper must find every rank's segment */
    struct {
        uint64_t is_kept, n_filters;
        mc_keeper_id id;
    } keeper = {0};
    if (is_node_first && status == MC_OK)
        keeper.is_kept = mc_keeper_start(key, &keeper.n_filters) == MC_OK;
    keeper.id = mc_the_keeper;
    /* This call also makes all ranks wait for the keeper. A rank that aborts earlier would kill the first rank before
       the keeper exists. */
    MC_REAL(MPI_Bcast)(&keeper, sizeof keeper, mc_known.type_char, 0, local);
    is_kept = (int)keeper.is_kept;
    mc_the_keeper = keeper.id;
    if (!is_kept && identity.mode == MC_MODE_PRELOAD)
        mc_forget(); /* nobody is left to write the profile; under `wrap` the coordinator could */
    MC_REAL(MPI_Comm_free)(&local);
    if (mc_own_segment() && mc_pmu_is_wanted() && mc_proc_n_filters(0) <= keeper.n_filters)
        mc_pmu_start();
    /* Read the used resources after the waits above, because ranks sleep thousands of times in MPI_Init while they wait
       for each other. */
    if (mc_own_segment())
        mc_usage_read(&mc_own_segment()->used_at_init, 1);
}

/* Returns 0 if recording is impossible, after reporting the reason to the user. */
static int is_ours(void)
{
    if (phase != BEFORE_INIT)
        return phase != NOT_OURS;
    phase = NOT_OURS;
    if (!mc_library_fits())
        mc_disable("this shim is for another MPI; use the one that `mpicoloc preload` prints", MC_E_ABI);
    else if (!have_all())
        mc_disable("the MPI library is too old", MC_E_MPI);
    else
        phase = BEFORE_INIT;
    return phase == BEFORE_INIT;
}

/* Start to record this job, whose ranks are those of `world`. */
static void begin(MPI_Comm world)
{
    if (phase != BEFORE_INIT)
        return;
    mc_app_world = world;
    own_pid = (int)getpid();
    phase = STARTED;
    start(real_size > 0);
}

/* A forked child has its parent's state but is not a rank, so all its calls are passed through. */
static int is_forked(void)
{
    return own_pid && own_pid != (int)getpid();
}

/* Stop recording and wait for the profile. Returns 0 if nothing was recorded. */
static int end(void)
{
    if (phase != STARTED || is_forked())
        return 0;
    phase = STOPPED;
    mc_stop(MC_RANK_FINALIZING);
    /* Deliver outstanding messages (buffered sends) before the ranks sleep below, because messages move only in MPI
       calls. */
    MC_REAL(MPI_Barrier)(mc_app_world);
    /* All ranks wait here, because otherwise they would wait for the first rank in MPI_Finalize, where many libraries
       spin. */
    if (is_kept)
        mc_keeper_wait_profile(key, is_node_first, world_rank == 0);
    return 1;
}

/* ---- sessions ---- */

/* Programs with sessions have no MPI_COMM_WORLD. So when the application opens its first session, we open one too, with
   a communicator of all processes. Our session is closed before the application's last session, so that MPI can shut
   down. */
#ifdef MC_HAS_SESSIONS

/* Threads may open sessions at the same time. The first thread joins the job, and the other threads wait for it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int n_open, n_opening;

static struct {
    int is_open, has_comm, size;
    MPI_Session session;
    MPI_Group group;
    MPI_Comm real, app;
} own;

static void close_own_session(void)
{
    static MPI_Comm none;
    mc_next_round();
    if (!own.is_open || is_forked())
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

static MPI_Comm first_real(void)
{
    return own.has_comm ? own.real : mc_known.world;
}

static int has_session(void)
{
    return __atomic_load_n(&n_open, __ATOMIC_RELAXED) > 0;
}

#else
static void close_own_session(void)
{
    mc_next_round();
}

static MPI_Comm first_real(void)
{
    return mc_known.world;
}

static int has_session(void)
{
    return 0;
}
#endif

/* Tell the sleeping coordinators that an unrecorded job ends. */
static void say_goodbye(void)
{
    MPI_Request request;
    if (real_size > 0 && MC_REAL(MPI_Ibarrier)(first_real(), &request) == MPI_SUCCESS)
        MC_REAL(MPI_Wait)(&request, MPI_STATUS_IGNORE);
}

#ifdef MC_HAS_SESSIONS

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

static void join(void)
{
    if (!make_own_comm())
        return mc_disable("this MPI library cannot create a communicator of all processes of a session", MC_E_MPI);
    own.app = mc_is_wrapped() ? split_world(own.real) : own.real;
    if (own.app == mc_known.comm_null)
        own.app = own.real;
    mc_app_world = own.app;
    begin(own.app);
}

/* Joining waits for all processes, but some may call MPI_Init instead of opening a session. With coordinators, all
   processes of this node have announced their choice by now. Without coordinators, a process joins only when it creates
   a communicator with all others. */
static void open_or_join(void)
{
    if (!is_ours() || (phase == STOPPED && !mc_is_wrapped()) || mc_is_announced("init"))
        return;
    if (!open_own_session())
        return mc_disable("this MPI library cannot list the processes of a session", MC_E_MPI);
    if (mc_is_wrapped())
        join();
}

void mc_before_session_init(void)
{
    __atomic_store_n(&mc_has_begun, 1, __ATOMIC_RELAXED);
    mc_ops_share(); /* each session has its own thread level, so assume that threads share the tables */
    pthread_mutex_lock(&lock);
    int begins = n_open + n_opening++ == 0 && !is_world_open;
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
    if (n_open++ == 0 && !is_world_open && !own.is_open)
        open_or_join();
    pthread_mutex_unlock(&lock);
}

void mc_before_session_finalize(void)
{
    pthread_mutex_lock(&lock);
    if (n_open > 0 && --n_open == 0 && !is_world_open && own.is_open) {
        if (own.has_comm && !end())
            say_goodbye();
        close_own_session();
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

/* The handle that a call from C or Fortran has written at this address. */
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
    if (own.is_open && !own.has_comm && !is_world_open && group != mc_known.group_null &&
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

/* Remove the coordinators from the group of a process set. On one node, only the set of all processes contains
   coordinators, and this set is recognised by its size. They are excluded by rank, because MPICH aborts if one call
   gets groups of two sessions. */
void mc_hide_in_group(mc_handles at)
{
    MPI_Group group = HANDLE_AT(Group, mc_known.group_null, at), kept;
    int size = 0;
    if (app_size == 0 || group == mc_known.group_null || !MC_HAVE(MPI_Group_size) || !MC_HAVE(MPI_Group_incl) ||
        MC_REAL(MPI_Group_size)(group, &size) != MPI_SUCCESS || size != real_size ||
        MC_REAL(MPI_Group_incl)(group, app_size, app_ranks, &kept) != MPI_SUCCESS)
        return;
    put_group(at, kept);
    MC_REAL(MPI_Group_free)(&group);
}

void mc_hide_in_info(mc_handles at)
{
    MPI_Info info = HANDLE_AT(Info, mc_known.info_null, at);
    char text[32];
    int flag = 0;
    if (app_size == 0 || !MC_HAVE(MPI_Info_get) || !MC_HAVE(MPI_Info_set) ||
        MC_REAL(MPI_Info_get)(info, "mpi_size", sizeof text - 1, text, &flag) != MPI_SUCCESS || !flag ||
        atoi(text) != real_size)
        return;
    snprintf(text, sizeof text, "%d", app_size);
    MC_REAL(MPI_Info_set)(info, "mpi_size", text);
}

#endif

/* ---- MPI_Init and the end ---- */

/* Announce MPI_Init, because the coordinator must not enter MPI_Init if the application never does. */
void mc_before_init(void)
{
    mc_has_begun = 1;
    mc_presence_tell();
    if (mc_has_coordinator())
        mc_announce("init");
    if (mc_has_coordinator() && !has_session())
        mc_await_others();
}

void mc_after_init(void)
{
    MPI_Comm parent;
    if (is_world_open)
        return; /* a tool behind this library has called PMPI_Init already */
    is_world_open = 1;
    mc_find_libraries();
    if (!is_ours()) {
        mc_presence_end();
        return;
    }
    parent = mc_known.comm_null;
    MC_REAL(MPI_Comm_get_parent)(&parent);
    is_spawned = parent != mc_known.comm_null;
    if (!is_spawned && mc_is_wrapped()) {
        if (!swap_world() && phase == BEFORE_INIT)
            phase = NOT_OURS; /* the coordinators make no further call on the real world */
    } else {
        mc_app_world = mc_known.world;
        if (phase == BEFORE_INIT && !is_spawned && !mc_is_everywhere())
            phase = NOT_OURS;
        if (phase == BEFORE_INIT) /* if a session is recorded or was recorded, no rank waits here */
            wait_for_all_nodes();
    }
    begin(mc_app_world);
    mc_presence_end();
}

void mc_before_finalize(void)
{
    if (is_forked()) {
        mc_announce_trouble("forked");
        return;
    }
    if (!end() && mc_is_swapped)
        say_goodbye();
    close_own_session();
    is_world_open = 0;
    /* Do not free the application's world, because attribute functions inside MPI_Finalize may use it. */
}

/* Open MPI begins partitioned communication by duplicating the real world, which needs the coordinator's call too. */
void mc_begin_partitioned(void)
{
#ifdef OPEN_MPI
    if (mc_is_swapped)
        mc_announce_trouble("partitioned");
#endif
}

void mc_before_abort(void)
{
    if (phase == STARTED)
        mc_stop(MC_RANK_ABORTED);
    if (phase == STARTED)
        phase = STOPPED;
}

static int loaded_pid;

__attribute__((constructor)) static void note_pid(void)
{
    loaded_pid = (int)getpid();
}

/* 1 in the first rank of an MPI program that has never begun MPI. Shells carry the library too, but are not linked with
   MPI. Returns 0 under `wrap`, where the coordinator watches the announcements. */
static int is_silent_rank(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    rank = rank ? rank : getenv("PMI_RANK");
    return rank && strcmp(rank, "0") == 0 && !mc_has_begun && loaded_pid == (int)getpid() && !mc_has_coordinator() &&
           dlsym(RTLD_NEXT, "PMPI_Init");
}

/* A forked child shares the segment and must not mark its parent as ended. */
__attribute__((destructor)) static void leave_without_finalize(void)
{
    if (phase == STARTED && own_pid == (int)getpid())
        mc_stop(MC_RANK_EXITED);
    else if (is_silent_rank())
        fputs("mpicoloc: no profile was written: this program did not call MPI_Init\n", stderr);
}

/* ---- attributes in MPICH's Fortran ---- */

#if defined(MC_HAS_FORTRAN) && !defined(OPEN_MPI)
/* In MPICH, mpif.h and `use mpi` call these instead of MPI_Comm_set_attr and MPI_Comm_get_attr. type: the value's
   type. */
#define MC_EXPORT __attribute__((visibility("default")))

MC_EXPORT int MPII_Comm_set_attr(MPI_Comm comm, int keyval, void *value, int type)
{
    static int (*real)(MPI_Comm, int, void *, int);
    mc_frame frame;
    if (MC_POINTER(real) == NULL && !mc_resolve(&real, "MPII_Comm_set_attr"))
        return mc_missing();
    comm = mc_world(comm);
    if (!mc_enter(&frame, MC_CALL_MPI_Comm_set_attr, __builtin_return_address(0)))
        return real(comm, keyval, value, type);
    int status = real(comm, keyval, value, type);
    mc_leave(&frame, 0, 0);
    return status;
}

MC_EXPORT int MPII_Comm_get_attr(MPI_Comm comm, int keyval, void *value, int *flag, int type)
{
    static int (*real)(MPI_Comm, int, void *, int *, int);
    mc_frame frame;
    if (MC_POINTER(real) == NULL && !mc_resolve(&real, "MPII_Comm_get_attr"))
        return mc_missing();
    int is_entered = mc_enter_light(&frame, MC_CALL_MPI_Comm_get_attr, __builtin_return_address(0), MC_STACK());
    int status = real(mc_world(comm), keyval, value, flag, type);
    if (status == MPI_SUCCESS && mc_is_world(comm) && !*flag)
        status = real(comm, keyval, value, flag, type);
    if (is_entered)
        mc_leave_light(&frame, 0, 0);
    return status;
}
#endif
