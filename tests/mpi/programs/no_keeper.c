/* In place of the keeper and the agent in the tests of the wrappers: the segments stay to be read. */
#include "hooks.h"

int mc_keeper_start(const char *key)
{
    (void)key;
    return MC_OK;
}

void mc_keeper_wait_profile(const char *key)
{
    (void)key;
}

int mc_agent_thread_start(const char *key, const char *job_id)
{
    (void)key, (void)job_id;
    return MC_OK;
}

void mc_agent_thread_stop(void)
{
}

int mc_keeper_may_count(void)
{
    return 1;
}
