/* Segments and node files of one's own job, damaged: what the agent and the readers of profiles make of them. */
#include "agent/step.c"
#include "fuzz.h"
#include "common/table.h"

#include <fcntl.h>
#include <unistd.h>

typedef struct area {
    size_t offset, size;
} area;

enum { I_LAST = MC_N_SMALL_LANES - 1 }; /* behind it the memory ends, which the sanitizer knows */

/* Where something is decided; counts of calls and bytes are only added up. */
static const area areas[] = {
    {0, offsetof(mc_segment, modules)},
    {offsetof(mc_segment, sampling), sizeof(mc_sampling)},
    {offsetof(mc_segment, lanes), sizeof(mc_lane_head)},
    {offsetof(mc_segment, lanes) + offsetof(mc_lane, cycles), 16 * sizeof(mc_cycle_row)},
    {offsetof(mc_segment, small_lanes) + I_LAST * sizeof(mc_small_lane), sizeof(mc_small_lane)},
};
enum { N_AREAS = sizeof areas / sizeof *areas };

static void fill(mc_segment *segment)
{
    segment->magic = MC_MAGIC;
    segment->abi_version = MC_ABI_VERSION;
    segment->size_bytes = sizeof *segment;
    segment->pid = (int32_t)getpid();
    segment->local_size = 2;
    segment->state = MC_RANK_RUNNING;
    segment->sampling.n_windows = 3;
    segment->sampling.windows[1].verdict = MC_VERDICT_VALID;
    mc_lane_head *head = &segment->lanes[0].head;
    head->n_pending = 2;
    head->pending[0] = (mc_pending){1, 5, {10, 10, 1}};
    head->pending[1] = (mc_pending){2, 5, {10, 10, 1}};
    segment->lanes[0].cycles[5] = (mc_cycle_row){.key = 1, .alone = {100, 100, 2}};
}

/* As the agent finds it: a file, perhaps short. */
static void write_file(const mc_segment *segment, const char *path, bytes *input)
{
    size_t n_missing = take(input, 1) % 4 == 1 ? (size_t)take(input, 4) % sizeof *segment : 0;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, segment, sizeof *segment - n_missing) < 0)
        abort();
    close(fd);
}

/* A co-runner whose slot changes while it is there. */
static void meet(mc_agent *agent, bytes *input)
{
    mc_slot *slot = &agent->view.board->slots[1];
    mc_neighbour other = {.i_slot = 1, .owner = 9};
    cpu_set_t own;
    memset(slot, 0, sizeof *slot);
    memset(&own, 0xff, sizeof own);
    note_corunner(agent, &other, &own, 1);
    slot->cpu_ns = 1000000000u;
    memset(slot->cpu_mask, 0xff, 1);
    damage(slot, sizeof *slot, input, (int)take(input, 1) % 4);
    note_corunner(agent, &other, &own, 1000000000u);
}

static void serve(mc_agent *agent, bytes *input)
{
    mc_job_ranks *ranks = &agent->ranks;
    mc_job_ranks_check(ranks, 1);
    mc_view_publish(&agent->view, ranks, (mc_press_offer){0, 0}, 1);
    for (int i = 0; i < ranks->n; i++) {
        mc_rank *rank = &ranks->rows[i];
        mc_proc_thread thread;
        rank->has_handler = mc_proc_catches((int)getpid(), rank->segment->gate.signal);
        mc_proc_read_thread(&thread, (int)getpid(), (int)getpid(), rank->segment->gate.signal);
        rank->alive = 1;
    }
    begin_own(agent, MC_TAKE_PARTIAL, 1);
    mc_agent_judge(agent, agent->own.reservation.t1);
    meet(agent, input);
    agent->view.n_others = 1;
    agent->node->meter = MC_METER_BURST;
    adapt(agent, 1000000000000u);
}

static void be_agent(mc_segment *segment, bytes *input)
{
    static mc_board board;
    static mc_node node;
    char path[MC_PATH_LEN];
    mc_agent *agent = calloc(1, sizeof *agent);
    mc_job_ranks *ranks = &agent->ranks;
    int is_file = take(input, 1) % 8 == 1;
    agent->node = &node;
    memset(&node, 0, offsetof(mc_node, shutters)); /* a megabyte behind it */
    damage(agent->node, offsetof(mc_node, shutters), input, (int)take(input, 1) % 4);
    if (mc_job_ranks_open(ranks, "fuzz") != MC_OK)
        abort();
    agent->view.board = &board;
    agent->view.slot = &board.slots[0];
    mc_lengths_open(&agent->lengths, 0);
    agent->meter = (mc_meter){.ops = &mc_meter_burst, .node = agent->node, .ranks = &agent->ranks};
    mc_agent_plan(agent, 1000000000u);
    if (is_file && mc_shm_path(path, sizeof path, "fuzz", "0.seg") == MC_OK) {
        write_file(segment, path, input);
        mc_job_ranks_find(ranks);
        unlink(path);
    }
    if (ranks->n == 0)
        ranks->rows[ranks->n++] = (mc_rank){.segment = segment, .pid = segment->pid, .alive = 1};
    serve(agent, input);
    if (ranks->rows[0].segment == segment)
        ranks->n = 0;
    mc_job_ranks_close(ranks);
    free(agent);
}

/* As for a profile; all lanes take a while. */
static void settle(mc_segment *segment, int is_all)
{
    if (is_all)
        mc_segment_settle(segment);
    for (int i = 0; i < MC_N_ALL_LANES; i += MC_N_ALL_LANES - 1) {
        mc_tables tables = mc_lane_tables(segment, i);
        mc_pending_settle(&segment->sampling, &tables, 0);
        mc_pending_settle(&segment->sampling, &tables, 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mc_segment *segment;
    bytes input = {data, size};
    segment = segment ? segment : calloc(1, sizeof *segment);
    for (int i = 0; i < N_AREAS; i++)
        memset((char *)segment + areas[i].offset, 0, areas[i].size);
    fill(segment);
    int n_areas = (int)take(&input, 1) % 8, is_all = take(&input, 1) == 7;
    for (int i = 0; i < n_areas; i++) {
        const area *hit = &areas[take(&input, 1) % N_AREAS];
        damage((char *)segment + hit->offset, hit->size, &input, 1);
    }
    be_agent(segment, &input);
    settle(segment, is_all);
    return 0;
}
