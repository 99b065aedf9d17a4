#define _GNU_SOURCE
#include "guest/world/world.h"

#ifdef MC_HAS_FORTRAN
#include "guest/mpi/fortran.h"
#endif

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/counters/pmu.h"
#include "common/options.h"
#include "common/proc.h"
#include "guest/calls/peers.h"
#include "guest/hooks.h"
#include "guest/world/launch.h"
#include "guest/world/presence.h"

enum { N_AT_ONCE = 256 };

static const uint64_t PATIENCE_NS = 10000000000;

int mc_is_swapped, mc_real_size, mc_app_size, *mc_app_ranks;
MPI_Comm mc_app_world;
#ifdef MC_HAS_FORTRAN
MPI_Fint mc_f_world = -1, mc_f_app_world = -1;
#endif

/* How far this process is. */
static enum { BEFORE_INIT, NOT_OURS, STARTED, STOPPED } phase;
static int own_pid;
static int is_world_open, is_spawned;
static int world_rank, is_node_first, is_kept;

/* What the job is called. suffix: for the profile of a job that has inherited another job's name. */
static char key[MC_NAME_LEN];
static struct {
    char job_id[MC_NAME_LEN], suffix[MC_NAME_LEN];
} name;

static void copy(char *to, const char *from)
{
    snprintf(to, MC_NAME_LEN, "%s", from);
}

/* No error message: a rank that lacks memory must not keep others waiting here. */
static int translate(MPI_Group application, MPI_Group real, int size)
{
    int ranks[N_AT_ONCE], status = MPI_SUCCESS;
    for (int first = 0; status == MPI_SUCCESS && first < size; first += N_AT_ONCE) {
        int n = size - first < N_AT_ONCE ? size - first : N_AT_ONCE;
        for (int i = 0; i < n; i++)
            ranks[i] = first + i;
        status = MC_REAL(MPI_Group_translate_ranks)(application, n, ranks, real, mc_app_ranks + first);
    }
    return status == MPI_SUCCESS;
}

static void note_real_ranks(MPI_Comm application, MPI_Comm real)
{
    int size = 0;
    MPI_Group of_application, of_real;
    MC_REAL(MPI_Comm_size)(application, &size);
    int *ranks = realloc(mc_app_ranks, (size_t)size * sizeof *ranks);
    mc_app_size = 0;
    if (ranks == NULL)
        return;
    mc_app_ranks = ranks;
    MC_REAL(MPI_Comm_group)(application, &of_application);
    MC_REAL(MPI_Comm_group)(real, &of_real);
    if (translate(of_application, of_real, size))
        mc_app_size = size;
    MC_REAL(MPI_Group_free)(&of_application);
    MC_REAL(MPI_Group_free)(&of_real);
}

/* The coordinators make the same call with colour 1. Both worlds keep the order of the real ranks. */
MPI_Comm mc_split(MPI_Comm real)
{
    int real_rank = 0;
    MPI_Comm application = mc_known.comm_null;
    MC_REAL(MPI_Comm_rank)(real, &real_rank);
    if (MC_REAL(MPI_Comm_split)(real, 0, real_rank, &application) != MPI_SUCCESS) {
        mc_disable("the world cannot be split from the coordinators", MC_E_MPI);
        return mc_known.comm_null;
    }
    MC_REAL(MPI_Comm_size)(real, &mc_real_size);
    note_real_ranks(application, real);
    return application;
}

static int swap_world(void)
{
    MPI_Comm application = mc_split(mc_known.world);
    if (application == mc_known.comm_null)
        return 0;
    MC_REAL(MPI_Comm_set_name)(application, "MPI_COMM_WORLD");
    mc_app_world = application;
    mc_is_swapped = 1;
#ifdef MC_HAS_FORTRAN
    mc_f_world = mc_f_of_comm(mc_known.world);
    mc_f_app_world = mc_f_of_comm(application);
#endif
    mc_end_world_with_self();
    return 1;
}

