/* The keeper, started as the shim starts it, with a make-believe profile writer. argv[1]: scenario. Exit code: number
   of failed checks. The keeper lies beside this program, MPICOLOC_PYTHON is the writer. */
#include "common/proc.h"
#include "../support/filters.h"
#include "../support/node.h"

static mc_node *node;
static int is_filtered;

static void start_first_rank(int n_ranks, int mode)
{
    mc_identity identity = {"k", "job k", "none", 0, n_ranks, 0, n_ranks, 1, mode};
    uint64_t before = mc_proc_n_filters(0), n_filters = before;
    CHECK(mc_start(&identity) == MC_OK);
    CHECK(mc_keeper_start("k", &n_filters) == MC_OK);
    CHECK(n_filters == (is_filtered ? 0 : before));
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD); /* no child that the application could meet */
}

static int all_gone(void)
{
    char path[MC_PATH_LEN];
    static const char *const whats[] = {"node", "log", "0.seg", "1.seg"};
    for (int i = 0; i < 4; i++)
        if (mc_shm_path(path, sizeof path, "k", whats[i]) == MC_OK && access(path, F_OK) == 0)
            return 0;
    return mc_board_path(path, sizeof path) == MC_OK && access(path, F_OK) != 0;
}

static void delete_files(void)
{
    char path[MC_PATH_LEN];
    static const char *const whats[] = {"node", "0.seg"};
    for (int i = 0; i < 2; i++)
        CHECK(mc_shm_path(path, sizeof path, "k", whats[i]) == MC_OK && unlink(path) == 0);
}

/* Behind a filter that kills who counts, a job that asks for another meter gets this one, and the reason. */
static void check_meter(void)
{
    int is_wanted = strcmp(getenv("MPICOLOC_METER"), "burst") == 0;
    CHECK(node->meter == MC_METER_BURST);
    CHECK(is_wanted || !is_filtered || strstr(node->meter_reason, "(seccomp)") != NULL);
}

/* A rank that the keeper sees: ends as the scenario says. */
static void be_first_rank(const char *scenario)
{
    uint64_t before = mc_proc_n_filters(0);
    if (strcmp(scenario, "filtered") == 0)
        filter_ids(SECCOMP_RET_KILL_PROCESS);
    if (strcmp(scenario, "forbidden") == 0)
        filter_perf(SECCOMP_RET_KILL_PROCESS);
    is_filtered = mc_proc_n_filters(0) > before;
    start_first_rank(1, MC_MODE_PRELOAD);
    node = map_when_there("k", "node", sizeof(mc_node));
    WAIT_FOR(node->keeper_pid && mc_own_segment()->sampling.alone, 5);
    CHECK(node->keeper_pid > 0 && node->agent_pid == node->keeper_pid);
    WAIT_FOR(node->t_last > node->t_open, 5); /* the agent has chosen its meter, and had a look */
    check_meter();
    if (strcmp(scenario, "killed") == 0)
        raise(SIGKILL);
    if (strcmp(scenario, "orphaned") == 0)
        CHECK(kill(node->keeper_pid, SIGKILL) == 0);
    if (strcmp(scenario, "deleted") == 0)
        delete_files();
    mc_stop(MC_RANK_FINALIZING);
    uint64_t t = mc_now_ns();
    mc_keeper_wait_profile("k", 1, 1);
    CHECK(mc_now_ns() - t < 5000000000u);
    int fails = strcmp(scenario, "failed") == 0 || strcmp(scenario, "dying") == 0 || strcmp(scenario, "dead") == 0;
    CHECK(mc_the_segment->profile == (fails ? MC_PROFILE_FAILED : MC_PROFILE_WRITTEN));
    CHECK(all_gone() || strcmp(scenario, "dead") == 0); /* while the rank is there: nobody may be, when it is not */
    _exit(n_failed);
}

int main(int argc, char **argv)
{
    int status = 0;
    if (argc != 2)
        return 2;
    alarm(TEST_LIMIT_S);
    pid_t pid = child();
    if (pid == 0)
        be_first_rank(argv[1]);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(strcmp(argv[1], "killed") == 0 ? WIFSIGNALED(status) : status == 0);
    CHECK_SOON(all_gone(), 10);
    return n_failed;
}
