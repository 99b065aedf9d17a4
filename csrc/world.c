#include "world.h"

#ifdef MC_HAS_FORTRAN
#include "fortran.h"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hooks.h"
#include "options.h"

int mc_is_swapped;
MPI_Comm mc_app_world;
#ifdef MC_HAS_FORTRAN
MPI_Fint mc_f_world = -1, mc_f_app_world = -1;
#endif

/* Where this process stands. */
static enum { BEFORE_INIT, NOT_OURS, STARTED, STOPPED } phase;
static int own_pid;
static int world_rank;
static char key[MC_NAME_LEN], job_id[MC_NAME_LEN];

static int env_is_one(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && strcmp(text, "1") == 0;
}

static void copy(char *to, const char *from)
{
    snprintf(to, MC_NAME_LEN, "%s", from);
}

/* The coordinators make the same call with colour 1. Both worlds keep the order of the real ranks. */
static void split_world(void)
{
    int real_rank = 0;
    MPI_Comm application = mc_known.comm_null;
    MC_REAL(MPI_Comm_rank)(mc_known.world, &real_rank);
    if (MC_REAL(MPI_Comm_split)(mc_known.world, 0, real_rank, &application) != MPI_SUCCESS)
        return mc_disable("the world cannot be split from the coordinators", MC_E_MPI);
    MC_REAL(MPI_Comm_set_name)(application, "MPI_COMM_WORLD");
    mc_app_world = application;
    mc_is_swapped = 1;
#ifdef MC_HAS_FORTRAN
    mc_f_world = mc_f_of_comm(mc_known.world);
    mc_f_app_world = mc_f_of_comm(application);
#endif
}

static void agree_on_key(MPI_Comm local)
{
    const char *text = getenv("MPICOLOC_KEY");
    if (text != NULL && text[0] != '\0')
        return copy(key, text);
    snprintf(key, sizeof key, "%d-%llx", (int)getpid(), (unsigned long long)mc_now_ns());
    MC_REAL(MPI_Bcast)(key, MC_NAME_LEN, mc_known.type_char, 0, local);
}

static void agree_on_job_id(void)
{
    const char *text = mc_option_text(MC_OPT_JOB_ID);
    const char *slurm = getenv("SLURM_JOB_ID");
    if (text != NULL && text[0] != '\0')
        copy(job_id, text);
    else
        copy(job_id, slurm != NULL && slurm[0] != '\0' ? slurm : key);
    MC_REAL(MPI_Bcast)(job_id, MC_NAME_LEN, mc_known.type_char, 0, mc_app_world);
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
    /* the calls of this shim are numbered by another header than the library's own */
    size_t n = strlen(text);
    snprintf(text + n, MPI_MAX_LIBRARY_VERSION_STRING - n, ", standard ABI");
#endif
}

static int have_all(void)
{
    return MC_HAVE(MPI_Comm_rank) && MC_HAVE(MPI_Comm_size) && MC_HAVE(MPI_Comm_split) &&
           MC_HAVE(MPI_Comm_split_type) && MC_HAVE(MPI_Comm_set_name) && MC_HAVE(MPI_Comm_free) && MC_HAVE(MPI_Bcast) &&
           MC_HAVE(MPI_Allreduce) && MC_HAVE(MPI_Barrier) && MC_HAVE(MPI_Info_create) && MC_HAVE(MPI_Info_free) &&
           MC_HAVE(MPI_Get_library_version) && MC_HAVE(MPI_Comm_get_parent);
}

