#include "agent/shutter/partial.h"

/* splitmix64: bits that are as good as drawn. */
static uint64_t mixed(uint64_t i)
{
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t mc_partial_spared(const mc_board_view *view, uint64_t i)
{
    int n = view->n_others, k = 0;
    if (n < 2)
        return 0;
    uint64_t all = n < 64 ? (UINT64_C(1) << n) - 1 : UINT64_MAX, chosen = mixed(i / 2) & all, spared = 0;
    if (chosen == 0 || chosen == all)
        chosen = UINT64_C(1) << i / 2 % (uint64_t)n;
    if (i % 2)
        chosen ^= all;
    for (int j = 0; j < view->n_live; j++)
        if (!mc_view_is_own(view, j))
            spared |= (chosen >> k++ & 1) << view->live[j].i_slot;
    return spared;
}
