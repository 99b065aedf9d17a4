#include "guest/calls/completion.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifdef MC_HAS_FORTRAN
#include "guest/mpi/fortran.h"
#endif
#include "guest/mpi/status.h"

enum { N_PENDING_BUCKETS = 4096, N_PERSISTENT_BUCKETS = 1024, N_MATCHED_BUCKETS = 256 };

MC_OP_TABLE(, mc_under_way, N_PENDING_BUCKETS);
MC_OP_TABLE(static, persistent, N_PERSISTENT_BUCKETS);
MC_OP_TABLE(static, matched, N_MATCHED_BUCKETS);

/* ---- begin ---- */

/* The operation's completion will not be seen, so count its posted bytes. */
static void count_as_posted(mc_volume *v, const mc_op *op)
{
    if (op->kind == MC_OP_RECV)
        mc_volume_received(v, NULL, -1, op->recv_bytes);
    else if (op->kind == MC_OP_WHOLE_RECV) {
        v->recv_bytes += op->recv_bytes;
        mc_received(v->frame, op->peer, op->recv_bytes, 0);
    } else if (op->kind == MC_OP_READ)
        v->read_bytes += op->recv_bytes;
    else if (op->kind == MC_OP_WRITE)
        v->written_bytes += op->recv_bytes;
}

static void end_unseen(mc_volume *v, uint64_t key)
{
    mc_op op;
    if (!mc_ops_any(&mc_under_way) || !mc_op_take(&mc_under_way, key, UINT64_MAX, &op))
        return;
    if (v->frame->is_recorded)
        count_as_posted(v, &op);
    mc_ranks_release(op.ranks);
}

static void add_pending(mc_volume *v, uint64_t key, mc_op op)
{
    op.ranks = mc_ranks_keep(op.ranks);
    if (mc_op_add(&mc_under_way, key, &op))
        return;
    mc_ranks_release(op.ranks);
    mc_request_overflow(v->frame);
    count_as_posted(v, &op);
}

static mc_op op_of(const mc_volume *v)
{
    return (mc_op){
        .recv_bytes = v->pending_bytes, .ranks = v->pending_ranks, .peer = v->pending_peer, .kind = v->pending_kind};
}

void mc_request_began(mc_volume *v, MPI_Request request)
{
    if (v->pending_kind != MC_OP_NONE)
        add_pending(v, MC_KEY_OF(request), op_of(v));
}

static void drop_persistent(mc_op *op)
{
    mc_ranks_release(op->ranks);
    if (op->kind == MC_OP_OTHER)
        mc_kept_free(op->kept);
}

void mc_persistent_keep(MPI_Request request, mc_volume *v)
{
    mc_op op = op_of(v);
    if (v->is_message)
        op = (mc_op){.sent_bytes = v->sent_bytes, .peer = v->peer, .kind = MC_OP_SEND};
    else if (v->pending_kind == MC_OP_NONE)
        op = (mc_op){.kept = mc_keep_collective(v), .kind = MC_OP_OTHER};
    v->sent_bytes = v->recv_bytes = 0; /* nothing moves before MPI_Start */
    if (op.kind == MC_OP_OTHER && op.kept == NULL)
        return; /* a transfer with MPI_PROC_NULL; such requests may share one handle */
    op.ranks = mc_ranks_keep(op.ranks);
    if (!mc_op_add(&persistent, MC_KEY_OF(request), &op)) {
        drop_persistent(&op);
        mc_request_overflow(v->frame);
    }
}

void mc_volume_start(mc_volume *v, MPI_Request request)
{
    mc_op op;
    uint64_t key = MC_KEY_OF(request);
    if (!mc_op_find(&persistent, key, &op))
        return;
    if (op.kind == MC_OP_OTHER)
        return mc_kept_start(op.kept, v);
    if (op.kind == MC_OP_SEND) {
        v->sent_bytes += op.sent_bytes;
        return mc_message(v->frame, op.peer, op.sent_bytes, 0);
    }
    mc_op left;
    if (mc_ops_any(&mc_under_way) && mc_op_take(&mc_under_way, key, UINT64_MAX, &left))
        mc_ranks_release(left.ranks); /* left by an earlier, failed operation with this handle */
    add_pending(v, key, op);
}

void mc_volume_startall(mc_volume *v, long long n, mc_handles requests)
{
    for (int i = 0; i < n; i++)
        mc_volume_start(v, mc_request_at(requests, i));
}

void mc_request_cancelled(MPI_Request request)
{
    if (mc_ops_any(&mc_under_way))
        mc_op_mark(&mc_under_way, MC_KEY_OF(request), MC_OP_CANCELLED);
}

void mc_request_freed(mc_volume *v, MPI_Request request)
{
    mc_op op;
    uint64_t key = MC_KEY_OF(request);
    if (mc_op_take(&persistent, key, UINT64_MAX, &op))
        drop_persistent(&op);
    end_unseen(v, key);
}

