#include "guest/calls/volume.h"

#include <string.h>

#ifdef MC_HAS_FORTRAN
#include "guest/mpi/fortran.h"
#endif
#include "guest/mpi/app_world.h"
#include "guest/mpi/status.h"

_Atomic uint64_t mc_type_generation = 1;
__thread mc_last_type mc_type_used;

void mc_type_gone(void)
{
    atomic_fetch_add_explicit(&mc_type_generation, 1, memory_order_relaxed);
}

/* Size of a type, which may not fit an int. */
static MPI_Count size_of(MPI_Datatype type)
{
    MPI_Count size_bytes = 0;
    int small = 0;
    if (MC_HAVE(MPI_Type_size_x))
        return MC_REAL(MPI_Type_size_x)(type, &size_bytes) == MPI_SUCCESS ? size_bytes : -1;
    if (MC_HAVE(MPI_Type_size) && MC_REAL(MPI_Type_size)(type, &small) == MPI_SUCCESS)
        return small;
    return -1;
}

uint64_t mc_find_bytes(long long count, MPI_Datatype type)
{
    uint64_t generation = atomic_load_explicit(&mc_type_generation, memory_order_relaxed);
    MPI_Count size_bytes = type == mc_known.type_null ? -1 : size_of(type);
    if (size_bytes < 0)
        return 0;
    mc_type_used = (mc_last_type){type, generation, (uint64_t)size_bytes};
    return (uint64_t)count * (uint64_t)size_bytes;
}

void mc_record_moved(mc_frame *frame, mc_volume *v)
{
    if (v->is_message)
        mc_message(frame, v->peer, v->message_bytes, v->one_sided);
    if (v->collective != NULL)
        mc_record_collective(v);
    if (v->read_bytes | v->written_bytes) {
        mc_file_access(frame, v->read_bytes, v->written_bytes);
        v->sent_bytes += v->written_bytes;
        v->recv_bytes += v->read_bytes;
    }
}

void mc_volume_received(mc_volume *v, const mc_ranks *ranks, int source, uint64_t bytes)
{
    v->recv_bytes += bytes;
    mc_received(v->frame, mc_world_rank(ranks, source), bytes, v->one_sided);
}

void mc_volume_send(mc_volume *v, long long count, MPI_Datatype type, int dest, MPI_Comm comm)
{
    if (dest == MPI_PROC_NULL)
        return;
    v->sent_bytes = v->message_bytes = mc_bytes(count, type);
    v->is_message = 1;
    v->peer = mc_world_rank(mc_ranks_of_comm(comm), dest);
}

void mc_volume_psend(mc_volume *v, long long n_parts, long long count, MPI_Datatype type, int dest, MPI_Comm comm)
{
    mc_begin_partitioned();
    mc_volume_send(v, n_parts * count, type, dest, comm);
}

void mc_volume_irecv(mc_volume *v, long long count, MPI_Datatype type, int source, MPI_Comm comm)
{
    if (source == MPI_PROC_NULL)
        return;
    v->pending_kind = MC_OP_RECV;
    v->pending_bytes = mc_bytes(count, type);
    v->pending_ranks = mc_ranks_of_comm(comm);
}

static void receive_whole(mc_volume *v, int source)
{
    if (v->pending_kind == MC_OP_NONE)
        return;
    v->pending_kind = MC_OP_WHOLE_RECV;
    v->pending_peer = mc_world_rank(v->pending_ranks, source);
}

void mc_volume_precv(mc_volume *v, long long n_parts, long long count, MPI_Datatype type, int source, MPI_Comm comm)
{
    mc_begin_partitioned();
    mc_volume_irecv(v, n_parts * count, type, source, comm);
    receive_whole(v, source);
}

void mc_volume_recv(mc_volume *v, int source, MPI_Comm comm, const MPI_Status *status)
{
    if (source != MPI_PROC_NULL)
        mc_volume_received(v, mc_ranks_of_comm(comm), status->MPI_SOURCE, mc_status_bytes(status));
}

void mc_volume_sendrecv(mc_volume *v, long long scount, MPI_Datatype stype, int dest, MPI_Comm comm, int source,
                        const MPI_Status *status)
{
    mc_volume_recv(v, source, comm, status);
    mc_volume_send(v, scount, stype, dest, comm);
}

void mc_volume_isendrecv(mc_volume *v, long long scount, MPI_Datatype stype, int dest, MPI_Comm comm, long long rcount,
                         MPI_Datatype rtype, int source)
{
    mc_volume_irecv(v, rcount, rtype, source, comm);
    if (!MC_IS_OPEN_MPI)
        receive_whole(v, source); /* MPICH up to 5.0 does not write this status */
    mc_volume_send(v, scount, stype, dest, comm);
}

void mc_volume_put(mc_volume *v, long long count, MPI_Datatype type, int target, MPI_Win win)
{
    if (target == MPI_PROC_NULL)
        return;
    v->sent_bytes = v->message_bytes = mc_bytes(count, type);
    v->is_message = 1;
    v->one_sided = MC_ONE_SIDED;
    v->peer = mc_world_rank(mc_ranks_of_win(win), target);
}

void mc_volume_get(mc_volume *v, long long count, MPI_Datatype type, int target, MPI_Win win)
{
    v->one_sided = MC_ONE_SIDED;
    if (target != MPI_PROC_NULL)
        mc_volume_received(v, mc_ranks_of_win(win), target, mc_bytes(count, type));
}

void mc_volume_get_accumulate(mc_volume *v, long long scount, MPI_Datatype stype, long long rcount, MPI_Datatype rtype,
                              int target, MPI_Op op, MPI_Win win)
{
    mc_volume_get(v, rcount, rtype, target, win);
    if (op != mc_known.no_op)
        mc_volume_put(v, scount, stype, target, win);
}

void mc_volume_fetch(mc_volume *v, MPI_Datatype type, int target, MPI_Op op, MPI_Win win)
{
    mc_volume_get_accumulate(v, 1, type, 1, type, target, op, win);
}

void mc_volume_swap(mc_volume *v, MPI_Datatype type, int target, MPI_Win win)
{
    mc_volume_get(v, 1, type, target, win);
    mc_volume_put(v, 1, type, target, win);
}

void mc_volume_file_read(mc_volume *v, const MPI_Status *status)
{
    v->read_bytes = mc_status_bytes(status);
}

void mc_volume_file_written(mc_volume *v, const MPI_Status *status)
{
    v->written_bytes = mc_status_bytes(status);
}

void mc_volume_file_iread(mc_volume *v, long long count, MPI_Datatype type)
{
    v->pending_kind = MC_OP_READ;
    v->pending_bytes = mc_bytes(count, type);
}

void mc_volume_file_iwrite(mc_volume *v, long long count, MPI_Datatype type)
{
    v->pending_kind = MC_OP_WRITE;
    v->pending_bytes = mc_bytes(count, type);
}

MPI_Datatype mc_type_at(mc_handles types, int i)
{
#ifdef MC_HAS_FORTRAN
    if (types.is_fortran)
        return mc_f_type((const MPI_Fint *)types.items + i);
#endif
    return ((const MPI_Datatype *)types.items)[i];
}

MPI_Request mc_request_at(mc_handles requests, int i)
{
#ifdef MC_HAS_FORTRAN
    if (requests.is_fortran)
        return mc_f_request((const MPI_Fint *)requests.items + i);
#endif
    return ((const MPI_Request *)requests.items)[i];
}
