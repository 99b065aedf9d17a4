/* Which lane of a link sends next: InfiniBand Architecture Specification, volume 1, section 7.6.9. Each table is gone
   through in its order; an entry sends while it has weight left and a packet, and gets its weight anew in its next turn. */
#include "replay/sim.h"

enum { RP_LIMIT_UNIT_BYTES = 4096, RP_NO_LIMIT = 255 };

static int16_t rest_of(const rp_sim *sim, int16_t left, int32_t n_bytes)
{
    int32_t unit = sim->net.weight_unit_bytes;
    int32_t cost = unit ? (n_bytes + unit - 1) / unit : 1;
    return left > cost ? (int16_t)(left - cost) : 0;
}

/* The lane of the entry whose turn it is among `lanes`, one of which has an entry with weight. */
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

int rp_pick_lane(rp_sim *sim, rp_link *link, uint32_t lanes, const int32_t *head_bytes)
{
    const rp_network *net = &sim->net;
    uint32_t high = lanes & sim->high_lanes, low = lanes & sim->low_lanes;
    int is_exhausted = is_high_exhausted(sim, link);
    if (high && !(is_exhausted && low)) {
        if (is_exhausted)
            link->high_bytes = 0;
        int vl = next_entry(net->high, net->n_high, high, &link->i_high, &link->left_high);
        link->left_high = rest_of(sim, link->left_high, head_bytes[vl]);
        if (net->high_limit < RP_NO_LIMIT) /* else it would grow for ever */
            link->high_bytes += head_bytes[vl];
        return vl;
    }
    link->high_bytes = 0;
    int vl = next_entry(net->low, net->n_low, low, &link->i_low, &link->left_low);
    link->left_low = rest_of(sim, link->left_low, head_bytes[vl]);
    return vl;
}
