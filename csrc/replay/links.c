/* Links, and the buffers at both ends of each link. A packet leaves when the link is free, the next input buffer has
   room for the whole packet, and arbitration selects its lane. It stays in the output buffer until its last byte has
   left, and in the input buffer until the output buffer has room and its last byte has arrived. */
#include <string.h>

#include "replay/sim.h"

int64_t rp_wire_ps(const rp_link *link, int32_t n_bytes)
{
    return (n_bytes * link->ps_per_byte_q20 + (1 << 19)) >> 20;
}

void rp_mark_dirty(rp_sim *sim, uint32_t link)
{
    rp_link *k = &sim->links[link];
    if (!k->is_dirty && !k->is_busy) {
        k->is_dirty = 1;
        sim->dirty[sim->n_dirty++] = link;
    }
}

void rp_mark_switch(rp_sim *sim, uint32_t number)
{
    if (!sim->is_switch_dirty[number]) {
        sim->is_switch_dirty[number] = 1;
        sim->dirty_switches[sim->n_dirty_switches++] = number;
    }
}

static void ask_crossbar(rp_sim *sim, uint32_t link)
{
    rp_mark_switch(sim, (uint32_t)(sim->net.from[link] - sim->net.n_hosts));
}

static void wake_at(rp_sim *sim, uint32_t link, int64_t t_ps)
{
    rp_link *k = &sim->links[link];
    if (t_ps < k->wake_ps) {
        k->wake_ps = t_ps;
        rp_push(sim, t_ps, RP_EV_WAKE, link, 0);
    }
}

/* Return credits for n_bytes to the sender, which receives them after the cable's latency. */
static void return_credit(rp_sim *sim, uint32_t lane, int32_t n_bytes, int64_t left_ps)
{
    rp_in_lane *in = &sim->in[lane];
    uint32_t link = lane >> sim->vl_shift;
    int64_t t_ps = left_ps + sim->links[link].latency_ps;
    if (in->n_returns == RP_N_RETURNS) {
        rp_push(sim, t_ps, RP_EV_CREDIT, lane, (uint32_t)n_bytes);
        return;
    }
    in->return_ps[in->n_returns] = t_ps;
    in->return_bytes[in->n_returns++] = n_bytes;
    if (sim->links[link].starved && !sim->links[link].is_busy) /* a busy link checks credits when it becomes free */
        wake_at(sim, link, t_ps);
}

static void take_returns(rp_in_lane *in, int64_t now)
{
    int32_t n = 0;
    for (int32_t i = 0; i < in->n_returns; i++) {
        if (in->return_ps[i] <= now) {
            in->free_bytes += in->return_bytes[i];
            continue;
        }
        in->return_ps[n] = in->return_ps[i];
        in->return_bytes[n++] = in->return_bytes[i];
    }
    in->n_returns = n;
}

void rp_on_credit(rp_sim *sim, uint32_t lane, uint32_t n_bytes)
{
    sim->in[lane].free_bytes += (int32_t)n_bytes;
    rp_mark_dirty(sim, lane >> sim->vl_shift);
}

void rp_on_wake(rp_sim *sim, uint32_t link)
{
    rp_link *k = &sim->links[link];
    if (k->wake_ps == sim->now)
        k->wake_ps = RP_NEVER;
    rp_mark_dirty(sim, link);
}

/* Move the packet from its input to its output buffer, which takes until t_ps. Returns the packet that becomes the
   first of the FIFO. */
static uint32_t leave_input(rp_sim *sim, rp_packet *packet, int64_t t_ps)
{
    int64_t left_ps = packet->tail_ps > t_ps ? packet->tail_ps : t_ps;
    return_credit(sim, packet->in_lane, packet->n_bytes, left_ps);
    if (sim->net.is_voq)
        return RP_NIL;
    rp_in_lane *in = &sim->in[packet->in_lane];
    in->head = packet->next_in;
    return in->head;
}

