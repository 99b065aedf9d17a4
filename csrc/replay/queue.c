#include <stdlib.h>
#include <string.h>

#include "replay/sim.h"

void rp_queue_open(rp_sim *sim, int64_t horizon_ps, int64_t n_expected)
{
    rp_queue *q = &sim->queue;
    q->n_buckets = RP_MIN_BUCKETS;
    while (q->n_buckets < RP_MAX_BUCKETS && q->n_buckets < n_expected)
        q->n_buckets *= 2;
    while (q->shift < RP_MAX_SHIFT && ((int64_t)q->n_buckets << q->shift) < horizon_ps)
        q->shift++;
    q->free = RP_NIL;
    q->bucket = -1;
    q->shuffle = sim->set.shuffle;
    q->heads = rp_zeroed(sim, q->n_buckets, sizeof *q->heads);
    q->filled = rp_zeroed(sim, q->n_buckets / 64, sizeof *q->filled);
    memset(q->heads, 0xff, q->n_buckets * sizeof *q->heads);
}

static void grow_pool(rp_sim *sim)
{
    rp_queue *q = &sim->queue;
    uint32_t n_before = q->pool_room;
    q->pool = rp_doubled(sim, q->pool, &q->pool_room, sizeof *q->pool);
    for (uint32_t i = q->pool_room; i-- > n_before;) {
        q->pool[i].next = q->free;
        q->free = i;
    }
}

static void push_ring(rp_sim *sim, uint32_t place, rp_event event)
{
    rp_queue *q = &sim->queue;
    if (q->free == RP_NIL)
        grow_pool(sim);
    uint32_t i = q->free;
    q->free = q->pool[i].next;
    event.next = q->heads[place];
    q->pool[i] = event;
    q->heads[place] = i;
    q->filled[place / 64] |= UINT64_C(1) << place % 64;
    q->n_in_ring++;
}

static void push_far(rp_sim *sim, int64_t t_ps, rp_event event)
{
    rp_queue *q = &sim->queue;
    if (q->n_far == q->far_room)
        q->far = rp_doubled(sim, q->far, &q->far_room, sizeof *q->far);
    uint32_t i = q->n_far++;
    for (uint32_t up; i > 0 && q->far[up = (i - 1) / 2].t_ps > t_ps; i = up)
        q->far[i] = q->far[up];
    q->far[i] = (rp_far_event){t_ps, event};
}

static rp_event pop_far(rp_queue *q)
{
    rp_event top = q->far[0].event;
    rp_far_event last = q->far[--q->n_far];
    uint32_t i = 0;
    for (uint32_t down; (down = 2 * i + 1) < q->n_far; i = down) {
        if (down + 1 < q->n_far && q->far[down + 1].t_ps < q->far[down].t_ps)
            down++;
        if (last.t_ps <= q->far[down].t_ps)
            break;
        q->far[i] = q->far[down];
    }
    q->far[i] = last;
    return top;
}

static void push_now(rp_sim *sim, rp_event event)
{
    rp_queue *q = &sim->queue;
    if (q->n_now == q->now_room)
        q->now = rp_doubled(sim, q->now, &q->now_room, sizeof *q->now);
    q->now[q->n_now++] = event;
}

/* Insert event i into the sorted events before it. */
static void settle_event(rp_event *events, uint32_t i)
{
    rp_event event = events[i];
    for (; i > 0 && events[i - 1].key > event.key; i--)
        events[i] = events[i - 1];
    events[i] = event;
}

/* Insert an event into the current bucket, after the events already handled. */
static void insert_now(rp_sim *sim, rp_event event)
{
    rp_queue *q = &sim->queue;
    push_now(sim, event);
    settle_event(q->now + q->i_now, q->n_now - 1 - q->i_now);
}

void rp_push_later(rp_sim *sim, int64_t t_ps, rp_event event)
{
    rp_queue *q = &sim->queue;
    int64_t bucket = t_ps >> q->shift;
    if (bucket == q->bucket)
        insert_now(sim, event);
    else if (bucket - q->bucket < q->n_buckets)
        push_ring(sim, (uint32_t)bucket & (q->n_buckets - 1), event);
    else
        push_far(sim, t_ps, event);
}

/* Number of the ring's next bucket that has events, counted from time 0. */
static int64_t next_filled(const rp_queue *q)
{
    uint32_t mask = q->n_buckets - 1, from = (uint32_t)(q->bucket + 1) & mask, n_words = q->n_buckets / 64;
    uint32_t word = from / 64;
    uint64_t bits = q->filled[word] & (~UINT64_C(0) << from % 64);
    while (bits == 0) {
        word = word + 1 == n_words ? 0 : word + 1;
        bits = q->filled[word];
    }
    uint32_t place = word * 64 + (uint32_t)__builtin_ctzll(bits);
    return q->bucket + 1 + ((place - from) & mask);
}

