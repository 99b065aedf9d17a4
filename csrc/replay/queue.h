/* Events in the order of time, then kind, then id: a ring of buckets, and a heap for those beyond the ring's horizon. */
#ifndef RP_QUEUE_H
#define RP_QUEUE_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RP_ID_BITS = 32,
    RP_KIND_BITS = 4,
    RP_MAX_SHIFT = 64 - RP_ID_BITS - RP_KIND_BITS, /* time within a bucket has the rest of a key's bits */
    RP_MIN_BUCKETS = 128,
    RP_MAX_BUCKETS = 65536
};

typedef struct rp_event {
    uint64_t key; /* time within the bucket, kind, id */
    uint32_t payload;
    uint32_t next; /* in the bucket */
} rp_event;

typedef struct rp_far_event {
    int64_t t_ps;
    rp_event event;
} rp_far_event;

typedef struct rp_queue {
    uint32_t shift; /* a bucket is 2^shift ps long */
    uint32_t n_buckets;
    int64_t bucket; /* the current one, counted from time 0 */
    rp_event *now;  /* its events, sorted */
    uint32_t i_now, n_now, now_room;
    uint32_t *heads;  /* of the buckets' lists in `pool` */
    uint64_t *filled; /* a bit for each bucket */
    rp_event *pool;
    uint32_t pool_room, free, n_in_ring;
    rp_far_event *far; /* heap */
    uint32_t n_far, far_room;
    uint64_t shuffle;
} rp_queue;

struct rp_sim;

/* `horizon_ps`: most events come sooner than this. */
void rp_queue_open(struct rp_sim *sim, int64_t horizon_ps, int64_t n_expected);
void rp_push_later(struct rp_sim *sim, int64_t t_ps, rp_event event);
/* Make the next bucket that has events the current one; 0: there is none. */
int rp_queue_advance(struct rp_sim *sim);

#endif
