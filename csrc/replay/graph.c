/* Ranks whose program is a graph, executed as in LogGOPSim: an operation is ready when all operations on which it
   depends have ended, or have started if it depends only on their start. Each processor of the rank executes its ready
   operations one after another. */
#include <string.h>

#include "replay/sim.h"

static rp_processor *processor_of(const rp_sim *sim, const rp_rank *rank, uint32_t row)
{
    return &sim->processors[rank->first_processor + (uint32_t)rank->program[row].request];
}

/* Mark the rank as active. It remains active until `rest` has been called as often as `wake`. */
static void wake(rp_sim *sim, rp_rank *rank)
{
    if (rank->n_open++ == 0 && rank->is_blocked) {
        rank->is_blocked = 0;
        sim->job_states[rank->job].n_active++;
    }
}

static void rest(rp_sim *sim, rp_rank *rank)
{
    if (--rank->n_open > 0)
        return;
    if (rank->n_left == 0) {
        rp_rank_ended(sim, rank);
    } else {
        rank->is_blocked = 1;
        rp_deactivate(sim, (uint32_t)rank->job);
    }
}

/* Append a ready row to its processor's queue. A ready row needs no dependency count, so the link to the next row takes
   its place. */
static void append(const rp_sim *sim, const rp_rank *rank, uint32_t row)
{
    rp_processor *cpu = processor_of(sim, rank, row);
    uint32_t *next = sim->needs + rank->first_row;
    next[row] = RP_NIL;
    *(cpu->head == RP_NIL ? &cpu->head : &next[cpu->tail]) = row;
    cpu->tail = row;
}

/* Queue the processor for `serve_lined_up`. If the processor were served at once, a chain of dependencies would recurse
   once for each processor in the chain. */
static void line_up(rp_sim *sim, rp_rank *rank, rp_processor *cpu)
{
    uint32_t number = (uint32_t)(cpu - sim->processors);
    cpu->is_busy = 1;
    cpu->next = RP_NIL;
    *(rank->line_head == RP_NIL ? &rank->line_head : &sim->processors[rank->line_tail].next) = number;
    rank->line_tail = number;
}

static void enqueue(rp_sim *sim, rp_rank *rank, uint32_t row)
{
    rp_processor *cpu = processor_of(sim, rank, row);
    append(sim, rank, row);
    if (!cpu->is_busy)
        line_up(sim, rank, cpu);
}

/* Reduce the dependency count of the operations that depend on the start or the end of this operation. */
static void release(rp_sim *sim, rp_rank *rank, uint32_t row, int is_begin)
{
    const rp_op *op = &rank->program[row];
    uint32_t *needs = sim->needs + rank->first_row;
    if (op->flags & RP_MARKED)
        rp_record_mark(sim, rank, 2 * (int64_t)row + !is_begin);
    for (uint32_t i = row + 1; i < rank->n_ops && rank->program[i].kind == RP_THEN; i++)
        if (rank->program[i].n == is_begin && --needs[rank->program[i].request] == 0)
            enqueue(sim, rank, (uint32_t)rank->program[i].request);
}

static void ended(rp_sim *sim, rp_rank *rank, uint32_t row)
{
    rank->n_left--;
    release(sim, rank, row, 0);
}

/* Start the operation. Returns its processor time. For a receive, this is the time needed after the data have arrived;
   the first call posts the receive and returns -1. */
static int64_t begin(rp_sim *sim, rp_rank *rank, uint32_t row)
{
    const rp_op *op = &rank->program[row];
    if (sim->slots[rank->slots + row] == RP_RECEIVED)
        return sim->set.recv_overhead_ps;
    rank->i_op = (int64_t)row + 1;
    release(sim, rank, row, 1);
    if (op->kind == RP_COMPUTE)
        return rp_compute_ps(sim, rank, op);
    rp_do_message(sim, rank, op);
    return op->kind == RP_SEND ? sim->set.send_overhead_ps : -1;
}

