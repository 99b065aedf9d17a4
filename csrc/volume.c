#include "volume.h"

#include <pthread.h>
#include <string.h>

#ifdef MC_HAS_FORTRAN
#include "fortran.h"
#endif
#include "world.h"

/* Programs use few types in a row, and asking the library costs more than this. A freed type may come back under
   the same handle with another size, so every free starts a new generation. */
static uint64_t type_generation = 1;
static __thread struct {
    MPI_Datatype type;
    uint64_t generation;
    uint64_t size_bytes;
} last_type;

void mc_type_gone(void)
{
    __atomic_add_fetch(&type_generation, 1, __ATOMIC_RELAXED);
}

uint64_t mc_bytes(long long count, MPI_Datatype type)
{
    uint64_t generation = __atomic_load_n(&type_generation, __ATOMIC_RELAXED);
    if (count <= 0)
        return 0;
    if (last_type.generation != generation || last_type.type != type) {
        int size_bytes = 0;
        if (type == mc_known.type_null || !MC_HAVE(MPI_Type_size) ||
            MC_REAL(MPI_Type_size)(type, &size_bytes) != MPI_SUCCESS || size_bytes < 0)
            return 0;
        last_type.type = type;
        last_type.size_bytes = (uint64_t)size_bytes;
        last_type.generation = generation;
    }
    return (uint64_t)count * last_type.size_bytes;
}

void mc_record_message(mc_frame *frame, const mc_volume *v)
{
    if (v->is_message)
        mc_message(frame, v->peer, v->message_bytes);
}

void mc_volume_send(mc_volume *v, long long count, MPI_Datatype type, int dest, MPI_Comm comm)
{
    if (dest == MPI_PROC_NULL)
        return;
    v->sent_bytes = v->message_bytes = mc_bytes(count, type);
    v->is_message = 1;
    v->peer = mc_peer(comm, dest);
}

void mc_volume_psend(mc_volume *v, long long n_parts, long long count, MPI_Datatype type, int dest, MPI_Comm comm)
{
    mc_volume_send(v, n_parts * count, type, dest, comm);
}

void mc_volume_precv(mc_volume *v, long long n_parts, long long count, MPI_Datatype type, int source)
{
    mc_volume_posted(v, n_parts * count, type, source);
}

void mc_volume_posted(mc_volume *v, long long count, MPI_Datatype type, int source)
{
    if (source != MPI_PROC_NULL)
        v->recv_bytes = mc_bytes(count, type);
}

void mc_volume_received(mc_volume *v, long long count, MPI_Datatype type, int source, const MPI_Status *status)
{
    int n_bytes = MPI_UNDEFINED;
    if (source == MPI_PROC_NULL)
        return;
    if (MC_HAVE(MPI_Get_count))
        MC_REAL(MPI_Get_count)(status, mc_known.type_byte, &n_bytes);
    v->recv_bytes = n_bytes >= 0 ? (uint64_t)n_bytes : mc_bytes(count, type);
}

void mc_volume_sendrecv(mc_volume *v, long long scount, MPI_Datatype stype, int dest, MPI_Comm comm, long long rcount,
                        MPI_Datatype rtype, int source, const MPI_Status *status)
{
    mc_volume_received(v, rcount, rtype, source, status);
    mc_volume_send(v, scount, stype, dest, comm);
}

void mc_volume_isendrecv(mc_volume *v, long long scount, MPI_Datatype stype, int dest, MPI_Comm comm, long long rcount,
                         MPI_Datatype rtype, int source)
{
    mc_volume_posted(v, rcount, rtype, source);
    mc_volume_send(v, scount, stype, dest, comm);
}

void mc_volume_put(mc_volume *v, long long count, MPI_Datatype type, int target)
{
    if (target != MPI_PROC_NULL)
        v->sent_bytes = mc_bytes(count, type);
}

void mc_volume_get_accumulate(mc_volume *v, long long scount, MPI_Datatype stype, long long rcount, MPI_Datatype rtype,
                              int target, MPI_Op op)
{
    if (target == MPI_PROC_NULL)
        return;
    v->recv_bytes = mc_bytes(rcount, rtype);
    if (op != mc_known.no_op)
        v->sent_bytes = mc_bytes(scount, stype);
}

void mc_volume_fetch(mc_volume *v, MPI_Datatype type, int target, MPI_Op op)
{
    mc_volume_get_accumulate(v, 1, type, 1, type, target, op);
}

void mc_volume_swap(mc_volume *v, MPI_Datatype type, int target)
{
    if (target != MPI_PROC_NULL)
        v->sent_bytes = v->recv_bytes = mc_bytes(1, type);
}

/* ---- persistent requests: what each moves when started, by handle ---- */

enum { N_PERSISTENT = 4096 };

static struct {
    MPI_Request request;
    int used;
    mc_volume volume;
} persistent[N_PERSISTENT];
static int n_persistent;
static pthread_mutex_t persistent_lock = PTHREAD_MUTEX_INITIALIZER;

static unsigned hash_request(MPI_Request request)
{
    uint64_t bits = 0;
    memcpy(&bits, &request, sizeof request);
    return (unsigned)((bits * 0x9e3779b97f4a7c15u) >> 40) % N_PERSISTENT;
}

/* Index of the request's row, or of the row where it would go. The table is never filled above 3/4. */
static unsigned find_persistent(MPI_Request request)
{
    unsigned i = hash_request(request);
    while (persistent[i].used && persistent[i].request != request)
        i = (i + 1) % N_PERSISTENT;
    return i;
}

void mc_persistent_keep(MPI_Request request, const mc_volume *v)
{
    pthread_mutex_lock(&persistent_lock);
    unsigned i = find_persistent(request);
    if (persistent[i].used || n_persistent < N_PERSISTENT / 4 * 3) {
        n_persistent += !persistent[i].used;
        persistent[i].request = request;
        persistent[i].used = 1;
        persistent[i].volume = *v;
    }
    pthread_mutex_unlock(&persistent_lock);
}

void mc_persistent_drop(MPI_Request request)
{
    pthread_mutex_lock(&persistent_lock);
    unsigned i = find_persistent(request);
    if (persistent[i].used) {
        persistent[i].used = 0;
        n_persistent--;
        /* rows behind the hole move up, so that every search still ends at a free row */
        for (unsigned j = (i + 1) % N_PERSISTENT; persistent[j].used; j = (j + 1) % N_PERSISTENT) {
            persistent[j].used = 0;
            unsigned k = find_persistent(persistent[j].request);
            if (k != j)
                persistent[k] = persistent[j];
            persistent[k].used = 1;
        }
    }
    pthread_mutex_unlock(&persistent_lock);
}

void mc_volume_start(mc_volume *v, MPI_Request request)
{
    mc_volume kept = {0};
    pthread_mutex_lock(&persistent_lock);
    unsigned i = find_persistent(request);
    if (persistent[i].used)
        kept = persistent[i].volume;
    pthread_mutex_unlock(&persistent_lock);
    v->sent_bytes += kept.sent_bytes;
    v->recv_bytes += kept.recv_bytes;
    if (v->frame != NULL)
        mc_record_message(v->frame, &kept);
}

void mc_volume_startall(mc_volume *v, long long n, mc_handles requests)
{
    for (int i = 0; i < n; i++)
        mc_volume_start(v, mc_request_at(requests, i));
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
