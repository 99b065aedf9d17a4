/* A hostile neighbour: claims all free slots of the node's board and reserves every instant of its grid, and further ones, for
   itself, so that the others stand still as long as they ever would. Ends after argv[1] seconds. */
#include "common/board/board.h"
#include "common/proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEP_NS = 500000, AHEAD_NS = 250000000 };

static const uint64_t LENGTHS_NS[] = {4000000, 40000000, 4000000, 100000000};
enum { N_LENGTHS = sizeof LENGTHS_NS / sizeof *LENGTHS_NS };

static mc_slot *slots[MC_N_SLOTS];
static int n_slots;

/* What all agents of the node compute: the longest wish. */
static uint64_t period_of(mc_board *board)
{
    mc_neighbour live[MC_N_SLOTS];
    int n = mc_board_live(board, mc_now_ns(), live);
    return mc_board_period(board, live, n, 200000000);
}

static uint64_t next_instant(uint64_t now, uint64_t period_ns)
{
    uint64_t i = now / period_ns;
    while (mc_instant_ns(i, period_ns) <= now)
        i++;
    return mc_instant_ns(i, period_ns);
}

static void forge(mc_board *board, uint64_t now)
{
    static uint64_t booked;
    uint64_t t0 = next_instant(now, period_of(board)), length_ns = LENGTHS_NS[t0 / 1000 % N_LENGTHS];
    booked = booked > now ? booked : now + AHEAD_NS;
    for (int i = 0; i < n_slots; i++) {
        mc_reservation seen;
        uint64_t t = i ? t0 : booked; /* the first slot has instants of its own, between those of the grid */
        __atomic_store_n(&slots[i]->heartbeat, now, __ATOMIC_RELEASE);
        if (mc_slot_reservation(slots[i], &seen) != MC_OK || seen.epoch != t)
            mc_slot_reserve(slots[i], &(mc_reservation){.epoch = t, .t0 = t, .t1 = t + length_ns});
    }
    mc_slot_book(slots[0], &(mc_booking){booked, booked + length_ns, 1});
}

int main(int argc, char **argv)
{
    mc_board *board;
    mc_proc_stat self;
    int never = 0;
    if (argc < 2 || mc_board_open(&board) != MC_OK || mc_proc_read_stat(&self, (int)getpid()) != MC_OK)
        return 1;
    uint64_t owner = mc_board_owner((int)getpid(), self.start_ticks),
             end = mc_now_ns() + (uint64_t)(atof(argv[1]) * 1e9);
    while (n_slots < MC_N_SLOTS / 2 && mc_board_claim(board, owner, "forger", &slots[n_slots]) == MC_OK) {
        __atomic_store_n(&slots[n_slots]->t_joined, 1, __ATOMIC_RELEASE);
        __atomic_store_n(&slots[n_slots]->n_ranks, 1, __ATOMIC_RELEASE);
        n_slots++;
    }
    printf("%d\n", n_slots);
    fflush(stdout);
    while (n_slots && mc_now_ns() < end) {
        forge(board, mc_now_ns());
        mc_sleep_until(mc_now_ns() + STEP_NS, &never);
    }
    return n_slots == 0;
}
