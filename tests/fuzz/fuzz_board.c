/* The board, which processes of other users write: everything that an agent reads there. */
#include "agent/agent.c"
#include "agent/schedule.c"
#include "fuzz.h"

#include <fcntl.h>

static const uint64_t NOW_NS = 1000000000000u;
static uint64_t own, other;

static uint64_t owner_of(int pid)
{
    mc_proc_stat stat = {0};
    mc_proc_read_stat(&stat, pid, 0);
    return mc_board_owner(pid, stat.start_ticks);
}

static void fill_slot(mc_slot *slot, uint64_t owner, uint64_t t_instant)
{
    slot->owner = owner;
    slot->heartbeat = NOW_NS;
    slot->n_ranks = 2;
    slot->want_period_ns = 200000000;
    slot->epoch = slot->t0 = slot->ack.epoch = t_instant;
    slot->t1 = slot->ack.t_resume = t_instant + 3200000;
    slot->booking = (mc_booking){NOW_NS + 150000000, NOW_NS + 160000000, 1};
    snprintf(slot->job_id, sizeof slot->job_id, "job");
}

static void start_agent(mc_agent *agent, mc_segment *segment)
{
    read_options(agent);
    agent->t_open = 1;
    agent->owner = own;
    agent->node->meter = MC_METER_BURST;
    agent->n_ranks = 1;
    /* no process: nothing may be signalled here */
    agent->ranks[0] = (mc_rank){.segment = segment, .pid = -1, .alive = 1};
    agent->is_common = 1;
    mc_schedule(agent, NOW_NS);
}

static void live_through_a_shutter(mc_agent *agent, bytes *input)
{
    mc_common *common = &agent->node->common;
    agent->i_instant += take(input, 1) & 1;
    look_around(agent, NOW_NS);
    mc_common_ask(agent, common->i_asked + 1, NOW_NS + (uint64_t)take(input, 4), NOW_NS + 1000000000u);
    mc_common_step(agent, NOW_NS);
    mc_common_decide(agent, common->i_asked, 1);
    mc_common_step(agent, NOW_NS);
    if (take(input, 1) & 1)
        mc_schedule(agent, NOW_NS);
    take_turn(agent, NOW_NS);
    if (agent->duty == MC_DUTY_PAUSE) {
        agent->wake = 1; /* no sleep */
        mc_pause_prepare(agent, (uint64_t)agent->i_target);
        mc_pause_do(agent);
    }
    mc_turn_verdict(agent, agent->turn.reservation.t1);
    mc_agent_adapt(agent, NOW_NS);
    mc_board_reap(agent->board);
}

/* The file as a newcomer finds it. */
static void open_file(const mc_board *board, bytes *input)
{
    char path[MC_PATH_LEN];
    mc_board *map;
    mc_slot *slot;
    size_t size = sizeof *board - (take(input, 1) % 4 == 1 ? (size_t)take(input, 2) % sizeof *board : 0);
    if (mc_board_path(path, sizeof path) != MC_OK)
        abort();
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, board, size) != (ssize_t)size)
        abort();
    close(fd);
    if (mc_board_open(&map) == MC_OK) {
        if (mc_board_current(map) && mc_board_claim(map, own, "fuzz", &slot) == MC_OK)
            mc_board_release(slot, own);
        mc_board_remove_if_empty(map);
        mc_board_unmap(map);
    }
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mc_segment segment;
    static mc_node node;
    static mc_agent empty;
    bytes input = {data, size};
    mc_agent *agent = malloc(sizeof *agent);
    own = own ? own : owner_of((int)getpid());
    other = other ? other : owner_of((int)getppid());
    *agent = empty;
    agent->board = calloc(1, sizeof *agent->board);
    agent->slot = &agent->board->slots[0];
    agent->node = &node;
    memset(&node, 0, offsetof(mc_node, shutters)); /* a megabyte behind it */
    agent->ranks = calloc(1, sizeof *agent->ranks);
    start_agent(agent, &segment);
    agent->board->magic = MC_MAGIC;
    agent->board->abi_version = MC_ABI_VERSION;
    agent->board->size_bytes = sizeof *agent->board;
    fill_slot(agent->slot, own, agent->t_instant);
    fill_slot(&agent->board->slots[1], other, agent->t_instant);
    damage(agent->board, sizeof *agent->board, &input, 16);
    if (take(&input, 1) % 8 == 1)
        open_file(agent->board, &input);
    for (int i = 0; i < 3; i++) {
        damage(agent->board->slots, 3 * sizeof(mc_slot), &input, 4);
        live_through_a_shutter(agent, &input);
    }
    free(agent->ranks);
    free(agent->board);
    free(agent);
    return 0;
}
