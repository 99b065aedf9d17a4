/* Attributes of the application's world under wrap. They are deleted in MPI_Finalize like those of MPI_COMM_WORLD,
   and MPICH's Fortran finds them. */
#include "guest/hooks.h"
#include "guest/world/world.h"

static int copy_nothing(MPI_Comm comm, int keyval, void *extra, void *value, void *copy, int *flag)
{
    (void)comm, (void)keyval, (void)extra, (void)value, (void)copy;
    *flag = 0;
    return MPI_SUCCESS;
}

/* MPI deletes attributes of a communicator in the reverse order of their setting. So the application's delete
   functions, which may still use its world, have run before this one. */
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

/* MPI_Finalize first deletes the attributes of MPI_COMM_SELF, then those of MPI_COMM_WORLD. The application's
   attributes are on another communicator, so free that first. */
void mc_end_world_with_self(void)
{
    int keyval;
    if (!MC_HAVE(MPI_Comm_create_keyval) || !MC_HAVE(MPI_Comm_set_attr) || !MC_HAVE(MPI_Comm_free_keyval) ||
        MC_REAL(MPI_Comm_create_keyval)(copy_nothing, end_world, &keyval, NULL) != MPI_SUCCESS)
        return;
    MC_REAL(MPI_Comm_set_attr)(mc_known.self, keyval, NULL);
    MC_REAL(MPI_Comm_free_keyval)(&keyval);
}

#if defined(MC_HAS_FORTRAN) && !defined(OPEN_MPI)
/* In MPICH, mpif.h and `use mpi` call these instead of MPI_Comm_set_attr and MPI_Comm_get_attr. type: of the value. */
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