/* The key from the launcher, unless this job was spawned: it then has its parent's environment, but another world. */
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

/* A job that inherited another job's environment would use the other's name and profile. All ranks take another
   name. */
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
    /* the calls of this shim have the numbers of another header than the library's own */
    size_t n = strlen(text);
    snprintf(text + n, MPI_MAX_LIBRARY_VERSION_STRING - n, ", standard ABI");
#endif
}

static int have_all(void)
{
    return MC_HAVE(MPI_Comm_rank) && MC_HAVE(MPI_Comm_size) && MC_HAVE(MPI_Comm_split) &&
           MC_HAVE(MPI_Comm_split_type) && MC_HAVE(MPI_Comm_set_name) && MC_HAVE(MPI_Comm_free) && MC_HAVE(MPI_Bcast) &&
           MC_HAVE(MPI_Allreduce) && MC_HAVE(MPI_Barrier) && MC_HAVE(MPI_Info_create) && MC_HAVE(MPI_Info_free) &&
           MC_HAVE(MPI_Get_library_version) && MC_HAVE(MPI_Comm_get_parent) && MC_HAVE(MPI_Ibarrier) &&
           MC_HAVE(MPI_Comm_group) && MC_HAVE(MPI_Group_translate_ranks) && MC_HAVE(MPI_Group_free) &&
           MC_HAVE(MPI_Wait) && MC_HAVE(MPI_Test);
}

/* A rank without the library, on a node to which the launcher did not pass LD_PRELOAD, never comes. A collective
   call cannot be taken back, but a waiting rank can say what it waits for. Skip this when one node has all ranks:
   the library gives the application the same request object first. MPICH 5.0.2 reads in MPI_Cancel of a send what
   the request was used for before, and then waits forever where it would crash with a new one. */
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

/* Find the ranks of this node, and the number of nodes. */
static MPI_Comm look_around(mc_identity *identity, int *is_nested)
{
    MPI_Comm local = mc_known.comm_null;
    MPI_Info info;
    MC_REAL(MPI_Comm_rank)(mc_app_world, &identity->world_rank);
    MC_REAL(MPI_Comm_size)(mc_app_world, &identity->world_size);
    MC_REAL(MPI_Info_create)(&info);
    MC_REAL(MPI_Comm_split_type)(mc_app_world, MPI_COMM_TYPE_SHARED, identity->world_rank, info, &local);
    MC_REAL(MPI_Info_free)(&info);
    MC_REAL(MPI_Comm_rank)(local, &identity->local_rank);
    MC_REAL(MPI_Comm_size)(local, &identity->local_size);
    int mine[] = {identity->local_rank == 0, mc_is_nested()}, all[] = {1, 0};
    MC_REAL(MPI_Allreduce)(mine, all, 2, mc_known.type_int, mc_known.sum, mc_app_world);
    identity->n_nodes = all[0];
    *is_nested = all[1] > 0;
    return local;
}

/* Every rank makes every collective call here, even after an error: another rank may wait in it. */
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
    keeper.id = mc_keeper_get();
    /* Without this, a rank that aborts at once would kill the first one before its keeper exists. */
    MC_REAL(MPI_Bcast)(&keeper, sizeof keeper, mc_known.type_char, 0, local);
    is_kept = (int)keeper.is_kept;
    mc_keeper_set(keeper.id);
    if (!is_kept && identity.mode == MC_MODE_PRELOAD)
        mc_forget(); /* under wrap the coordinator can still write the profile */
    MC_REAL(MPI_Comm_free)(&local);
    if (mc_own_segment() && mc_pmu_is_wanted() && mc_proc_n_filters(0) <= keeper.n_filters)
        mc_pmu_start();
    /* Read what the process has used only here: ranks sleep thousands of times while they wait for each other in
       MPI_Init. */
    if (mc_own_segment())
        mc_usage_read(&mc_own_segment()->used_at_init, 1);
}

