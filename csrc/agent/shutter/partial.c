#include "agent/shutter/partial.h"

uint64_t mc_partial_spared(const mc_board_view *view, uint64_t i)
{
    int n = view->n_others, k = 0;
    if (n < 2)
        return 0;
    uint64_t all = (UINT64_C(1) << n) - 1, chosen = mc_scattered(i / 2) & all, spared = 0;
    if (chosen == 0 || chosen == all)
        chosen = UINT64_C(1) << i / 2 % (uint64_t)n;
    if (i % 2)
        chosen ^= all;
    for (int j = 0; j < view->n_live; j++)
        if (!mc_view_is_own(view, j))
            spared |= (chosen >> k++ & 1) << view->live[j].i_slot;
    return spared;
}