/* Request room in the output buffer for a packet. If there is room, do the same for each packet behind it. */
static void ask_output(rp_sim *sim, uint32_t packet)
{
    while (packet != RP_NIL) {
        rp_packet *p = &sim->packets[packet];
        rp_out_lane *out = &sim->out[p->out_lane];
        p->next = RP_NIL;
        if (out->head == RP_NIL)
            out->head = packet;
        else
            sim->packets[out->tail].next = packet;
        out->tail = packet;
        if (out->first_waiting != RP_NIL || sim->net.crossing_q20 || !rp_has_room(sim, out, p)) {
            if (out->first_waiting == RP_NIL)
                out->first_waiting = packet;
            if (sim->net.crossing_q20)
                ask_crossbar(sim, p->out_lane >> sim->vl_shift);
            return;
        }
        out->used_bytes += p->n_bytes;
        uint32_t link = p->out_lane >> sim->vl_shift;
        sim->links[link].lanes |= (uint16_t)(1 << p->vl);
        rp_mark_dirty(sim, link);
        packet = leave_input(sim, p, sim->now);
    }
}

/* Call this after a packet has left. Admit packets that waited for room. */
static void admit_waiting(rp_sim *sim, uint32_t lane)
{
    rp_out_lane *out = &sim->out[lane];
    if (sim->net.crossing_q20) {
        ask_crossbar(sim, lane >> sim->vl_shift);
        return;
    }
    while (out->first_waiting != RP_NIL && rp_has_room(sim, out, &sim->packets[out->first_waiting])) {
        rp_packet *p = &sim->packets[out->first_waiting];
        out->first_waiting = p->next;
        out->used_bytes += p->n_bytes;
        sim->links[lane >> sim->vl_shift].lanes |= (uint16_t)(1 << p->vl);
        ask_output(sim, leave_input(sim, p, sim->now));
    }
}

/* The packet waits because the link is busy, or because other packets are ahead of it. */
void rp_begin_wait(rp_sim *sim, uint32_t job, uint32_t link)
{
    const rp_link *k = &sim->links[link];
    if (!rp_is_first_run(sim, job))
        return;
    sim->n_waiting[link * (uint32_t)sim->n_jobs + job]++;
    if (k->is_busy) {
        sim->blocked_ps[job * ((uint32_t)sim->n_jobs + 1) + k->job] += k->busy_until_ps - sim->now;
        sim->transfer_ps[job * (uint32_t)sim->n_jobs + k->job] += k->busy_until_ps - sim->now;
    }
}

void rp_enter_switch(rp_sim *sim, uint32_t packet)
{
    rp_packet *p = &sim->packets[packet];
    p->ready_ps = sim->now;
    rp_begin_wait(sim, p->job, p->out_lane >> sim->vl_shift);
    sim->out[p->out_lane].queued_bytes += p->n_bytes;
    if (sim->net.is_voq) {
        ask_output(sim, packet);
        return;
    }
    rp_in_lane *in = &sim->in[p->in_lane];
    p->next_in = RP_NIL;
    if (in->head == RP_NIL) {
        in->head = in->tail = packet;
        ask_output(sim, packet);
    } else {
        sim->packets[in->tail].next_in = packet;
        in->tail = packet;
    }
}

static void enter_host(rp_sim *sim, uint32_t packet)
{
    rp_packet *p = &sim->packets[packet];
    if (sim->links[p->in_lane >> sim->vl_shift].to != p->dst_host) {
        sim->status = RP_E_ROUTE;
        return;
    }
    return_credit(sim, p->in_lane, p->n_bytes, sim->now);
    rp_packet_came(sim, packet);
    rp_free_packet(sim, packet);
    sim->n_live_packets--;
}

enum { RP_MAX_HOPS = 100 };

void rp_on_arrive(rp_sim *sim, uint32_t lane, uint32_t packet)
{
    rp_packet *p = &sim->packets[packet];
    const rp_link *k = &sim->links[lane >> sim->vl_shift];
    sim->in[lane].received_bytes += p->n_bytes;
    if (k->to_host) {
        enter_host(sim, packet);
        return;
    }
    size_t row = (size_t)(k->to - sim->net.n_hosts) * (size_t)sim->net.n_hosts;
    uint32_t next = rp_choose_link(sim, sim->net.next[row + (size_t)p->dst_host], p->path, p->vl);
    p->out_lane = next << sim->vl_shift | p->vl;
    if (++p->n_hops > RP_MAX_HOPS) {
        sim->status = RP_E_ROUTE;
        return;
    }
    const rp_link *to = &sim->links[next];
    if (to->ps_per_byte_q20 < k->ps_per_byte_q20) { /* the last byte must have arrived when the faster link sends it */
        int64_t t_ps = p->tail_ps + sim->net.switch_latency_ps - rp_wire_ps(to, p->n_bytes);
        if (t_ps > sim->now) {
            rp_push(sim, t_ps, RP_EV_READY, lane, packet);
            return;
        }
    }
    rp_enter_switch(sim, packet);
}

