/* The node agent as a thread of the keeper. */
#define _GNU_SOURCE
#include "agent/agent.h"
#include "agent/thread.h"
#include "common/proc.h"
#include "common/threads.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { STACK_BYTES = 256 * 1024 };

static const uint64_t STEP_NS = 1000000000u;

static pthread_t thread;
static int started, owner_pid;
static atomic_int stopping;
static char thread_key[MC_NAME_LEN], thread_job_id[MC_NAME_LEN];
static mc_agent *running;

/* Protects `running`: the agent may be stopped before it is open, and a closed agent must not be woken. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static mc_agent *open_and_show(void)
{
    mc_agent *agent = NULL;
    int status = mc_agent_open(&agent, thread_key, thread_job_id);
    if (status == MC_E_GONE) /* a coordinator is already the agent */
        return NULL;
    if (status != MC_OK) {
        fprintf(stderr, "mpicoloc: no node agent, so no interference is measured (%d): see `mpicoloc check`\n", status);
        return NULL;
    }
    if (!agent->view.board)
        fprintf(stderr, "mpicoloc: no interference is measured: %s\n", agent->node->meter_reason);
    /* Do one step before the agent can be stopped. So even the profile of a job that lasts only a few milliseconds
       names the co-runners. */
    mc_agent_step(agent, 0);
    pthread_mutex_lock(&lock);
    running = agent;
    pthread_mutex_unlock(&lock);
    return agent;
}

static void *be_agent(void *unused)
{
    (void)unused;
    pthread_setname_np(pthread_self(), "mpicoloc");
    mc_agent *agent = open_and_show();
    while (agent && !atomic_load_explicit(&stopping, memory_order_acquire))
        mc_agent_step(agent, STEP_NS);
    pthread_mutex_lock(&lock);
    running = NULL;
    pthread_mutex_unlock(&lock);
    mc_agent_close(agent);
    return NULL;
}

int mc_agent_thread_start(const char *key, const char *job_id)
{
    if (started)
        return MC_OK;
    snprintf(thread_key, sizeof thread_key, "%s", key);
    /* The name comes from a segment, which may be damaged and lack the terminating 0. */
    snprintf(thread_job_id, sizeof thread_job_id, "%.*s", MC_NAME_LEN - 1, job_id ? job_id : key);
    /* The thread does not block SIGBUS, which it gets if somebody truncates the board: mc_board_outlive handles it. */
    started = mc_thread_start(&thread, STACK_BYTES, SIGBUS, be_agent, NULL) == 0;
    owner_pid = (int)getpid();
    return started ? MC_OK : MC_E_FULL;
}

void mc_agent_thread_stop(void)
{
    if (!started || owner_pid != (int)getpid()) /* in a forked child the thread does not exist */
        return;
    atomic_store_explicit(&stopping, 1, memory_order_release);
    pthread_mutex_lock(&lock);
    if (running)
        mc_wake(&running->wake);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    started = 0;
    stopping = 0;
}