void mc_volume_mprobe(mc_volume *v, MPI_Message message, MPI_Comm comm)
{
    if (message == mc_known.message_no_proc)
        return;
    mc_op op = {.ranks = mc_ranks_keep(mc_ranks_of_comm(comm))};
    if (!mc_op_add(&matched, MC_KEY_OF(message), &op)) {
        mc_ranks_release(op.ranks);
        mc_request_overflow(v->frame);
    }
}

void mc_volume_improbe(mc_volume *v, int found, MPI_Message message, MPI_Comm comm)
{
    if (found)
        mc_volume_mprobe(v, message, comm);
}

void mc_message_taken(mc_volume *v, MPI_Message message)
{
    mc_op op;
    v->pending_peer = message == mc_known.message_no_proc ? MPI_PROC_NULL : 0;
    if (mc_op_take(&matched, MC_KEY_OF(message), UINT64_MAX, &op))
        v->pending_ranks = op.ranks;
}

void mc_volume_done(mc_volume *v)
{
    mc_ranks_release(v->pending_ranks);
}

void mc_volume_mrecv(mc_volume *v, const MPI_Status *status)
{
    if (v->pending_peer != MPI_PROC_NULL)
        mc_volume_received(v, v->pending_ranks, status->MPI_SOURCE, mc_status_bytes(status));
}

void mc_volume_imrecv(mc_volume *v, long long count, MPI_Datatype type)
{
    if (v->pending_peer == MPI_PROC_NULL)
        return;
    v->pending_kind = MC_OP_RECV;
    v->pending_bytes = mc_bytes(count, type);
}

/* ---- completion ---- */

static pthread_key_t memory_key;
static int have_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread struct {
    void *memory;
    size_t n_bytes;
} own;

static void free_own(void *memory)
{
    free(memory);
    own.memory = NULL; /* destructors of other libraries may still call MPI */
    own.n_bytes = 0;
}

static void make_memory_key(void)
{
    have_key = pthread_key_create(&memory_key, free_own) == 0;
}

/* Return at least n_bytes of scratch memory that belongs to this thread. The memory is valid until the thread's next
   call of scratch(), which reuses it, and is freed when the thread ends. Returns NULL if there is no memory. */
static void *scratch(size_t n_bytes)
{
    if (own.n_bytes >= n_bytes)
        return own.memory;
    pthread_once(&once, make_memory_key);
    void *memory = have_key ? realloc(own.memory, n_bytes) : NULL;
    if (memory == NULL)
        return NULL;
    own.memory = memory;
    own.n_bytes = n_bytes;
    pthread_setspecific(memory_key, memory);
    return memory;
}

static uint64_t key_at(mc_handles requests, int i)
{
    MPI_Request request = mc_request_at(requests, i);
    return MC_KEY_OF(request);
}

static void note_keys(mc_completion *c)
{
#ifdef MC_HAS_FORTRAN
    if (c->requests.is_fortran) {
        for (uint64_t i = 0; i < c->n; i++)
            c->keys[i] = key_at(c->requests, (int)i);
        return;
    }
#endif
    const MPI_Request *requests = c->requests.items;
    if (sizeof *requests == sizeof *c->keys)
        memcpy(c->keys, requests, c->n * sizeof *c->keys);
    else
        for (uint64_t i = 0; i < c->n; i++)
            c->keys[i] = MC_KEY_OF(requests[i]);
}

void *mc_completion_begin(mc_completion *c, mc_volume *v, long long n, mc_handles requests, void *statuses,
                          int is_ignored)
{
    c->n = 0;
    if (!mc_ops_any(&mc_under_way) || n <= 0 || requests.items == NULL)
        return statuses;
    size_t status_bytes = requests.is_fortran ? (size_t)MC_F_STATUS_BYTES : sizeof(MPI_Status);
    char *own_statuses = c->own_statuses[0];
    c->keys = c->own_keys;
    if (n > MC_N_OWN) {
        size_t key_bytes = (size_t)n * sizeof *c->keys;
        char *memory = scratch(key_bytes + (is_ignored ? (size_t)n * status_bytes : 0));
        for (int i = 0; memory == NULL && i < n; i++)
            end_unseen(v, key_at(requests, i));
        if (memory == NULL)
            return statuses;
        c->keys = (uint64_t *)(void *)memory;
        own_statuses = memory + key_bytes;
    }
    c->n = (uint64_t)n;
    c->before = mc_ops_now(&mc_under_way);
    c->requests = requests;
    c->statuses = is_ignored ? own_statuses : statuses;
    note_keys(c);
    return is_ignored ? own_statuses : statuses;
}

static MPI_Status status_at(const mc_completion *c, uint64_t i)
{
    MPI_Status status;
#ifdef MC_HAS_FORTRAN
    if (c->requests.is_fortran) {
        mc_f_status(&status, (const char *)c->statuses + i * MC_F_STATUS_BYTES);
        return status;
    }
#endif
    memcpy(&status, (const char *)c->statuses + i * sizeof status, sizeof status);
    return status;
}

