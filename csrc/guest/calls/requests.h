/* Data that are kept for a handle until the handle is completed or freed: receives in progress, persistent requests,
   matched messages, communicators. The tables are bounded and lock-free, in the process's own memory. This code does
   not use MPI. */
#ifndef MPICOLOC_REQUESTS_H
#define MPICOLOC_REQUESTS_H

#include <stdint.h>
#include <string.h>

enum {
    MC_OPS_PER_BUCKET = 7, /* the keys and is_passed together fill one cache line */
    MC_OP_BUCKETS_TRIED = 4,
};

/* Any MPI handle as a key. */
#define MC_KEY_OF(handle) mc_key_of(&(handle), sizeof(handle))

static inline uint64_t mc_key_of(const void *handle, size_t size)
{
    uint64_t key = 0;
    memcpy(&key, handle, size);
    return key;
}

typedef struct mc_op {
    union {
        uint64_t sent_bytes;
        struct mc_kept *kept; /* of a persistent collective */
    };
    uint64_t recv_bytes;
    struct mc_ranks *ranks; /* of the communicator; each mc_op holds a reference */
    int32_t peer;
    uint32_t kind;
} mc_op;

typedef struct mc_op_row {
    uint64_t stamp; /* number of rows added to the table before this one */
    mc_op op;
} mc_op_row;

typedef struct mc_op_bucket {
    uint64_t keys[MC_OPS_PER_BUCKET]; /* 0: free, 1: being filled */
    uint64_t is_passed;               /* 1: rows that belong here may be in the next bucket */
} __attribute__((aligned(64))) mc_op_bucket;

typedef struct mc_op_table {
    mc_op_bucket *buckets;
    mc_op_row *rows;
    uint64_t mask; /* number of buckets, a power of 2, minus 1 */
    uint64_t n_added, n_taken;
} mc_op_table;

#define MC_OP_TABLE(storage, name, n_buckets) \
    static mc_op_bucket name##_buckets[n_buckets]; \
    static mc_op_row name##_rows[(n_buckets)*MC_OPS_PER_BUCKET]; \
    storage mc_op_table name = {name##_buckets, name##_rows, (n_buckets)-1, 0, 0}

/* Let several threads use the tables at once. Until this call, tables are used without atomic instructions. */
void mc_ops_share(void);
extern int mc_ops_shared;

/* Add an operation to the table. Returns 0 if there is no room. */
int mc_op_add(mc_op_table *table, uint64_t key, const mc_op *op);

/* Number of rows added so far. A thread reads this number before it completes a handle. Once the library has freed the
   handle, another thread can get the same handle and add a row for it. So only rows that are older than this number
   belong to the completion. */
static inline uint64_t mc_ops_now(const mc_op_table *table)
{
    return __atomic_load_n(&table->n_added, __ATOMIC_ACQUIRE);
}

static inline int mc_ops_any(const mc_op_table *table)
{
    return __atomic_load_n(&table->n_added, __ATOMIC_ACQUIRE) != __atomic_load_n(&table->n_taken, __ATOMIC_RELAXED);
}

/* Remove the newest row of the key that is older than `before`. Returns 0 if there is none. */
int mc_op_take(mc_op_table *table, uint64_t key, uint64_t before, mc_op *op);

/* Find the newest row of the key without removing it. */
int mc_op_find(const mc_op_table *table, uint64_t key, mc_op *op);

/* Set these bits of the row's kind. */
void mc_op_mark(mc_op_table *table, uint64_t key, uint32_t bits);

#endif
