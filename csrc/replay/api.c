#include "replay/replay.h"
#include <stddef.h>

/* The loop follows in the next commits of this branch. */
rp_sim *rp_open(const rp_network *network, const rp_settings *settings, int32_t n_jobs, const rp_job *jobs)
{
    (void)network, (void)settings, (void)n_jobs, (void)jobs;
    return NULL;
}
int rp_run(rp_sim *sim, int64_t n_events)
{
    (void)sim, (void)n_events;
    return RP_E_MEMORY;
}
const rp_result *rp_get(rp_sim *sim)
{
    (void)sim;
    return NULL;
}
void rp_close(rp_sim *sim)
{
    (void)sim;
}