static void swap_events(rp_event *a, rp_event *b)
{
    rp_event event = *a;
    *a = *b;
    *b = event;
}

static int by_key(const void *a, const void *b)
{
    uint64_t key_a = ((const rp_event *)a)->key, key_b = ((const rp_event *)b)->key;
    return (key_a > key_b) - (key_a < key_b);
}

/* Quicksort with inline comparisons. Parts that are still large after n_divisions divisions are left to the C
   library. */
static void sort_events(rp_event *events, uint32_t n, int n_divisions)
{
    while (n > 24 && n_divisions-- > 0) {
        uint64_t a = events[0].key, b = events[n / 2].key, c = events[n - 1].key;
        uint64_t pivot = a < b ? (b < c ? b : (a < c ? c : a)) : (a < c ? a : (b < c ? c : b));
        uint32_t i = 0, k = n - 1;
        for (;; i++, k--) {
            while (events[i].key < pivot)
                i++;
            while (events[k].key > pivot)
                k--;
            if (i >= k)
                break;
            swap_events(&events[i], &events[k]);
        }
        sort_events(events, i, n_divisions);
        events += i;
        n -= i;
    }
    if (n > 24)
        qsort(events, n, sizeof *events, by_key);
    for (uint32_t i = 1; i < n && n <= 24; i++)
        settle_event(events, i);
}

/* Prefetch the data that the event's handler will access first. */
static void prefetch_event(const rp_sim *sim, const rp_event *event)
{
    uint32_t kind = (uint32_t)(event->key >> RP_ID_BITS) & ((1u << RP_KIND_BITS) - 1), id = (uint32_t)event->key;
    if (kind == RP_EV_ARRIVE) {
        __builtin_prefetch(&sim->packets[event->payload], 1);
        __builtin_prefetch(&sim->in[id], 1);
        __builtin_prefetch(&sim->links[id >> sim->vl_shift]);
    } else if (kind == RP_EV_FREE) {
        __builtin_prefetch(&sim->links[id], 1);
        __builtin_prefetch((const char *)&sim->links[id] + 64, 1);
        __builtin_prefetch(&sim->out[id << sim->vl_shift], 1);
    }
}

static void take_bucket(rp_sim *sim, uint32_t place)
{
    rp_queue *q = &sim->queue;
    uint32_t last = RP_NIL, first = q->heads[place];
    for (uint32_t i = first; i != RP_NIL; i = q->pool[i].next) {
        push_now(sim, q->pool[i]);
        prefetch_event(sim, &q->pool[i]);
        q->n_in_ring--;
        last = i;
    }
    if (last != RP_NIL) {
        q->pool[last].next = q->free;
        q->free = first;
        q->heads[place] = RP_NIL;
        q->filled[place / 64] &= ~(UINT64_C(1) << place % 64);
    }
}

static void shuffle_events(rp_queue *q, uint32_t first, uint32_t n)
{
    rp_event *events = q->now + first;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t k = (uint32_t)(rp_mix(q->shuffle++) % i);
        swap_events(&events[i - 1], &events[k]);
    }
}

/* Shuffle the credit events and link wake-ups of one instant, whose order must not affect results. The order of other
   events is defined. */
static void shuffle_credits(rp_queue *q)
{
    for (uint32_t first = 0, end; first < q->n_now; first = end) {
        uint64_t when_and_kind = q->now[first].key >> RP_ID_BITS;
        for (end = first + 1; end < q->n_now && q->now[end].key >> RP_ID_BITS == when_and_kind;)
            end++;
        uint32_t kind = (uint32_t)when_and_kind & ((1u << RP_KIND_BITS) - 1);
        if (kind == RP_EV_CREDIT || kind == RP_EV_WAKE)
            shuffle_events(q, first, end - first);
    }
}

int rp_queue_advance(rp_sim *sim)
{
    rp_queue *q = &sim->queue;
    if (q->n_in_ring == 0 && q->n_far == 0)
        return 0;
    int64_t bucket = q->n_in_ring ? next_filled(q) : RP_NEVER;
    if (q->n_far && q->far[0].t_ps >> q->shift < bucket)
        bucket = q->far[0].t_ps >> q->shift;
    q->bucket = bucket;
    q->i_now = q->n_now = 0;
    take_bucket(sim, (uint32_t)bucket & (q->n_buckets - 1));
    while (q->n_far && q->far[0].t_ps >> q->shift == bucket)
        push_now(sim, pop_far(q));
    if (q->shuffle)
        shuffle_events(q, 0, q->n_now);
    /* Events arrive nearly in order, but a bucket's list is last in, first out. So reverse the list: then it is nearly
       sorted. */
    for (uint32_t i = 0, k = q->n_now - 1; i < k; i++, k--)
        swap_events(&q->now[i], &q->now[k]);
    sort_events(q->now, q->n_now, 48);
    if (q->shuffle)
        shuffle_credits(q);
    return 1;
}
