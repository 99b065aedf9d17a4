/* How many bytes a call moved for this rank, from its own arguments: the buffers it gave and took, not what the
   library's algorithm made of them. Arguments that MPI calls not significant are never read. */
#ifndef MPICOLOC_VOLUME_H
#define MPICOLOC_VOLUME_H

#include "hooks.h"
#include "real.h"

typedef struct mc_volume {
    uint64_t sent_bytes, recv_bytes;
    uint64_t message_bytes; /* of the one message to `peer` */
    int is_message;
    int peer;
    mc_frame *frame;
} mc_volume;

/* An array argument, in C or in Fortran, where handles are integers. */
typedef struct mc_handles {
    const void *items;
    int is_fortran;
} mc_handles;

uint64_t mc_bytes(long long count, MPI_Datatype type);
void mc_type_gone(void);
void mc_record_message(mc_frame *frame, const mc_volume *volume);

/* Item i of an array argument as a C handle. */
MPI_Datatype mc_type_at(mc_handles types, int i);
MPI_Request mc_request_at(mc_handles requests, int i);

/* Point to point. any: the peer is not known. */
void mc_volume_send(mc_volume *v, long long count, MPI_Datatype type, int dest, MPI_Comm comm);
void mc_volume_psend(mc_volume *v, long long n_parts, long long count, MPI_Datatype type, int dest, MPI_Comm comm);
void mc_volume_precv(mc_volume *v, long long n_parts, long long count, MPI_Datatype type, int source);
void mc_volume_posted(mc_volume *v, long long count, MPI_Datatype type, int source);
void mc_volume_received(mc_volume *v, long long count, MPI_Datatype type, int source, const MPI_Status *status);
void mc_volume_sendrecv(mc_volume *v, long long scount, MPI_Datatype stype, int dest, MPI_Comm comm, long long rcount,
                        MPI_Datatype rtype, int source, const MPI_Status *status);
void mc_volume_isendrecv(mc_volume *v, long long scount, MPI_Datatype stype, int dest, MPI_Comm comm, long long rcount,
                         MPI_Datatype rtype, int source);

/* Persistent requests: remembered when made, counted when started. */
void mc_persistent_keep(MPI_Request request, const mc_volume *v);
void mc_persistent_drop(MPI_Request request);
void mc_volume_start(mc_volume *v, MPI_Request request);
void mc_volume_startall(mc_volume *v, long long n, mc_handles requests);

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
void mc_volume_allreduce(mc_volume *v, long long count, MPI_Datatype type);
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

/* One-sided. */
void mc_volume_put(mc_volume *v, long long count, MPI_Datatype type, int target);
void mc_volume_get_accumulate(mc_volume *v, long long scount, MPI_Datatype stype, long long rcount, MPI_Datatype rtype,
                              int target, MPI_Op op);
void mc_volume_fetch(mc_volume *v, MPI_Datatype type, int target, MPI_Op op);
void mc_volume_swap(mc_volume *v, MPI_Datatype type, int target);

#endif