void rp_on_free(rp_sim *sim, uint32_t link)
{
    rp_link *k = &sim->links[link];
    uint32_t lane = link << sim->vl_shift | k->vl;
    k->is_busy = 0;
    sim->out[lane].queued_bytes -= k->n_bytes;
    if (k->from_host) {
        rp_packet_left(sim, link);
    } else {
        sim->out[lane].used_bytes -= k->n_bytes;
        admit_waiting(sim, lane);
    }
    if (sim->links[link].lanes)
        rp_mark_dirty(sim, link);
}

static uint32_t pop_packet(rp_sim *sim, uint32_t link, uint32_t vl)
{
    rp_out_lane *out = &sim->out[link << sim->vl_shift | vl];
    uint32_t packet = out->head;
    out->head = sim->packets[packet].next;
    if (out->head == out->first_waiting) /* true even if both are RP_NIL */
        sim->links[link].lanes &= (uint16_t) ~(1 << vl);
    return packet;
}

/* While a link sends a packet, other packets wait for the link. Charge these waits to the job of the packet that is
   sent. Only waits of first runs count: repeated runs of a job cause waits, but the waits of repeated runs do not
   count. When a run ends, none of its packets is in flight. */
static void count_wait(rp_sim *sim, uint32_t link, const rp_packet *packet, int64_t wire_ps)
{
    int32_t n_jobs = sim->n_jobs;
    uint32_t *waiting = &sim->n_waiting[link * (uint32_t)n_jobs];
    int is_counted = rp_is_first_run(sim, packet->job);
    waiting[packet->job] -= (uint32_t)is_counted;
    for (int32_t i = 0; i < n_jobs; i++)
        sim->blocked_ps[i * (n_jobs + 1) + packet->job] += waiting[i] * wire_ps;
    int64_t wait_ps = sim->now - packet->ready_ps;
    if (is_counted && wait_ps > 0) {
        size_t cell = ((size_t)sim->links[link].level * (size_t)n_jobs + packet->job) * (size_t)sim->net.n_vl;
        sim->wait_ps[cell + packet->vl] += wait_ps;
        sim->wait_packets[cell + packet->vl]++;
    }
}

/* Merge the windows in pairs, which doubles their length. */
static void fold_windows(rp_sim *sim)
{
    size_t n_links = (size_t)sim->net.n_links, n_max = (size_t)sim->set.n_windows_max;
    int64_t *windows = sim->window_bytes;
    for (size_t i = 0; i < (n_max + 1) / 2; i++)
        for (size_t link = 0; link < n_links; link++) {
            int64_t second = 2 * i + 1 < n_max ? windows[(2 * i + 1) * n_links + link] : 0;
            windows[i * n_links + link] = windows[2 * i * n_links + link] + second;
        }
    size_t n_kept = (n_max + 1) / 2;
    memset(windows + n_kept * n_links, 0, (n_max - n_kept) * n_links * sizeof *windows);
    sim->result.window_ps *= 2;
}

static void next_window(rp_sim *sim)
{
    while (sim->now / sim->result.window_ps >= sim->set.n_windows_max)
        fold_windows(sim);
    int64_t i = sim->now / sim->result.window_ps;
    sim->window = sim->window_bytes + i * sim->net.n_links;
    sim->window_end_ps = (i + 1) * sim->result.window_ps;
    sim->result.n_windows = (int32_t)i + 1;
}

