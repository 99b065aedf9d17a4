/* Host adapters: they split messages into packets, draw the routes of the packets, and reassemble the messages. */
#include "replay/sim.h"

/* The output function of splitmix64, which makes consecutive numbers independent. */
uint64_t rp_mix(uint64_t number)
{
    number += UINT64_C(0x9E3779B97F4A7C15);
    number = (number ^ number >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    number = (number ^ number >> 27) * UINT64_C(0x94D049BB133111EB);
    return number ^ number >> 31;
}

static uint32_t below(uint64_t random, uint32_t n)
{
    return (uint32_t)((random >> 32) * n >> 32);
}

static uint32_t message_path(const rp_sim *sim, const rp_message *message, int32_t src_host, int32_t dst_host)
{
    uint64_t pair = (uint64_t)(uint32_t)src_host << 32 | (uint32_t)dst_host;
    switch (sim->net.routing) {
    case RP_BY_DESTINATION:
        return (uint32_t)dst_host;
    case RP_BY_SOURCE:
        return (uint32_t)src_host;
    case RP_RANDOM_PER_FLOW:
        return below(rp_mix(rp_mix(sim->set.seed) ^ pair), (uint32_t)sim->net.n_paths);
    default:
        return below(message->draw, (uint32_t)sim->net.n_paths);
    }
}

/* The path of a packet. If a path is drawn for each packet, it depends on the packet's position in its message, and not
   on a stream of random numbers. So the order of other packets does not matter. */
static uint32_t packet_path(const rp_sim *sim, uint64_t draw, int64_t left_bytes, uint32_t of_message)
{
    if (sim->net.routing < RP_RANDOM_PER_PACKET)
        return of_message;
    return below(rp_mix(draw + (uint64_t)left_bytes), (uint32_t)sim->net.n_paths);
}

static uint32_t least_queued(const rp_sim *sim, const int32_t *links, uint32_t n, uint32_t path, uint32_t vl)
{
    uint32_t best = RP_NIL;
    int64_t least = RP_NEVER;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t link = (uint32_t)links[(path + k) % n];
        int64_t queued = sim->out[link << sim->vl_shift | vl].queued_bytes;
        if (queued < least) {
            least = queued;
            best = link;
        }
    }
    return best;
}

uint32_t rp_choose_link(const rp_sim *sim, int32_t entry, uint32_t path, uint32_t vl)
{
    if (entry >= 0)
        return (uint32_t)entry;
    const rp_network *net = &sim->net;
    int32_t set = -1 - entry;
    const int32_t *links = net->set_links + net->set_start[set];
    uint32_t n = (uint32_t)(net->set_start[set + 1] - net->set_start[set]);
    if (net->routing == RP_ADAPTIVE)
        return least_queued(sim, links, n, path, vl);
    return (uint32_t)links[path / (uint32_t)net->set_divisor[set] % n];
}

/* The two hosts between which the message travels in its present phase. */
static void ends_of(const rp_sim *sim, const rp_message *m, int32_t *from, int32_t *to)
{
    int32_t src = sim->ranks[m->src].host, dst = sim->ranks[m->dst].host;
    *from = m->phase == RP_CLEARANCE ? dst : src;
    *to = m->phase == RP_CLEARANCE ? src : dst;
}

static void append_message(rp_sim *sim, rp_out_lane *out, uint32_t message)
{
    sim->messages[message].next = RP_NIL;
    if (out->head == RP_NIL)
        out->head = message;
    else
        sim->messages[out->tail].next = message;
    out->tail = message;
}

/* Record that from now on the message's next packet waits to leave. */
static void message_waits(rp_sim *sim, rp_message *m, uint32_t link)
{
    m->ready_ps = sim->now;
    rp_begin_wait(sim, m->job, link);
}