static void serve(rp_sim *sim, rp_rank *rank, rp_processor *cpu)
{
    while (cpu->head != RP_NIL && sim->status == RP_RUNNING) {
        uint32_t row = cpu->head;
        cpu->head = sim->needs[rank->first_row + row];
        int64_t ps = begin(sim, rank, row);
        if (ps > 0) {
            wake(sim, rank);
            rp_push(sim, sim->now + ps, RP_EV_ROW, rank->first_row + row, (uint32_t)(rank - sim->ranks));
            return;
        }
        if (ps == 0 && sim->slots[rank->slots + row] != RP_PENDING)
            ended(sim, rank, row);
    }
    cpu->is_busy = 0;
}

static void serve_lined_up(rp_sim *sim, rp_rank *rank)
{
    if (rank->is_serving) /* called for a receive that completed as soon as it was posted */
        return;
    rank->is_serving = 1;
    while (rank->line_head != RP_NIL) {
        rp_processor *cpu = &sim->processors[rank->line_head];
        rank->line_head = cpu->next;
        serve(sim, rank, cpu);
    }
    rank->is_serving = 0;
}

void rp_on_row(rp_sim *sim, uint32_t number, uint32_t in_all)
{
    rp_rank *rank = &sim->ranks[number];
    uint32_t row = in_all - rank->first_row;
    if (sim->slots[rank->slots + row] != RP_PENDING)
        ended(sim, rank, row);
    line_up(sim, rank, processor_of(sim, rank, row));
    serve_lined_up(sim, rank);
    rest(sim, rank);
}

void rp_complete_row(rp_sim *sim, rp_rank *rank, uint32_t row)
{
    wake(sim, rank);
    if (rank->program[row].kind == RP_RECV)
        enqueue(sim, rank, row);
    else
        ended(sim, rank, row);
    serve_lined_up(sim, rank);
    rest(sim, rank);
}

/* Whether an operation is valid in a graph. It must run on a processor of the rank, or be an edge to such an
   operation. */
static int is_sound(const rp_rank *rank, const rp_op *op)
{
    if (op->kind == RP_THEN)
        return op->request > 0 && op->request < rank->n_ops && rank->program[op->request].kind != RP_THEN;
    return (op->kind == RP_COMPUTE || op->kind == RP_SEND || op->kind == RP_RECV) && op->request >= 0 &&
           op->request < rank->n_processors;
}

/* Count the dependencies of each operation. Returns 0 if an operation is invalid. */
static int count_needs(rp_sim *sim, rp_rank *rank)
{
    uint32_t *needs = sim->needs + rank->first_row;
    memset(needs, 0, (size_t)rank->n_ops * sizeof *needs);
    rank->n_left = 0;
    for (int64_t row = 1; row < rank->n_ops; row++) {
        const rp_op *op = &rank->program[row];
        if (!is_sound(rank, op)) {
            rank->i_op = row + 1;
            return rp_impossible(sim, rank, op);
        }
        if (op->kind == RP_THEN)
            needs[op->request]++;
        else
            rank->n_left++;
    }
    return 1;
}

void rp_run_graph(rp_sim *sim, rp_rank *rank)
{
    rp_processor *cpus = sim->processors + rank->first_processor;
    for (int32_t i = 0; i < rank->n_processors; i++)
        cpus[i] = (rp_processor){RP_NIL, RP_NIL, RP_NIL, 0};
    if (!count_needs(sim, rank))
        return;
    rank->n_open = rank->is_serving = 0;
    rank->line_head = RP_NIL;
    rank->wait_n = rank->n_slots - 1;
    wake(sim, rank);
    for (uint32_t row = 1; row < rank->n_ops; row++)
        if (rank->program[row].kind != RP_THEN && sim->needs[rank->first_row + row] == 0)
            enqueue(sim, rank, row);
    serve_lined_up(sim, rank);
    rest(sim, rank);
}
