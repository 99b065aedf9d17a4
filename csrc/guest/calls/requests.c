#include "guest/calls/requests.h"

#include <stddef.h>

enum { FREE = 0, FILLING = 1 };

int mc_ops_shared;

static int is_shared(void)
{
    return __atomic_load_n(&mc_ops_shared, __ATOMIC_RELAXED);
}

void mc_ops_share(void)
{
    __atomic_store_n(&mc_ops_shared, 1, __ATOMIC_RELEASE);
}

/* Handles are consecutive small numbers, or addresses that differ by the size of a request. Both kinds are mapped so
   that handles of consecutive requests are in nearby buckets, and a window of receives touches few pages. */
static uint64_t home_of(const mc_op_table *table, uint64_t key)
{
    return (key ^ (key >> 6) ^ (key >> 13) ^ (key >> 24)) & table->mask;
}

static uint64_t next_number(mc_op_table *table)
{
    if (is_shared())
        return __atomic_fetch_add(&table->n_added, 1, __ATOMIC_ACQ_REL);
    uint64_t n = table->n_added;
    __atomic_store_n(&table->n_added, n + 1, __ATOMIC_RELAXED);
    return n;
}

static void count_taken(mc_op_table *table)
{
    if (is_shared())
        __atomic_fetch_add(&table->n_taken, 1, __ATOMIC_RELAXED);
    else
        __atomic_store_n(&table->n_taken, table->n_taken + 1, __ATOMIC_RELAXED);
}

static int reserve(uint64_t *slot)
{
    uint64_t expected = FREE;
    if (__atomic_load_n(slot, __ATOMIC_RELAXED) != FREE)
        return 0;
    if (is_shared())
        return __atomic_compare_exchange_n(slot, &expected, FILLING, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
    return 1;
}

typedef struct place {
    uint64_t *slot; /* NULL: no place */
    mc_op_row *row;
} place;

/* Find a free place for the key, and mark each full bucket that the search passes. */
static place reserve_near(mc_op_table *table, uint64_t home)
{
    for (uint64_t tried = 0; tried < MC_OP_BUCKETS_TRIED; tried++) {
        uint64_t b = (home + tried) & table->mask;
        mc_op_bucket *bucket = &table->buckets[b];
        for (int i = 0; i < MC_OPS_PER_BUCKET; i++) {
            if (reserve(&bucket->keys[i]))
                return (place){&bucket->keys[i], &table->rows[b * MC_OPS_PER_BUCKET + (uint64_t)i]};
        }
        __atomic_store_n(&bucket->is_passed, 1, __ATOMIC_RELEASE);
    }
    return (place){NULL, NULL};
}

/* Returns a mask: bit i is set if key i of the bucket equals `key`. There is no branch per key, because most lookups
   find nothing. */
static inline unsigned where(const mc_op_bucket *bucket, uint64_t key)
{
    unsigned bits = 0;
#define MC_LOOK_AT(i) bits |= (unsigned)(__atomic_load_n(&bucket->keys[i], __ATOMIC_RELAXED) == key) << (i)
    MC_LOOK_AT(0);
    MC_LOOK_AT(1);
    MC_LOOK_AT(2);
    MC_LOOK_AT(3);
    MC_LOOK_AT(4);
    MC_LOOK_AT(5);
    MC_LOOK_AT(6);
#undef MC_LOOK_AT
    return bits;
}

/* The newest row of the key that is older than `before`. */
static place newest(const mc_op_table *table, uint64_t key, uint64_t before)
{
    uint64_t home = home_of(table, key), newest_stamp = 0;
    place found = {NULL, NULL};
    for (uint64_t tried = 0; tried < MC_OP_BUCKETS_TRIED; tried++) {
        uint64_t b = (home + tried) & table->mask;
        mc_op_bucket *bucket = &table->buckets[b];
        for (unsigned bits = where(bucket, key); bits; bits &= bits - 1) {
            int i = __builtin_ctz(bits);
            if (__atomic_load_n(&bucket->keys[i], __ATOMIC_ACQUIRE) != key)
                continue;
            mc_op_row *row = &table->rows[b * MC_OPS_PER_BUCKET + (uint64_t)i];
            uint64_t stamp = __atomic_load_n(&row->stamp, __ATOMIC_RELAXED);
            if (stamp < before && (found.slot == NULL || stamp > newest_stamp)) {
                newest_stamp = stamp;
                found = (place){&bucket->keys[i], row};
            }
        }
        if (!__atomic_load_n(&bucket->is_passed, __ATOMIC_ACQUIRE))
            break;
    }
    return found;
}

int mc_op_add(mc_op_table *table, uint64_t key, const mc_op *op)
{
    place at = reserve_near(table, home_of(table, key));
    if (at.slot == NULL)
        return 0;
    at.row->op = *op;
    __atomic_store_n(&at.row->stamp, next_number(table), __ATOMIC_RELAXED);
    __atomic_store_n(at.slot, key, __ATOMIC_RELEASE);
    return 1;
}

int mc_op_take(mc_op_table *table, uint64_t key, uint64_t before, mc_op *op)
{
    place at = newest(table, key, before);
    if (at.slot == NULL)
        return 0;
    *op = at.row->op;
    __atomic_store_n(at.slot, (uint64_t)FREE, __ATOMIC_RELEASE);
    count_taken(table);
    return 1;
}

int mc_op_find(const mc_op_table *table, uint64_t key, mc_op *op)
{
    place at = newest(table, key, UINT64_MAX);
    if (at.slot == NULL)
        return 0;
    *op = at.row->op;
    return 1;
}

void mc_op_mark(mc_op_table *table, uint64_t key, uint32_t bits)
{
    place at = newest(table, key, UINT64_MAX);
    if (at.slot != NULL)
        at.row->op.kind |= bits;
}
