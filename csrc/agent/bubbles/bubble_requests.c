#include "agent/bubbles/bubble_requests.h"

#include "agent/shutter/intervals.h"

#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)

/* How many bubbles a co-runner can press, at most all. All of its processors must be among those that bubbles may use: it
   does not know which these are. */
static int n_can_press(const mc_slot *other, const mc_press_wanted *wanted, const mc_cpus *taken)
{
    mc_cpus theirs = mc_cpus_without(mc_cpus_of_slot(other), wanted->own);
    mc_cpus wrong = mc_cpus_without(theirs, wanted->cores), common = mc_cpus_and(theirs, *taken);
    if (LOAD(other->offer.n_all) != (uint64_t)wanted->n_level || mc_cpus_n(&wrong) || mc_cpus_n(&common))
        return 0;
    return (int)mc_min(mc_min(LOAD(other->offer.n), (uint64_t)mc_cpus_n(&theirs)), (uint64_t)wanted->n);
}

/* Those who can press so many at least, from one on. Two with a processor in common would be in each other's way. */
static int share_out_from(mc_press_request *request, const mc_board_view *view, const mc_press_wanted *wanted,
                          int first, int at_least)
{
    mc_cpus taken = {{0}};
    for (int k = 0; k < view->n_live && request->n_bubbles < (uint64_t)wanted->n; k++) {
        int i = (first + k) % view->n_live;
        int n = mc_view_is_own(view, i) ? 0 : n_can_press(mc_view_slot(view, i), wanted, &taken);
        if (n < at_least)
            continue;
        mc_press_ask(request, view->live[i].i_slot, (int)mc_min((uint64_t)n, (uint64_t)wanted->n - request->n_bubbles));
        taken = mc_cpus_or(taken, mc_cpus_of_slot(mc_view_slot(view, i)));
    }
    return request->n_bubbles == (uint64_t)wanted->n;
}

int mc_share_out(mc_press_request *request, const mc_board_view *view, const mc_press_wanted *wanted, double random)
{
    const mc_press_request nobody = {.level_thousandths = request->level_thousandths};
    int first = (int)(random * view->n_live);
    *request = nobody;
    if (share_out_from(request, view, wanted, first,
                       wanted->n)) /* one alone: it is enough that one of several cannot */
        return 1;
    *request = nobody;
    if (share_out_from(request, view, wanted, first, 1))
        return 1;
    *request = nobody;
    return 0;
}
