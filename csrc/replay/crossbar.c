/* The inside of a switch where its input ports are limited: each passes one packet at a time to the output buffers, as a
   crossbar with this input speedup. Packets cross when everything else of the instant has happened, those that came first
   before the others; which lane an output sends is its arbitration's choice as ever. Without a limit (crossing_q20 0) nothing
   here runs. */
#include <string.h>

#include "replay/push.h"
#include "replay/sim.h"

static int64_t crossing_ps(const rp_sim *sim, const rp_link *port, int32_t n_bytes)
{
    return (int64_t)((__int128)rp_wire_ps(port, n_bytes) * sim->net.crossing_q20 >> 20);
}

void rp_mark_switch(rp_sim *sim, uint32_t number)
{
    if (!sim->is_switch_dirty[number]) {
        sim->is_switch_dirty[number] = 1;
        sim->dirty_switches[sim->n_dirty_switches++] = number;
    }
}

void rp_ask_crossbar(rp_sim *sim, uint32_t link)
{
    rp_mark_switch(sim, (uint32_t)(sim->net.from[link] - sim->net.n_hosts));
}

static int can_cross(const rp_sim *sim, const rp_packet *packet)
{
    return sim->links[packet->in_lane >> sim->vl_shift].in_until_ps <= sim->now &&
           rp_has_room(sim, &sim->out[packet->out_lane], packet);
}

/* Packets that came at the same time are in an order that changes with the time: none is always the last. */
static int is_before(const rp_sim *sim, uint32_t a, uint32_t b)
{
    if (b == RP_NIL)
        return 1;
    const rp_packet *p = &sim->packets[a], *q = &sim->packets[b];
    if (p->ready_ps != q->ready_ps)
        return p->ready_ps < q->ready_ps;
    uint64_t now = (uint64_t)sim->now;
    return rp_mix(now ^ (uint64_t)p->in_lane << 32) < rp_mix(now ^ (uint64_t)q->in_lane << 32);
}

/* Of the packets that wait for a lane those that came by one lane cross in their order: a small one may not pass a large one
   that has no room. Returns the better one of best and those that may cross now. */
static uint32_t best_for_lane(rp_sim *sim, const rp_out_lane *out, uint32_t best)
{
    uint64_t i_look = ++sim->n_looks;
    for (uint32_t k = out->first_waiting; k != RP_NIL; k = sim->packets[k].next) {
        const rp_packet *packet = &sim->packets[k];
        rp_in_lane *in = &sim->in[packet->in_lane];
        if (in->i_look == i_look)
            continue;
        in->i_look = i_look;
        if (can_cross(sim, packet) && is_before(sim, k, best))
            best = k;
    }
    return best;
}

/* The packet that crosses next. */
static uint32_t next_to_cross(rp_sim *sim, uint32_t number)
{
    uint32_t best = RP_NIL;
    for (int32_t i = sim->switch_start[number]; i < sim->switch_start[number + 1]; i++) {
        uint32_t lane = sim->switch_links[i] << sim->vl_shift;
        for (uint32_t vl = 0; vl < (uint32_t)sim->net.n_vl; vl++)
            best = best_for_lane(sim, &sim->out[lane | vl], best);
    }
    return best;
}

static uint32_t before(const rp_sim *sim, uint32_t at, uint32_t packet)
{
    while (sim->packets[at].next != packet)
        at = sim->packets[at].next;
    return at;
}

/* From among those that wait to the end of those that are in the output buffer. */
static void enter_output(rp_sim *sim, rp_out_lane *out, uint32_t packet)
{
    rp_packet *p = &sim->packets[packet];
    if (out->first_waiting == packet) {
        out->first_waiting = p->next;
        return;
    }
    uint32_t previous = before(sim, out->first_waiting, packet);
    sim->packets[previous].next = p->next;
    if (out->tail == packet)
        out->tail = previous;
    p->next = out->first_waiting;
    if (out->head == out->first_waiting)
        out->head = packet;
    else
        sim->packets[before(sim, out->head, out->first_waiting)].next = packet;
}

static void cross(rp_sim *sim, uint32_t number, uint32_t packet)
{
    rp_packet *p = &sim->packets[packet];
    rp_out_lane *out = &sim->out[p->out_lane];
    rp_link *from = &sim->links[p->in_lane >> sim->vl_shift], *to = &sim->links[p->out_lane >> sim->vl_shift];
    from->in_until_ps = sim->now + crossing_ps(sim, from, p->n_bytes);
    rp_push(sim, from->in_until_ps, RP_EV_CROSSED, number, 0);
    enter_output(sim, out, packet);
    out->used_bytes += p->n_bytes;
    to->lanes |= (uint16_t)(1 << p->vl);
    rp_mark_dirty(sim, p->out_lane >> sim->vl_shift);
    rp_ask_output(sim, rp_leave_input(sim, p, from->in_until_ps));
}

void rp_cross_switches(rp_sim *sim)
{
    for (int64_t i = 0; i < sim->n_dirty_switches; i++) {
        uint32_t number = sim->dirty_switches[i], packet;
        while ((packet = next_to_cross(sim, number)) != RP_NIL)
            cross(sim, number, packet);
        sim->is_switch_dirty[number] = 0;
    }
    sim->n_dirty_switches = 0;
}

/* Links out of each switch. */
void rp_open_crossbars(rp_sim *sim)
{
    const rp_network *net = &sim->net;
    if (!net->crossing_q20)
        return;
    sim->switch_start = rp_zeroed(sim, (size_t)net->n_switches + 1, sizeof *sim->switch_start);
    sim->switch_links = rp_zeroed(sim, (size_t)net->n_links, sizeof *sim->switch_links);
    sim->dirty_switches = rp_zeroed(sim, (size_t)net->n_switches, sizeof *sim->dirty_switches);
    sim->is_switch_dirty = rp_zeroed(sim, (size_t)net->n_switches, sizeof *sim->is_switch_dirty);
    int32_t *end = sim->switch_start + 1;
    for (int32_t i = 0; i < net->n_links; i++)
        if (net->from[i] >= net->n_hosts)
            end[net->from[i] - net->n_hosts]++;
    for (int32_t i = 1; i < net->n_switches; i++)
        end[i] += end[i - 1];
    int32_t n = sim->switch_start[net->n_switches];
    for (int32_t i = net->n_links - 1; i >= 0; i--) /* each end goes down to its start */
        if (net->from[i] >= net->n_hosts)
            sim->switch_links[--end[net->from[i] - net->n_hosts]] = (uint32_t)i;
    memmove(sim->switch_start, end, (size_t)net->n_switches * sizeof *end);
    sim->switch_start[net->n_switches] = n;
}