void rp_inject(rp_sim *sim, uint32_t message)
{
    rp_message *m = &sim->messages[message];
    int32_t from, to;
    ends_of(sim, m, &from, &to);
    if (from == to) {
        int64_t copy_ps = (int64_t)((__int128)m->left_bytes * sim->set.local_ps_per_byte_q20 >> 20);
        rp_push(sim, sim->now + sim->set.local_latency_ps + copy_ps, RP_EV_LOCAL, m->number, message);
        return;
    }
    m->draw = rp_mix(m->draw); /* draw again, because requests, clearances and data take different routes */
    m->path = message_path(sim, m, from, to);
    uint32_t vl = sim->job_states[m->job].vl;
    uint32_t link = rp_choose_link(sim, sim->net.first[from], m->path, vl);
    rp_out_lane *out = &sim->out[link << sim->vl_shift | vl];
    append_message(sim, out, message);
    out->queued_bytes += m->left_bytes;
    sim->links[link].lanes |= (uint16_t)(1 << vl);
    m->injected_ps = sim->now;
    message_waits(sim, m, link);
    rp_mark_dirty(sim, link);
}

void rp_send_at(rp_sim *sim, uint32_t message, int64_t t_ps)
{
    sim->job_states[sim->messages[message].job].n_active++;
    if (t_ps > sim->now)
        rp_push(sim, t_ps, RP_EV_INJECT, sim->messages[message].number, message);
    else
        rp_inject(sim, message);
}

int32_t rp_next_bytes(const rp_sim *sim, uint32_t message)
{
    int64_t left = sim->messages[message].left_bytes;
    return left < sim->set.mtu_bytes ? (int32_t)left : sim->set.mtu_bytes;
}

uint32_t rp_next_packet(rp_sim *sim, uint32_t link, uint32_t vl)
{
    rp_out_lane *out = &sim->out[link << sim->vl_shift | vl];
    uint32_t message = out->head, packet = rp_new_packet(sim);
    rp_message *m = &sim->messages[message];
    rp_packet *p = &sim->packets[packet];
    int32_t from;
    ends_of(sim, m, &from, &p->dst_host);
    p->message = message;
    p->ready_ps = m->ready_ps;
    p->n_bytes = rp_next_bytes(sim, message);
    p->path = packet_path(sim, m->draw, m->left_bytes, m->path);
    p->job = m->job;
    p->vl = (uint8_t)vl;
    p->n_hops = 0;
    p->head_ps = 0;
    m->left_bytes -= p->n_bytes;
    if (m->left_bytes == 0 || !sim->set.is_fifo_adapter) {
        out->head = m->next;
        if (m->left_bytes > 0)
            append_message(sim, out, message);
    }
    if (out->head == RP_NIL)
        sim->links[link].lanes &= (uint16_t) ~(1 << vl);
    sim->links[link].message = message;
    sim->result.n_packets++;
    sim->n_live_packets++;
    return packet;
}

/* The whole message has left the sender's memory. */
static void message_left(rp_sim *sim, const rp_message *m)
{
    if (m->slot >= 0 && (m->phase == RP_EAGER || m->phase == RP_DATA))
        rp_complete(sim, m->src, m->slot, RP_SENT);
}

void rp_packet_left(rp_sim *sim, uint32_t link)
{
    rp_message *m = &sim->messages[sim->links[link].message];
    if (m->left_bytes > 0)
        message_waits(sim, m, link);
    else
        message_left(sim, m);
}

static void message_came(rp_sim *sim, uint32_t message)
{
    rp_message *m = &sim->messages[message];
    uint32_t job = m->job;
    if (m->phase == RP_CLEARANCE) {
        m->phase = RP_DATA;
        m->left_bytes = m->missing_bytes = m->wire_bytes;
        rp_send_at(sim, message, sim->now);
    } else if (m->phase == RP_DATA) {
        rp_receive r = sim->receives[m->receive];
        rp_free_receive(sim, m->receive);
        rp_free_message(sim, message);
        rp_complete(sim, r.rank, r.slot, RP_RECEIVED);
    } else {
        m->has_come = 1;
        if (!m->has_leader)
            rp_envelope(sim, message);
    }
    rp_deactivate(sim, job);
}

void rp_packet_came(rp_sim *sim, uint32_t packet)
{
    const rp_packet *p = &sim->packets[packet];
    rp_message *m = &sim->messages[p->message];
    m->missing_bytes -= p->n_bytes;
    if (m->missing_bytes > 0)
        return;
    if (rp_is_first_run(sim, p->job)) {
        sim->message_ps[p->job] += sim->now - m->injected_ps;
        sim->head_ps[p->job] += p->head_ps;
    }
    message_came(sim, p->message);
}

void rp_on_local(rp_sim *sim, uint32_t message)
{
    message_left(sim, &sim->messages[message]);
    message_came(sim, message);
}
