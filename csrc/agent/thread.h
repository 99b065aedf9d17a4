/* The node agent as a thread of the keeper. */
#ifndef MPICOLOC_AGENT_THREAD_H
#define MPICOLOC_AGENT_THREAD_H

int mc_agent_thread_start(const char *key, const char *job_id);
void mc_agent_thread_stop(void);

#endif
