/* The table of requests: what is added is found once, whoever completes it and whenever handles come back. Exit code:
   number of failed checks. */
#include "../support/check.h"
#include "guest/calls/requests.h"

#include <pthread.h>
#include <stdlib.h>

MC_OP_TABLE(static, small, 16);
MC_OP_TABLE(static, table, 1024);

enum { N_SMALL = 16 * MC_OPS_PER_BUCKET };

static mc_op op_of(uint64_t bytes)
{
    return (mc_op){.recv_bytes = bytes, .kind = 1};
}

static void test_one(void)
{
    mc_op op = op_of(7), found;
    CHECK_EQUAL(mc_ops_any(&small), 0);
    CHECK_EQUAL(mc_op_add(&small, 0x98000001, &op), 1);
    CHECK_EQUAL(mc_ops_any(&small), 1);
    CHECK_EQUAL(mc_op_take(&small, 0x98000002, UINT64_MAX, &found), 0);
    mc_op_mark(&small, 0x98000001, 16);
    CHECK_EQUAL(mc_op_find(&small, 0x98000001, &found), 1);
    CHECK_EQUAL(mc_op_take(&small, 0x98000001, UINT64_MAX, &found), 1);
    CHECK_EQUAL(found.recv_bytes, 7);
    CHECK_EQUAL(found.kind, 17);
    CHECK_EQUAL(mc_op_take(&small, 0x98000001, UINT64_MAX, &found), 0);
    CHECK_EQUAL(mc_ops_any(&small), 0);
}

/* The library gave the handle to somebody else before its completer came to look it up. */
static void test_handle_back_early(void)
{
    mc_op first = op_of(1), second = op_of(2), found;
    mc_op_add(&small, 0x5000, &first);
    uint64_t before = mc_ops_now(&small);
    mc_op_add(&small, 0x5000, &second);
    CHECK_EQUAL(mc_op_find(&small, 0x5000, &found), 1);
    CHECK_EQUAL(found.recv_bytes, 2);
    CHECK_EQUAL(mc_op_take(&small, 0x5000, before, &found), 1);
    CHECK_EQUAL(found.recv_bytes, 1);
    CHECK_EQUAL(mc_op_take(&small, 0x5000, before, &found), 0);
    CHECK_EQUAL(mc_op_take(&small, 0x5000, UINT64_MAX, &found), 1);
    CHECK_EQUAL(found.recv_bytes, 2);
}

/* Handles in a row and addresses at any distance: what was accepted is found, what was not is refused. */
static void test_full(uint64_t first, uint64_t step)
{
    static char is_in[4 * N_SMALL];
    unsigned n_in = 0, n_out = 0;
    mc_op op, found;
    for (unsigned i = 0; i < 4 * N_SMALL; i++) {
        op = op_of(i);
        n_in += (unsigned)(is_in[i] = (char)mc_op_add(&small, first + i * step, &op));
    }
    CHECK_EQUAL(n_in <= N_SMALL, 1);
    CHECK_EQUAL(n_in >= N_SMALL / 2, 1);
    for (unsigned i = 0; i < 4 * N_SMALL; i++) {
        int is_found = mc_op_take(&small, first + i * step, UINT64_MAX, &found);
        CHECK_EQUAL(is_found, is_in[i]);
        n_out += (unsigned)is_found;
        if (is_found)
            CHECK_EQUAL(found.recv_bytes, i);
    }
    CHECK_EQUAL(n_out, n_in);
    CHECK_EQUAL(mc_ops_any(&small), 0);
}

/* Threads hand handles to each other through mailboxes: the one that posted is not the one that completes. A handle is
   free again, for anybody, before its completer has looked it up. */
enum { N_THREADS = 4, N_HANDLES = 64, N_ROUNDS = 20000 };

static uint64_t is_used[N_HANDLES]; /* the library's own view */
static uint64_t mailbox[N_HANDLES];
static uint64_t n_posted, n_done, sum_posted, sum_done;

static uint64_t get_handle(uint64_t *random)
{
    for (;;) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        uint64_t i = (*random >> 33) % N_HANDLES, expected = 0;
        if (__atomic_compare_exchange_n(&is_used[i], &expected, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return i;
        for (uint64_t k = 0; k < N_HANDLES; k++) { /* nothing is free: complete what others have posted */
            uint64_t posted = __atomic_exchange_n(&mailbox[k], 0, __ATOMIC_ACQ_REL);
            if (posted == 0)
                continue;
            mc_op op;
            uint64_t before = mc_ops_now(&table);
            __atomic_store_n(&is_used[k], 0, __ATOMIC_RELEASE);
            CHECK_EQUAL(mc_op_take(&table, 0x1000 + 64 * k, before, &op), 1);
            CHECK_EQUAL(op.recv_bytes, posted);
            __atomic_add_fetch(&sum_done, op.recv_bytes, __ATOMIC_RELAXED);
            __atomic_add_fetch(&n_done, 1, __ATOMIC_RELAXED);
        }
    }
}

static void *post(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument;
    for (uint64_t round = 1; round <= N_ROUNDS; round++) {
        uint64_t i = get_handle(&random);
        mc_op op = op_of(random >> 20 | 1);
        CHECK_EQUAL(mc_op_add(&table, 0x1000 + 64 * i, &op), 1);
        __atomic_add_fetch(&sum_posted, op.recv_bytes, __ATOMIC_RELAXED);
        __atomic_add_fetch(&n_posted, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&mailbox[i], op.recv_bytes, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[N_THREADS];
    mc_op op;
    mc_ops_share();
    for (uintptr_t i = 0; i < N_THREADS; i++)
        pthread_create(&threads[i], NULL, post, (void *)(i + 1));
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    for (uint64_t k = 0; k < N_HANDLES; k++) {
        if (mailbox[k] == 0)
            continue;
        CHECK_EQUAL(mc_op_take(&table, 0x1000 + 64 * k, UINT64_MAX, &op), 1);
        sum_done += op.recv_bytes;
        n_done++;
    }
    CHECK_EQUAL(n_posted, N_THREADS * N_ROUNDS);
    CHECK_EQUAL(n_done, n_posted);
    CHECK_EQUAL(sum_done, sum_posted);
    CHECK_EQUAL(mc_ops_any(&table), 0);
}

int main(void)
{
    test_one();
    test_handle_back_early();
    test_full(0x98000000, 1);
    test_full(0x7f0000001000, 64);
    test_full(0x7f0000001000, 640);
    test_full(0x7f0000001000, 4096);
    test_threads();
    return n_failed > 100 ? 100 : n_failed;
}
