/* A rank's threads, its node agent and two neighbours on the board, all in one process for the thread sanitizer. Nobody
   pauses this rank: the sanitizer bears no handler that comes at any instruction. Exit code: number of failed checks. */
#define _GNU_SOURCE
#include "../support/check.h"
#include "../support/one_map.h"

#include "agent/agent.h"
#include "agent/thread.h"
#include "guest/hooks.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_S = 60, N_THREADS = 3, N_NEIGHBOURS = 2, N_KINDS = 40, STAY_MS = 3000 };

static const uint64_t RUN_NS = 5000000000u, LONGEST_NS = 40000000000u;

static int is_over;

static int over(void)
{
    return __atomic_load_n(&is_over, __ATOMIC_ACQUIRE);
}

static void nap_ms(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000l};
    nanosleep(&t, NULL);
}

/* On a busy machine shutters come late. */
static int has_enough(const mc_node *node)
{
    uint64_t age_ns = mc_now_ns() - mc_the_segment->t_init;
    return age_ns > RUN_NS && (__atomic_load_n(&node->n_shutters, __ATOMIC_ACQUIRE) > 1 || age_ns > LONGEST_NS);
}

/* Calls from several libraries, whose places all threads look for at once. */
static void *be_thread(void *node)
{
    void *sites[] = {(void *)(uintptr_t)nap_ms, dlsym(RTLD_DEFAULT, "cos"), dlsym(RTLD_DEFAULT, "qsort"),
                     dlsym(RTLD_DEFAULT, "pthread_create"), (void *)(uintptr_t)mc_mix};
    for (uint32_t i = 0; !over(); i++) {
        mc_frame frame;
        char *site = (char *)sites[i % 5] + i % N_KINDS;
        if (mc_enter(&frame, 1 + i % 7, site))
            mc_leave(&frame, i % 1000, i % 300);
        if (i % 8 == 0)
            nap_ms(1);
        if (node && i % 128 == 0 && has_enough(node))
            __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* What the slots of all others say of shutters is obeyed, in word only. */
static void answer(mc_board *board, mc_slot *own)
{
    for (int i = 0; i < MC_N_SLOTS; i++) {
        mc_slot *slot = &board->slots[i];
        mc_reservation next;
        mc_booking booking;
        mc_ack ack;
        (void)mc_slot_booking(slot, &booking);
        if (slot == own || mc_slot_reservation(slot, &next) != MC_OK || next.epoch == 0)
            continue;
        /* never half of one, and half of another */
        CHECK(next.t0 == next.epoch && next.t1 > next.t0);
        CHECK(next.request.n_bubbles == 0 || next.request.n_bubbles == next.epoch);
        CHECK(next.request.shares[MC_N_SHARE_WORDS - 1] == next.request.n_bubbles);
        if (mc_slot_ack(own, next.epoch, &ack) != MC_OK)
            mc_slot_acknowledge(own, &(mc_ack){.epoch = next.epoch, .t_told = next.t0, .t_resume = next.t1});
    }
}

static void stay(mc_board *board, mc_slot *slot)
{
    char name[MC_NAME_LEN];
    mc_neighbour live[MC_N_SLOTS];
    uint64_t end = mc_now_ns() + STAY_MS * 1000000ull;
    __atomic_store_n(&slot->n_ranks, 1, __ATOMIC_RELEASE);
    for (uint64_t now = mc_now_ns(); now < end && !over(); now = mc_now_ns()) {
        __atomic_store_n(&slot->heartbeat, now, __ATOMIC_RELEASE);
        int n = mc_board_live(board, now, live);
        (void)mc_board_period(board, live, n, 200000000);
        for (int i = 0; i < n; i++)
            mc_slot_name(&board->slots[live[i].i_slot], name);
        mc_press_request request = {now % 9000, now, {0}};
        request.shares[MC_N_SHARE_WORDS - 1] = now;
        mc_slot_reserve(slot, &(mc_reservation){now, now, now + 1000000, 0, request});
        mc_slot_book(slot, &(mc_booking){now + 900000000u, now + 901000000u, now / 1000 % 2});
        answer(board, slot);
        nap_ms(1);
    }
    mc_slot_book(slot, &(mc_booking){0, 0, 0});
}

/* A job that comes and goes, in the name of a process that lives. */
static void *be_neighbour(void *data)
{
    mc_board *board;
    mc_slot *slot;
    mc_proc_stat stat;
    int pid = *(int *)data;
    CHECK(mc_board_open(&board) == MC_OK && mc_proc_read_stat(&stat, pid) == MC_OK);
    uint64_t owner = mc_board_owner(pid, stat.start_ticks);
    while (!over()) {
        CHECK(mc_board_claim(board, owner, "a neighbour that comes and goes", &slot) == MC_OK);
        stay(board, slot);
        mc_board_release(board, slot);
    }
    mc_board_unmap(board);
    return NULL;
}

static int sleeping_child(void)
{
    int pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(2 * LIMIT_S);
    for (;;)
        pause();
}

static mc_node *map_node(void)
{
    char path[MC_PATH_LEN];
    void *map = NULL;
    CHECK(mc_shm_path(path, sizeof path, "t", "node") == MC_OK);
    while (mc_shm_map(&map, path, sizeof(mc_node), 0) != MC_OK)
        nap_ms(10);
    return map;
}

static void check_node(mc_node *node)
{
    char path[MC_PATH_LEN];
    mc_agent_thread_stop();
    fprintf(stderr, "%d shutters, %d co-runners, %d modules\n", (int)node->n_shutters, (int)node->n_corunners,
            (int)mc_the_segment->n_modules);
    CHECK(node->n_shutters > 1);
    CHECK(node->n_corunners > 0 && strcmp(node->corunners[0].job_id, "a neighbour that comes and goes") == 0);
    mc_shm_unmap(node, sizeof *node);
    CHECK(mc_shm_path(path, sizeof path, "t", "node") == MC_OK && unlink(path) == 0);
}

int main(void)
{
    int pids[N_NEIGHBOURS];
    pthread_t threads[N_THREADS + N_NEIGHBOURS];
    char path[MC_PATH_LEN];
    mc_identity identity = {"t", "job t", "none", 0, 1, 0, 1, 1, MC_MODE_PRELOAD};
    alarm(LIMIT_S);
    setenv("MPICOLOC_SHUTTER_MAX_S", "0", 1);
    setenv("MPICOLOC_METER", "burst", 1);
    for (int i = 0; i < N_NEIGHBOURS; i++)
        pids[i] = sleeping_child();
    CHECK(mc_start(&identity) == MC_OK && mc_agent_thread_start("t", "job t") == MC_OK);
    for (int i = 0; i < N_THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, be_thread, NULL) == 0);
    for (int i = 0; i < N_NEIGHBOURS; i++)
        CHECK(pthread_create(&threads[N_THREADS + i], NULL, be_neighbour, &pids[i]) == 0);
    mc_node *node = map_node();
    be_thread(node); /* the agent looks at the first thread's tables, too */
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < N_THREADS + N_NEIGHBOURS; i++)
        pthread_join(threads[i], NULL);
    check_node(node);
    mc_stop(MC_RANK_FINALIZING);
    for (int i = 0; i < N_NEIGHBOURS; i++)
        kill(pids[i], SIGKILL);
    CHECK(mc_shm_path(path, sizeof path, "t", "0.seg") == MC_OK && unlink(path) == 0);
    return n_failed;
}
