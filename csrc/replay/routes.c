#include "replay/sim.h"

/* The output function of splitmix64: neighbouring numbers become independent. */
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

uint32_t rp_message_path(const rp_sim *sim, const rp_message *message, int32_t src_host, int32_t dst_host)
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

/* Drawn from the packet's place in its message, not from a stream: the order of other packets does not matter. */
uint32_t rp_packet_path(const rp_sim *sim, uint64_t draw, int64_t left_bytes, uint32_t of_message)
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
