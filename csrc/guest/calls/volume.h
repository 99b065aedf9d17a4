/* How many bytes a call moves for this rank. They are computed from its arguments: from the buffers it gives and
   takes, not from what the library's algorithm makes of them. Arguments that are not significant in MPI's sense are
   never read. */
#ifndef MPICOLOC_VOLUME_H
#define MPICOLOC_VOLUME_H

#include "guest/calls/peers.h"
#include "guest/calls/requests.h"
#include "guest/hooks.h"
#include "guest/mpi/real.h"

#include <stdatomic.h>

struct mc_volume {
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
};

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

/* Persistent requests: remembered when they are made. Sends and collectives count when they are started, receives
   when they complete. */
void mc_persistent_keep(MPI_Request request, mc_volume *v);

/* The call posted a receive or file access; `request` completes it. */
void mc_request_began(mc_volume *v, MPI_Request request);
void mc_volume_done(mc_volume *v);

/* calls_gen.h declares the functions that calls.toml names. Those of receives that complete later only note them, for
   mc_request_began or mc_persistent_keep. in_place: this buffer is MPI_IN_PLACE. wide: the counts are MPI_Count, not
   int. */

#endif