static void send_packet(rp_sim *sim, uint32_t link, uint32_t vl)
{
    rp_link *k = &sim->links[link];
    uint32_t packet = k->from_host ? rp_next_packet(sim, link, vl) : pop_packet(sim, link, vl);
    rp_packet *p = &sim->packets[packet];
    uint32_t lane = link << sim->vl_shift | vl;
    int64_t wire_ps = rp_wire_ps(k, p->n_bytes);
    count_wait(sim, link, p, wire_ps);
    sim->in[lane].free_bytes -= p->n_bytes;
    sim->out[lane].sent_bytes += p->n_bytes;
    k->busy_ps += wire_ps;
    if (sim->window != NULL) {
        if (sim->now >= sim->window_end_ps)
            next_window(sim);
        sim->window[link] += p->n_bytes;
    }
    k->is_busy = 1;
    k->vl = (uint8_t)vl;
    k->n_bytes = p->n_bytes;
    k->job = p->job;
    k->busy_until_ps = sim->now + wire_ps;
    p->in_lane = lane;
    p->tail_ps = k->busy_until_ps + k->latency_ps;
    if (!k->to_host) /* the switch will read this entry of its table */
        __builtin_prefetch(
            &sim->net.next[(size_t)(k->to - sim->net.n_hosts) * (size_t)sim->net.n_hosts + (size_t)p->dst_host]);
    sim->result.n_packet_hops++;
    rp_push(sim, k->busy_until_ps, RP_EV_FREE, link, 0);
    int64_t flit_ps = p->n_bytes < sim->net.flit_bytes ? wire_ps : k->flit_ps;
    p->head_ps += k->to_host ? k->latency_ps : k->forward_ps + flit_ps;
    if (k->from_host && rp_is_first_run(sim, p->job))
        sim->serial_ps[p->job] += wire_ps;
    rp_push(sim, k->to_host ? p->tail_ps : sim->now + k->forward_ps + flit_ps, RP_EV_ARRIVE, lane, packet);
}

/* No lane has credits for its packet, so arbitrate again when credits arrive. */
static void starve(rp_sim *sim, uint32_t link, uint32_t lanes)
{
    int64_t first_ps = RP_NEVER;
    for (; lanes; lanes &= lanes - 1) {
        const rp_in_lane *in = &sim->in[link << sim->vl_shift | (uint32_t)__builtin_ctz(lanes)];
        for (int32_t i = 0; i < in->n_returns; i++)
            if (in->return_ps[i] < first_ps)
                first_ps = in->return_ps[i];
    }
    if (first_ps < RP_NEVER)
        wake_at(sim, link, first_ps);
}

/* ---- arbitration ---- */

/* Choice of the lane that sends next: InfiniBand Architecture Specification, volume 1, section 7.6.9. Each table is
   traversed in order and cyclically. An entry sends as long as it has weight left and a packet to send. Its weight is
   restored at its next turn. */

enum { RP_LIMIT_UNIT_BYTES = 4096, RP_NO_LIMIT = 255 };

static int16_t rest_of(const rp_sim *sim, int16_t left, int32_t n_bytes)
{
    int32_t unit = sim->net.weight_unit_bytes;
    int32_t cost = unit ? (n_bytes + unit - 1) / unit : 1;
    return left > cost ? (int16_t)(left - cost) : 0;
}

/* The lane of the entry whose turn it is. Only the lanes in `lanes` are considered, and at least one of them must have
   an entry with weight. */
static int next_entry(const rp_arbitration *table, int32_t n, uint32_t lanes, uint8_t *i, int16_t *left)
{
    if (*left > 0 && lanes >> table[*i].vl & 1)
        return table[*i].vl;
    uint32_t at = *i;
    for (int32_t k = 0; k < n; k++) {
        at = at + 1 == (uint32_t)n ? 0 : at + 1;
        if (table[at].weight > 0 && lanes >> table[at].vl & 1)
            break;
    }
    *i = (uint8_t)at;
    *left = (int16_t)table[at].weight;
    return table[at].vl;
}

static int is_high_exhausted(const rp_sim *sim, const rp_link *link)
{
    int32_t limit = sim->net.high_limit;
    return limit == 0 ? link->high_bytes > 0 : limit < RP_NO_LIMIT && link->high_bytes >= limit * RP_LIMIT_UNIT_BYTES;
}

static int pick_lane(rp_sim *sim, rp_link *link, uint32_t lanes, const int32_t *head_bytes)
{
    const rp_network *net = &sim->net;
    uint32_t high = lanes & sim->high_lanes, low = lanes & sim->low_lanes;
    int is_exhausted = is_high_exhausted(sim, link);
    if (high && !(is_exhausted && low)) {
        if (is_exhausted)
            link->high_bytes = 0;
        int vl = next_entry(net->high, net->n_high, high, &link->i_high, &link->left_high);
        link->left_high = rest_of(sim, link->left_high, head_bytes[vl]);
        if (net->high_limit < RP_NO_LIMIT) /* without a limit the counter would overflow */
            link->high_bytes += head_bytes[vl];
        return vl;
    }
    link->high_bytes = 0;
    int vl = next_entry(net->low, net->n_low, low, &link->i_low, &link->left_low);
    link->left_low = rest_of(sim, link->left_low, head_bytes[vl]);
    return vl;
}