int mc_is_ours(void)
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

int mc_is_over(void)
{
    return phase == STOPPED;
}

int mc_is_world_open(void)
{
    return is_world_open;
}

int mc_begin(MPI_Comm world)
{
    if (phase != BEFORE_INIT)
        return 0;
    mc_app_world = world;
    own_pid = (int)getpid();
    phase = STARTED;
    start(mc_real_size > 0);
    return 1;
}

int mc_end(void)
{
    if (phase != STARTED)
        return 0;
    phase = STOPPED;
    mc_stop(MC_RANK_FINALIZING);
    /* The ranks sleep below. Messages that they still owe others (buffered sends) move only inside MPI calls. */
    MC_REAL(MPI_Barrier)(mc_app_world);
    /* A rank that went on would wait in MPI_Finalize for the first one, and many libraries spin there. */
    if (is_kept)
        mc_keeper_wait_profile(key, is_node_first, world_rank == 0);
    return 1;
}

void mc_say_goodbye(void)
{
    MPI_Request request;
    if (mc_real_size > 0 && MC_REAL(MPI_Ibarrier)(mc_first_real(), &request) == MPI_SUCCESS)
        MC_REAL(MPI_Wait)(&request, MPI_STATUS_IGNORE);
}

/* The coordinator must not enter MPI_Init for an application that never does. */
void mc_before_init(void)
{
    mc_has_begun = 1;
    mc_presence_tell();
    if (mc_has_coordinator())
        mc_announce("init");
    if (mc_has_coordinator() && !mc_has_session())
        mc_await_others();
}

void mc_after_init(void)
{
    MPI_Comm parent;
    if (is_world_open)
        return; /* a tool after this one has called PMPI_Init already */
    is_world_open = 1;
    mc_find_libraries();
    if (!mc_is_ours()) {
        mc_presence_end();
        return;
    }
    parent = mc_known.comm_null;
    MC_REAL(MPI_Comm_get_parent)(&parent);
    is_spawned = parent != mc_known.comm_null;
    if (!is_spawned && mc_is_wrapped()) {
        if (!swap_world() && phase == BEFORE_INIT)
            phase = NOT_OURS; /* the coordinators make no further call on the whole world */
    } else {
        mc_app_world = mc_known.world;
        if (phase == BEFORE_INIT && !is_spawned && !mc_is_everywhere())
            phase = NOT_OURS;
        if (phase == BEFORE_INIT) /* not while a session is recorded, or was: then nobody waits */
            wait_for_all_nodes();
    }
    mc_begin(mc_app_world);
    mc_presence_end();
}

void mc_before_finalize(void)
{
    if (!mc_end() && mc_is_swapped)
        mc_say_goodbye();
    mc_close_own_session();
    is_world_open = 0;
    /* The application's world lives on: attribute functions inside MPI_Finalize may use it. */
}

void mc_before_abort(void)
{
    if (phase == STARTED)
        mc_stop(MC_RANK_ABORTED);
    if (phase == STARTED)
        phase = STOPPED;
}

int mc_has_begun;
static int loaded_pid;

__attribute__((constructor)) static void note_pid(void)
{
    loaded_pid = (int)getpid();
}

/* Shells and the like carry the library too, but call no MPI. Under wrap the announcement tells them apart. */
static int is_silent_rank(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    rank = rank ? rank : getenv("PMI_RANK");
    return rank && strcmp(rank, "0") == 0 && !mc_has_begun && loaded_pid == (int)getpid() && !mc_has_coordinator() &&
           dlsym(RTLD_NEXT, "PMPI_Init");
}

/* A forked child shares the segment and must not write its parent's end. */
__attribute__((destructor)) static void leave_without_finalize(void)
{
    if (phase == STARTED && own_pid == (int)getpid())
        mc_stop(MC_RANK_EXITED);
    else if (is_silent_rank())
        fputs("mpicoloc: no profile was written: this program did not call MPI_Init\n", stderr);
}
