/* Detection of packets that wait for each other's buffers. A lane is stuck if its next packet would have no room even
   after all credits in flight have returned, because packets that wait for stuck lanes occupy the buffer at the lane's
   end. The stuck lanes are the largest set of lanes for which this holds. They never move again, whatever other lanes
   of the same links do. */
#include "replay/sim.h"

static int is_stuck(const rp_sim *sim, uint32_t lane)
{
    return sim->links[lane >> sim->vl_shift].stuck >> (lane & ((1u << sim->vl_shift) - 1)) & 1;
}

static uint32_t end_of_lanes(const rp_sim *sim)
{
    return (uint32_t)sim->net.n_links << sim->vl_shift;
}

/* Whether a packet that waits for a lane lacks room there, and does not wait merely for its turn at the crossbar.
   Packets from the same input lane cross in order, so the first of them decides. */
static int waits_for_room(const rp_sim *sim, const rp_out_lane *out, uint32_t packet)
{
    uint32_t first = out->first_waiting, in_lane = sim->packets[packet].in_lane;
    if (!sim->net.crossing_q20)
        return 1;
    while (sim->packets[first].in_lane != in_lane)
        first = sim->packets[first].next;
    return !rp_has_room(sim, out, &sim->packets[first]);
}

/* For each stuck lane, count the bytes that wait for stuck lanes in the buffer at the lane's end. In a FIFO the first
   packet blocks all packets behind it. */
static void count_held(rp_sim *sim)
{
    for (uint32_t lane = 0; lane < end_of_lanes(sim); lane++)
        if (is_stuck(sim, lane))
            sim->in[lane].held_bytes = 0;
    for (uint32_t lane = 0; lane < end_of_lanes(sim); lane++) {
        if (!is_stuck(sim, lane))
            continue;
        for (uint32_t i = sim->out[lane].first_waiting; i != RP_NIL; i = sim->packets[i].next) {
            uint32_t held_at = sim->packets[i].in_lane;
            if (!is_stuck(sim, held_at) || !waits_for_room(sim, &sim->out[lane], i))
                continue;
            for (uint32_t k = i; k != RP_NIL; k = sim->net.is_voq ? RP_NIL : sim->packets[k].next_in)
                sim->in[held_at].held_bytes += sim->packets[k].n_bytes;
        }
    }
}

static int has_room_behind(const rp_sim *sim, uint32_t lane)
{
    uint32_t vl = lane & ((1u << sim->vl_shift) - 1), first = sim->out[lane].head;
    int32_t n_bytes =
        sim->links[lane >> sim->vl_shift].from_host ? rp_next_bytes(sim, first) : sim->packets[first].n_bytes;
    return sim->net.input_bytes[vl] - sim->in[lane].held_bytes >= n_bytes;
}

/* Unmark the lanes that can proceed. Returns their number. */
static int release_lanes(rp_sim *sim)
{
    int n = 0;
    count_held(sim);
    for (uint32_t lane = 0; lane < end_of_lanes(sim); lane++) {
        if (is_stuck(sim, lane) && has_room_behind(sim, lane)) {
            sim->links[lane >> sim->vl_shift].stuck &= (uint16_t) ~(1 << (lane & ((1u << sim->vl_shift) - 1)));
            n++;
        }
    }
    return n;
}

/* Find a stuck lane that is awaited by a packet in the buffer at this lane's end. */
static uint32_t waits_for(const rp_sim *sim, uint32_t lane)
{
    for (uint32_t out = 0; out < end_of_lanes(sim); out++)
        if (is_stuck(sim, out))
            for (uint32_t i = sim->out[out].first_waiting; i != RP_NIL; i = sim->packets[i].next)
                if (sim->packets[i].in_lane == lane && waits_for_room(sim, &sim->out[out], i))
                    return out;
    return lane; /* not reached, because the lane's packet would then have room */
}

/* From each stuck lane, go on to a lane for which it waits. This leads into a circle, which Brent's algorithm finds.
   Record the links of the circle. */
static void record_circle(rp_sim *sim, uint32_t lane)
{
    uint32_t mark = lane, at = waits_for(sim, lane), n = 1, limit = 1;
    for (; at != mark; n++) {
        if (n == limit) {
            mark = at;
            limit *= 2;
            n = 0;
        }
        at = waits_for(sim, at);
    }
    sim->result.n_cycle = 0;
    do {
        sim->cycle[sim->result.n_cycle++] = (int32_t)(at >> sim->vl_shift);
        at = waits_for(sim, at);
    } while (at != mark && sim->result.n_cycle < sim->net.n_links);
}

int rp_find_cycle(rp_sim *sim, int is_last)
{
    uint32_t lane = 0;
    if (is_last)
        for (int32_t i = 0; i < sim->net.n_links; i++)
            sim->links[i].stuck = sim->links[i].starved;
    while (release_lanes(sim))
        ;
    while (lane < end_of_lanes(sim) && !is_stuck(sim, lane))
        lane++;
    int is_found = lane < end_of_lanes(sim);
    if (is_found)
        record_circle(sim, lane);
    for (int32_t i = 0; i < sim->net.n_links; i++)
        sim->links[i].stuck = sim->links[i].starved;
    return is_found;
}