static void arbitrate_link(rp_sim *sim, uint32_t link)
{
    rp_link *k = &sim->links[link];
    int32_t head_bytes[RP_MAX_VL];
    uint32_t can_go = 0;
    for (uint32_t lanes = k->lanes; lanes; lanes &= lanes - 1) {
        uint32_t vl = (uint32_t)__builtin_ctz(lanes), lane = link << sim->vl_shift | vl;
        rp_in_lane *in = &sim->in[lane];
        uint32_t head = sim->out[lane].head;
        head_bytes[vl] = k->from_host ? rp_next_bytes(sim, head) : sim->packets[head].n_bytes;
        if (in->n_returns)
            take_returns(in, sim->now);
        can_go |= (uint32_t)(in->free_bytes >= head_bytes[vl]) << vl;
    }
    k->starved = (uint16_t)(k->lanes & ~can_go);
    k->stuck &= k->starved;
    if (can_go)
        send_packet(sim, link, (uint32_t)pick_lane(sim, k, can_go, head_bytes));
    else if (k->lanes)
        starve(sim, link, k->lanes);
}

static void shuffle_dirty(rp_sim *sim)
{
    for (int64_t i = sim->n_dirty; i > 1; i--) {
        int64_t k = (int64_t)(rp_mix(sim->queue.shuffle++) % (uint64_t)i);
        uint32_t link = sim->dirty[i - 1];
        sim->dirty[i - 1] = sim->dirty[k];
        sim->dirty[k] = link;
    }
}

static void arbitrate_links(rp_sim *sim)
{
    if (sim->queue.shuffle)
        shuffle_dirty(sim);
    for (int64_t i = 0; i < sim->n_dirty; i++) {
        rp_link *k = &sim->links[sim->dirty[i]];
        k->is_dirty = 0;
        if (!k->is_busy)
            arbitrate_link(sim, sim->dirty[i]);
    }
    sim->n_dirty = 0;
}

/* ---- crossbars ---- */

/* Switches with limited input ports. Each input port passes one packet at a time to the output buffers, as in a
   crossbar with this input speedup. Packets cross in order of arrival, after all other events of the instant.
   Arbitration still chooses the lane from which an output sends. If there is no limit (crossing_q20 is 0), none of this
   code runs. */

static int64_t crossing_ps(const rp_sim *sim, const rp_link *port, int32_t n_bytes)
{
    return (int64_t)((__int128)rp_wire_ps(port, n_bytes) * sim->net.crossing_q20 >> 20);
}

static int can_cross(const rp_sim *sim, const rp_packet *packet)
{
    return sim->links[packet->in_lane >> sim->vl_shift].in_until_ps <= sim->now &&
           rp_has_room(sim, &sim->out[packet->out_lane], packet);
}

/* Whether packet a crosses before b. Among packets that arrived at the same time, the order changes with the time, so
   that no lane is always last. */
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

/* The packet that crosses first: `best`, or a packet that waits for this lane and can cross now. Packets from the same
   input lane cross in order: a small packet may not overtake a large packet that has no room. */
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

/* The packet that crosses the switch next, or RP_NIL. */
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

/* Move a packet from the waiting packets to the end of the output buffer. */
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
    ask_output(sim, leave_input(sim, p, from->in_until_ps));
}

static void cross_switches(rp_sim *sim)
{
    for (int64_t i = 0; i < sim->n_dirty_switches; i++) {
        uint32_t number = sim->dirty_switches[i], packet;
        while ((packet = next_to_cross(sim, number)) != RP_NIL)
            cross(sim, number, packet);
        sim->is_switch_dirty[number] = 0;
    }
    sim->n_dirty_switches = 0;
}

/* List the links out of each switch. */
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
    for (int32_t i = net->n_links - 1; i >= 0; i--) /* each `end` moves down to the start of the switch's list */
        if (net->from[i] >= net->n_hosts)
            sim->switch_links[--end[net->from[i] - net->n_hosts]] = (uint32_t)i;
    memmove(sim->switch_start, end, (size_t)net->n_switches * sizeof *end);
    sim->switch_start[net->n_switches] = n;
}

int rp_settle(rp_sim *sim)
{
    if (!sim->n_dirty && !sim->n_dirty_switches)
        return 0;
    cross_switches(sim);
    arbitrate_links(sim);
    return 1;
}