/* Every rank makes every collective call here, whatever failed before: another rank may wait in it. */
static void start(int is_wrapped)
{
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    mc_identity identity = {.key = key, .job_id = job_id, .mpi_library = library};
    MPI_Comm local = mc_known.comm_null;
    MPI_Info info;
    identity.mode = is_wrapped && env_is_one("MPICOLOC_COORDINATOR") ? MC_MODE_WRAP : MC_MODE_PRELOAD;
    MC_REAL(MPI_Comm_rank)(mc_app_world, &identity.world_rank);
    MC_REAL(MPI_Comm_size)(mc_app_world, &identity.world_size);
    MC_REAL(MPI_Info_create)(&info);
    MC_REAL(MPI_Comm_split_type)(mc_app_world, MPI_COMM_TYPE_SHARED, identity.world_rank, info, &local);
    MC_REAL(MPI_Info_free)(&info);
    MC_REAL(MPI_Comm_rank)(local, &identity.local_rank);
    MC_REAL(MPI_Comm_size)(local, &identity.local_size);
    int is_first = identity.local_rank == 0;
    MC_REAL(MPI_Allreduce)(&is_first, &identity.n_nodes, 1, mc_known.type_int, mc_known.sum, mc_app_world);
    agree_on_key(local);
    agree_on_job_id();
    read_library_version(library);
    world_rank = identity.world_rank;
    int status = mc_start(&identity);
    MC_REAL(MPI_Barrier)(local); /* the keeper must find every rank's segment */
    int is_kept = is_first && status == MC_OK && mc_keeper_start(key) == MC_OK;
    /* A rank that goes on and aborts at once would take the first one along before its keeper is there. */
    MC_REAL(MPI_Bcast)(&is_kept, 1, mc_known.type_int, 0, local);
    if (!is_kept && identity.mode == MC_MODE_PRELOAD)
        mc_forget(); /* with wrap, the coordinator can still write the profile */
    MC_REAL(MPI_Comm_free)(&local);
}

/* The coordinator must not enter MPI_Init for an application that never does. */
void mc_before_init(void)
{
    if (phase == BEFORE_INIT && env_is_one("MPICOLOC_COORDINATOR"))
        mc_announce_init();
}

void mc_after_init(void)
{
    MPI_Comm parent;
    if (phase != BEFORE_INIT)
        return;
    phase = NOT_OURS;
    if (!mc_library_fits())
        return mc_disable("this shim is for another MPI; use the one that `mpicoloc preload` prints", MC_E_ABI);
    if (!have_all())
        return mc_disable("the MPI library is too old", MC_E_MPI);
    mc_app_world = mc_known.world;
    parent = mc_known.comm_null;
    MC_REAL(MPI_Comm_get_parent)(&parent);
    if (parent != mc_known.comm_null)
        return; /* spawned by another job, whose key and coordinators are not theirs */
    int is_wrapped = env_is_one("MPICOLOC_WRAPPED");
    if (is_wrapped)
        split_world();
    if (is_wrapped && !mc_is_swapped)
        return; /* the coordinators make no further call on the whole world */
    own_pid = (int)getpid();
    phase = STARTED;
    start(is_wrapped);
}

void mc_after_session_init(void)
{
    if (phase == BEFORE_INIT && env_is_one("MPICOLOC_WRAPPED"))
        mc_disable("MPI_Session_init without MPI_Init cannot share the job with coordinators, which now wait; "
                   "use LD_PRELOAD without wrap",
                   MC_E_MPI);
}

void mc_before_finalize(void)
{
    if (phase != STARTED)
        return;
    phase = STOPPED;
    mc_stop(MC_RANK_FINALIZING);
    /* The first rank will sleep below. What it still owes others (buffered sends) moves only inside MPI calls. */
    MC_REAL(MPI_Barrier)(mc_app_world);
    if (world_rank == 0 && key[0] != '\0')
        mc_keeper_wait_profile(key);
    /* The application's world lives on: attribute callbacks inside MPI_Finalize may use it. */
}

void mc_before_abort(void)
{
    if (phase == STARTED)
        mc_stop(MC_RANK_ABORTED);
    if (phase == STARTED)
        phase = STOPPED;
}

/* A child of fork shares the segment and must not speak for its parent. */
__attribute__((destructor)) static void leave_without_finalize(void)
{
    if (phase == STARTED && own_pid == (int)getpid())
        mc_stop(MC_RANK_EXITED);
}
