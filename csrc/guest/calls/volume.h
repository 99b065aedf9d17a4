/* How many bytes a call moves for this rank. They are computed from its arguments: from the buffers it gives and
   takes, not from what the library's algorithm makes of them. Arguments that are not significant in MPI's sense are
   never read. */
#ifndef MPICOLOC_VOLUME_H
#define MPICOLOC_VOLUME_H

#include "guest/calls/peers.h"
#include "guest/calls/requests.h"
#include "guest/hooks.h"
#include "guest/mpi/handles.h"
#include "guest/mpi/real.h"

#include <stdatomic.h>

typedef struct mc_volume {
    uint64_t sent_bytes, recv_bytes;
    uint64_t read_bytes, written_bytes; /* from files, to files */
    uint64_t message_bytes;             /* of the one message to `peer` */
    int is_message;
    uint32_t one_sided; /* MC_ONE_SIDED: the peer counts neither this message nor what this call receives */
    int peer;
    uint32_t pending_kind; /* what completes later (MC_OP_...); its size is known only then */
    int pending_peer;
    uint64_t pending_bytes; /* upper limit */
    mc_ranks *pending_ranks;
    mc_frame *frame;
    mc_ranks *collective; /* ranks of a collective; NULL: it is none */
    int root;             /* rank of the root in them (on an intercommunicator: in the remote group), -1: none */
    uint64_t whole_bytes, own_bytes; /* the buffer or one rank's part; this rank's own bytes where parts differ */
    uint64_t item_bytes;             /* of the datatype */
    int is_kept;                     /* a persistent operation: it moves nothing before it is started */
    struct mc_kept *kept; /* what it gives to each rank once it is started, for collectives with parts that differ */
} mc_volume;

enum { /* kinds of mc_op */
       MC_OP_NONE,
       MC_OP_RECV,
       MC_OP_WHOLE_RECV, /* counts as posted, from the named peer: its status says nothing */
       MC_OP_READ,
       MC_OP_WRITE,
       MC_OP_SEND,  /* persistent */
       MC_OP_OTHER, /* persistent: collectives */
       MC_OP_CANCELLED = 16,
};

/* Programs use few types in a row, and asking the library costs more than this lookup. A freed type may come back
   under the same handle with another size, so every free starts a new generation. */
typedef struct mc_last_type {
    MPI_Datatype type;
    uint64_t generation;
    uint64_t size_bytes;
} mc_last_type;

extern _Atomic uint64_t mc_type_generation;
extern __thread mc_last_type mc_type_used;
uint64_t mc_find_bytes(long long count, MPI_Datatype type);
void mc_type_gone(void);

static inline uint64_t mc_bytes(long long count, MPI_Datatype type)
{
    const mc_last_type *last = &mc_type_used;
    if (count <= 0)
        return 0;
    if (last->type == type && last->generation == atomic_load_explicit(&mc_type_generation, memory_order_relaxed))
        return (uint64_t)count * last->size_bytes;
    return mc_find_bytes(count, type);
}

void mc_record_moved(mc_frame *frame, mc_volume *v);

/* matrix.c: the traffic between ranks is computed from these. Record a collective, before mc_leave: */
void mc_record_collective(const mc_volume *v);
/* and the bytes that this rank gives to rank i of a communicator, where parts differ. */
void mc_record_part(mc_volume *v, const mc_ranks *ranks, int i, uint64_t bytes);
/* The same for a persistent collective, to be counted whenever it is started; NULL: it moves nothing. */
struct mc_kept *mc_keep_collective(mc_volume *v);
void mc_kept_start(const struct mc_kept *kept, mc_volume *v);
void mc_kept_free(struct mc_kept *kept);

/* A receive completed in this call: so many bytes from this rank of a communicator. */
void mc_volume_received(mc_volume *v, const mc_ranks *ranks, int source, uint64_t bytes);

/* Item i of an array argument as a C handle. */
MPI_Datatype mc_type_at(mc_handles types, int i);
MPI_Request mc_request_at(mc_handles requests, int i);

/* Point to point. Receives that complete later are only noted, for mc_request_began or mc_persistent_keep. */
void mc_volume_send(mc_volume *v, long long count, MPI_Datatype type, int dest, MPI_Comm comm);
void mc_volume_psend(mc_volume *v, long long n_parts, long long count, MPI_Datatype type, int dest, MPI_Comm comm);
void mc_volume_precv(mc_volume *v, long long n_parts, long long count, MPI_Datatype type, int source, MPI_Comm comm);
void mc_volume_irecv(mc_volume *v, long long count, MPI_Datatype type, int source, MPI_Comm comm);
void mc_volume_recv(mc_volume *v, int source, MPI_Comm comm, const MPI_Status *status);
void mc_volume_sendrecv(mc_volume *v, long long scount, MPI_Datatype stype, int dest, MPI_Comm comm, int source,
                        const MPI_Status *status);
void mc_volume_isendrecv(mc_volume *v, long long scount, MPI_Datatype stype, int dest, MPI_Comm comm, long long rcount,
                         MPI_Datatype rtype, int source);

/* Matched probes: remember where the message came from. Call mc_message_taken before the message is received. */
void mc_volume_mprobe(mc_volume *v, MPI_Message message, MPI_Comm comm);
void mc_volume_improbe(mc_volume *v, int found, MPI_Message message, MPI_Comm comm);
void mc_message_taken(mc_volume *v, MPI_Message message);
void mc_volume_done(mc_volume *v);
void mc_volume_mrecv(mc_volume *v, const MPI_Status *status);
void mc_volume_imrecv(mc_volume *v, long long count, MPI_Datatype type);

