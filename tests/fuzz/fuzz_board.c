/* The board, which processes of other users write: everything that an agent reads there. */
#include "agent/step.c"
#include "common/options.h"
#include "fuzz.h"

#include <fcntl.h>
#include <unistd.h>

static const uint64_t NOW_NS = 1000000000000u;
static uint64_t own, other;

static uint64_t owner_of(int pid)
{
    mc_proc_stat stat = {0};
    mc_proc_read_stat(&stat, pid);
    return mc_board_owner(pid, stat.start_ticks);
}

static void fill_slot(mc_slot *slot, uint64_t owner, uint64_t t_instant)
{
    slot->owner = owner;
    slot->heartbeat = NOW_NS;
    slot->n_ranks = 2;
    slot->want_period_ns = 200000000;
    slot->reservation.epoch = slot->reservation.t0 = slot->ack.epoch = t_instant;
    slot->reservation.t1 = slot->ack.t_resume = t_instant + 3200000;
    slot->booking = (mc_booking){NOW_NS + 150000000, NOW_NS + 160000000, 1};
    snprintf(slot->job_id, sizeof slot->job_id, "job");
}

static void start_agent(mc_agent *agent, mc_segment *segment)
{
    agent->t_open = 1;
    mc_lengths_open(&agent->lengths, agent->t_open);
    agent->view.owner = own;
    agent->meter = (mc_meter){.ops = &mc_meter_burst, .node = agent->node, .ranks = &agent->ranks};
    agent->node->meter = MC_METER_BURST;
    agent->ranks.n = 1;
    /* no process: nothing may be signalled here */
    agent->ranks.rows[0] = (mc_rank){.segment = segment, .pid = -1, .alive = 1};
    agent->ranks.is_multi_node = 1;
    mc_agent_plan(agent, NOW_NS);
}

static void live_through_a_shutter(mc_agent *agent, bytes *input)
{
    mc_common *common = &agent->node->common;
    agent->schedule.i_instant += take(input, 1) & 1;
    read_board(agent, NOW_NS);
    mc_common_ask(agent, common->i_asked + 1, NOW_NS + (uint64_t)take(input, 4), NOW_NS + 1000000000u,
                  (uint64_t)take(input, 2));
    agree_with_nodes(agent, NOW_NS);
    mc_common_decide(agent, common->i_asked, 1, take(input, 1) & 1);
    agree_with_nodes(agent, NOW_NS);
    if (take(input, 1) & 1)
        mc_agent_plan(agent, NOW_NS);
    decide(agent, NOW_NS);
    if (agent->duty == MC_DUTY_PAUSE) {
        agent->wake = 1; /* no sleep */
        pause_ranks(agent);
    }
    mc_agent_judge(agent, agent->own.reservation.t1);
    adapt(agent, NOW_NS);
}

/* A board on which this process has two jobs, by two descriptions of one file. In a folder of another name, so that
   nobody who opens the file of the test is handed this one. */
static mc_board *open_shared(mc_slot **slot)
{
    static mc_board *boards[2];
    static mc_slot *slots[2];
    char dir[MC_PATH_LEN], path[MC_PATH_LEN], before[MC_PATH_LEN];
    if (!boards[0]) {
        snprintf(before, sizeof before, "%s", mc_option_text(MC_OPT_SHM_DIR));
        snprintf(dir, sizeof dir, "%.1000s/.", before);
        setenv("MPICOLOC_SHM_DIR", dir, 1);
        for (int i = 0; i < 2; i++)
            if (mc_board_open(&boards[i]) != MC_OK || mc_board_claim(boards[i], own, "fuzz", &slots[i]) != MC_OK)
                abort();
        if (mc_board_path(path, sizeof path) != MC_OK || unlink(path) != 0)
            abort();
        setenv("MPICOLOC_SHM_DIR", before, 1);
    }
    *slot = slots[0];
    return boards[0];
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
            mc_board_release(map, slot);
        mc_board_unmap(map);
    }
    mc_board_remove_if_empty();
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
    agent->view.board = open_shared(&agent->view.slot);
    memset(agent->view.board, 0, sizeof *agent->view.board);
    agent->node = &node;
    memset(&node, 0, offsetof(mc_node, shutters)); /* a megabyte behind it */
    agent->ranks.rows = calloc(1, sizeof *agent->ranks.rows);
    start_agent(agent, &segment);
    agent->view.board->magic = MC_MAGIC;
    agent->view.board->abi_version = MC_ABI_VERSION;
    agent->view.board->size_bytes = sizeof *agent->view.board;
    fill_slot(agent->view.slot, own, agent->schedule.t_instant);
    fill_slot(&agent->view.board->slots[1], other, agent->schedule.t_instant);
    damage(agent->view.board, sizeof *agent->view.board, &input, 16);
    if (take(&input, 1) % 8 == 1)
        open_file(agent->view.board, &input);
    for (int i = 0; i < 3; i++) {
        damage(agent->view.board->slots, 3 * sizeof(mc_slot), &input, 4);
        live_through_a_shutter(agent, &input);
    }
    free(agent->ranks.rows);
    free(agent);
    return 0;
}