static int class_of(int error)
{
    int class = error;
    if (error != MPI_SUCCESS && MC_HAVE(MPI_Error_class))
        MC_REAL(MPI_Error_class)(error, &class);
    return class;
}

static void count_ended(mc_volume *v, const mc_op *op, const MPI_Status *status)
{
    /* only for receives: Open MPI does not write this field of a file access's status */
    if (op->kind == MC_OP_RECV && mc_status_is_cancelled(status))
        return;
    uint64_t bytes = mc_status_bytes(status);
    if (op->kind == MC_OP_RECV)
        mc_volume_received(v, op->ranks, status->MPI_SOURCE, bytes);
    else if (op->kind == MC_OP_READ)
        v->read_bytes += bytes;
    else if (op->kind == MC_OP_WRITE)
        v->written_bytes += bytes;
}

/* Record that request i completed without error. Its status has the index i_status. */
static void end_one(mc_completion *c, mc_volume *v, uint64_t i, uint64_t i_status)
{
    mc_op op;
    if (!mc_op_take(&mc_under_way, c->keys[i], c->before, &op))
        return;
    op.kind &= ~(uint32_t)MC_OP_CANCELLED;
    if (v->frame->is_recorded) {
        MPI_Status status = status_at(c, i_status);
        if (op.kind == MC_OP_WHOLE_RECV)
            count_as_posted(v, &op);
        else
            count_ended(v, &op, &status);
    }
    mc_ranks_release(op.ranks);
}

static void drop(mc_completion *c, uint64_t i)
{
    mc_op op;
    if (mc_op_take(&mc_under_way, c->keys[i], c->before, &op))
        mc_ranks_release(op.ranks);
}

/* Call this after a failed call. Forget the requests whose handles the library has replaced. */
static void drop_replaced(mc_completion *c)
{
    for (uint64_t i = 0; i < c->n; i++)
        if (key_at(c->requests, (int)i) != c->keys[i])
            drop(c, i);
}

static void end_by_status(mc_completion *c, mc_volume *v, uint64_t i, uint64_t i_status)
{
    MPI_Status status = status_at(c, i_status);
    int error = class_of(status.MPI_ERROR);
    if (error == MPI_SUCCESS)
        end_one(c, v, i, i_status);
    else if (error != MPI_ERR_PENDING)
        drop(c, i);
}

void mc_completion_all(mc_completion *c, mc_volume *v, int status, int done)
{
    if (c->n == 0)
        return;
    int error = class_of(status);
    if (error == MPI_SUCCESS) {
        for (uint64_t i = 0; done && i < c->n; i++)
            end_one(c, v, i, i);
    } else if (error == MPI_ERR_IN_STATUS) {
        for (uint64_t i = 0; i < c->n; i++)
            end_by_status(c, v, i, i);
    } else {
        drop_replaced(c);
    }
}

#if defined(MC_HAS_FORTRAN) && !defined(OPEN_MPI)
static int is_replaced(const mc_completion *c, int64_t i)
{
    return i >= 0 && (uint64_t)i < c->n && key_at(c->requests, (int)i) != c->keys[i];
}

/* First index: 1, as MPI demands in Fortran, or 0, as in MPICH 4.0's mpi_f08. The handles that the library has replaced
   show which of the two it is. The library never replaces handles of persistent requests. */
static int index_base(const mc_completion *c, int n_done, const int *indices)
{
    static int known = -1;
    int base = __atomic_load_n(&known, __ATOMIC_RELAXED);
    for (int k = 0; base < 0 && k < n_done; k++) {
        int64_t i = indices[k];
        mc_op op;
        if (i == 0)
            base = 0;
        else if (i > 0 && (uint64_t)i == c->n)
            base = 1;
        else if (i > 0 && (uint64_t)i < c->n && is_replaced(c, i) != is_replaced(c, i - 1) &&
                 !mc_op_find(&persistent, c->keys[i], &op) && !mc_op_find(&persistent, c->keys[i - 1], &op))
            base = is_replaced(c, i - 1);
    }
    if (base >= 0)
        __atomic_store_n(&known, base, __ATOMIC_RELAXED);
    return base == 0 ? 0 : 1;
}
#endif

void mc_completion_some(mc_completion *c, mc_volume *v, int status, int n_done, const int *indices, int base)
{
    if (c->n == 0)
        return;
    int error = class_of(status);
    if (error != MPI_SUCCESS && error != MPI_ERR_IN_STATUS)
        return drop_replaced(c);
#if defined(MC_HAS_FORTRAN) && !defined(OPEN_MPI)
    if (base == 1)
        base = index_base(c, n_done, indices);
#endif
    for (int k = 0; k < n_done; k++) { /* n_done may be MPI_UNDEFINED, which is negative */
        int64_t i = (int64_t)indices[k] - base;
        if (i < 0 || (uint64_t)i >= c->n)
            continue;
        if (error == MPI_SUCCESS)
            end_one(c, v, (uint64_t)i, (uint64_t)k);
        else
            end_by_status(c, v, (uint64_t)i, (uint64_t)k);
    }
}