/* Persistent requests: remembered when they are made. Sends and collectives count when they are started, receives
   when they complete. */
void mc_persistent_keep(MPI_Request request, mc_volume *v);
void mc_volume_start(mc_volume *v, MPI_Request request);
void mc_volume_startall(mc_volume *v, long long n, mc_handles requests);

/* The call posted a receive or file access; `request` completes it. */
void mc_request_began(mc_volume *v, MPI_Request request);
void mc_request_cancelled(MPI_Request request);
void mc_request_freed(mc_volume *v, MPI_Request request);

/* Files. */
void mc_volume_file_read(mc_volume *v, const MPI_Status *status);
void mc_volume_file_written(mc_volume *v, const MPI_Status *status);
void mc_volume_file_iread(mc_volume *v, long long count, MPI_Datatype type);
void mc_volume_file_iwrite(mc_volume *v, long long count, MPI_Datatype type);

/* Collectives. in_place: this buffer is MPI_IN_PLACE. wide: the counts are MPI_Count, not int. */
void mc_volume_bcast(mc_volume *v, long long count, MPI_Datatype type, int root, MPI_Comm comm);
void mc_volume_gather(mc_volume *v, int in_place, long long scount, MPI_Datatype stype, long long rcount,
                      MPI_Datatype rtype, int root, MPI_Comm comm);
void mc_volume_gatherv(mc_volume *v, int in_place, long long scount, MPI_Datatype stype, const void *rcounts, int wide,
                       MPI_Datatype rtype, int root, MPI_Comm comm);
void mc_volume_scatter(mc_volume *v, long long scount, MPI_Datatype stype, int in_place, long long rcount,
                       MPI_Datatype rtype, int root, MPI_Comm comm);
void mc_volume_scatterv(mc_volume *v, const void *scounts, int wide, MPI_Datatype stype, int in_place, long long rcount,
                        MPI_Datatype rtype, int root, MPI_Comm comm);
void mc_volume_allgather(mc_volume *v, int in_place, long long scount, MPI_Datatype stype, long long rcount,
                         MPI_Datatype rtype, MPI_Comm comm);
void mc_volume_allgatherv(mc_volume *v, int in_place, long long scount, MPI_Datatype stype, const void *rcounts,
                          int wide, MPI_Datatype rtype, MPI_Comm comm);
void mc_volume_alltoall(mc_volume *v, int in_place, long long scount, MPI_Datatype stype, long long rcount,
                        MPI_Datatype rtype, MPI_Comm comm);
void mc_volume_alltoallv(mc_volume *v, int in_place, const void *scounts, int wide, MPI_Datatype stype,
                         const void *rcounts, MPI_Datatype rtype, MPI_Comm comm);
void mc_volume_alltoallw(mc_volume *v, int in_place, const void *scounts, int wide, mc_handles stypes,
                         const void *rcounts, mc_handles rtypes, MPI_Comm comm);
void mc_volume_reduce(mc_volume *v, int in_place, long long count, MPI_Datatype type, int root, MPI_Comm comm);
void mc_volume_allreduce(mc_volume *v, long long count, MPI_Datatype type, MPI_Comm comm);
void mc_volume_barrier(mc_volume *v, MPI_Comm comm);
void mc_volume_exscan(mc_volume *v, long long count, MPI_Datatype type, MPI_Comm comm);
void mc_volume_reduce_scatter(mc_volume *v, const void *counts, int wide, MPI_Datatype type, MPI_Comm comm);
void mc_volume_reduce_scatter_block(mc_volume *v, long long count, MPI_Datatype type, MPI_Comm comm);
void mc_volume_neighbor_allgather(mc_volume *v, long long scount, MPI_Datatype stype, long long rcount,
                                  MPI_Datatype rtype, MPI_Comm comm);
void mc_volume_neighbor_alltoall(mc_volume *v, long long scount, MPI_Datatype stype, long long rcount,
                                 MPI_Datatype rtype, MPI_Comm comm);
void mc_volume_neighbor_allgatherv(mc_volume *v, long long scount, MPI_Datatype stype, const void *rcounts, int wide,
                                   MPI_Datatype rtype, MPI_Comm comm);
void mc_volume_neighbor_alltoallv(mc_volume *v, const void *scounts, int wide, MPI_Datatype stype, const void *rcounts,
                                  MPI_Datatype rtype, MPI_Comm comm);
void mc_volume_neighbor_alltoallw(mc_volume *v, const void *scounts, int wide, mc_handles stypes, const void *rcounts,
                                  mc_handles rtypes, MPI_Comm comm);

/* One-sided: a message to the target, or from it, or both. */
void mc_volume_put(mc_volume *v, long long count, MPI_Datatype type, int target, MPI_Win win);
void mc_volume_get(mc_volume *v, long long count, MPI_Datatype type, int target, MPI_Win win);
void mc_volume_get_accumulate(mc_volume *v, long long scount, MPI_Datatype stype, long long rcount, MPI_Datatype rtype,
                              int target, MPI_Op op, MPI_Win win);
void mc_volume_fetch(mc_volume *v, MPI_Datatype type, int target, MPI_Op op, MPI_Win win);
void mc_volume_swap(mc_volume *v, MPI_Datatype type, int target, MPI_Win win);

#endif
