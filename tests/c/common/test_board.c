/* A board that is not as agents left it: damaged, shortened, replaced, of another version. Exit code: number of failed
   checks. */
#include "../support/node.h"

#include <sys/stat.h>

static void write_board(const void *bytes, size_t size)
{
    char path[MC_PATH_LEN];
    mc_board_path(path, sizeof path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    close(fd);
}

static void expect_refusal(const void *bytes, size_t size)
{
    mc_board *board;
    mc_agent *agent;
    write_board(bytes, size);
    CHECK(mc_board_open(&board) == MC_E_ABI);
    CHECK(mc_agent_open(&agent, "g", "g") == MC_OK);
    for (int i = 0; i < 10; i++)
        CHECK(mc_agent_step(agent, 30000000) == MC_OK);
    CHECK(agent->node->meter == MC_METER_NONE);
    CHECK(strstr(agent->node->meter_reason, "damaged") != NULL);
    mc_agent_close(agent);
}

static void test_garbage(void)
{
    char path[MC_PATH_LEN];
    mc_board *junk = malloc(sizeof *junk);
    memset(junk, 0x5a, sizeof *junk);
    expect_refusal("", 0);
    expect_refusal("hello", 5);
    expect_refusal(junk, sizeof *junk);
    /* The right head and nonsense in every slot: survive it. */
    junk->magic = MC_MAGIC;
    junk->abi_version = MC_ABI_VERSION;
    junk->size_bytes = sizeof *junk;
    write_board(junk, sizeof *junk);
    test_job a = start_job("a", 1);
    nap_ms(700);
    CHECK(kill(a.agent, 0) == 0);
    write_board("", 0); /* cut off under a running agent */
    nap_ms(700);
    CHECK(waitpid(a.agent, NULL, WNOHANG) == 0);
    finish_job(&a);
    free(junk);
    mc_board_path(path, sizeof path);
    unlink(path);
    mc_shm_path(path, sizeof path, "g", "node");
    unlink(path);
}

/* Cut off between the look at the file and the use of what it holds, which no agent can rule out. */
static void test_shortened(void)
{
    char path[MC_PATH_LEN];
    mc_board *board;
    mc_slot *slot = NULL;
    mc_reservation next;
    mc_neighbour live[MC_N_SLOTS];
    mc_board_outlive();
    CHECK(mc_board_open(&board) == MC_OK && mc_board_claim(board, 1, "short", &slot) == MC_OK);
    CHECK(mc_board_current(board));
    CHECK(mc_board_path(path, sizeof path) == MC_OK && truncate(path, 0) == 0);
    CHECK(mc_slot_reservation(slot, &next) == MC_OK && next.epoch == 0);
    mc_slot_reserve(slot, &(mc_reservation){1, 2, 3, 0, {4, 5, {0}}});
    CHECK(mc_board_live(board, mc_now_ns(), live) == 0);
    CHECK(!mc_board_current(board));
    mc_board_unmap(board);
    unlink(path);
}

/* What another user, who made the board, may put in its place. */
static void put_fifo(const char *path)
{
    CHECK(mkfifo(path, 0666) == 0);
}

static void put_folder(const char *path)
{
    CHECK(mkdir(path, 0777) == 0);
}

static void put_link(const char *path)
{
    CHECK(symlink("/dev/zero", path) == 0);
}

/* Who opens a file under a lease waits until its holder gives it up, 45 s at most. */
static void put_leased(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT, 0666);
    CHECK(fd >= 0 && fchmod(fd, 0666) == 0 && ftruncate(fd, sizeof(mc_board)) == 0);
    CHECK(fcntl(fd, F_SETLEASE, F_WRLCK) == 0);
}

/* No agent waits for it, and each says in the end that it was blind. */
static void test_replaced(void)
{
    static void (*const replacements[])(const char *) = {put_fifo, put_folder, put_link, put_leased};
    char path[MC_PATH_LEN];
    CHECK(mc_board_path(path, sizeof path) == MC_OK);
    signal(SIGIO, SIG_IGN); /* somebody wants the file under our lease */
    for (size_t i = 0; i < sizeof replacements / sizeof *replacements; i++) {
        test_job a = start_job("a", 1);
        WAIT_FOR(a.node->t_last > a.node->t_open && access(path, F_OK) == 0, 10);
        CHECK(a.node->meter == MC_METER_BURST && unlink(path) == 0);
        replacements[i](path);
        WAIT_FOR(a.node->meter == MC_METER_NONE, 10);
        CHECK(a.node->meter == MC_METER_NONE && strncmp(a.node->meter_reason, "the board", 9) == 0);
        uint64_t t_last = a.node->t_last, t_end = mc_now_ns();
        CHECK_SOON(a.node->t_last > t_last, 10);
        end_job(&a);
        CHECK(mc_now_ns() - t_end < 20000000000u);
        forget_job(&a);
        CHECK(mc_board_n_alive(path, 0) < 0);
        CHECK(remove(path) == 0);
    }
}

/* A board of a version to come, with one job on it. */
static void write_foreign_board(const char *path, uint64_t owner, uint64_t heartbeat)
{
    mc_board head = {.magic = MC_MAGIC, .abi_version = 9999, .slots_at_bytes = 4096, .slot_bytes = 1000, .n_slots = 3};
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    uint64_t slot[2] = {owner, heartbeat};
    CHECK(fd >= 0 && pwrite(fd, &head, offsetof(mc_board, slots), 0) > 0 && ftruncate(fd, 4096 + 3000) == 0);
    CHECK(pwrite(fd, slot, sizeof slot, 4096 + 2000) == sizeof slot);
    close(fd);
}

static void start_agent_beside(const char *why)
{
    mc_agent *agent;
    CHECK(mc_agent_open(&agent, "v", "v") == MC_OK);
    CHECK((agent->node->meter == MC_METER_NONE) == (why != NULL));
    CHECK(!why || strstr(agent->node->meter_reason, why));
    mc_agent_close(agent);
}

/* Each version has a board of its own: one left behind is in nobody's way, and living jobs of another are told of. */
static void test_other_versions(void)
{
    char path[MC_PATH_LEN];
    mc_proc_stat self;
    setenv("MPICOLOC_METER", "burst", 1);
    CHECK(mc_shm_path(path, sizeof path, "abi9999", "board") == MC_OK);
    CHECK(mc_proc_read_stat(&self, getpid()) == MC_OK);
    uint64_t owner = mc_board_owner(getpid(), self.start_ticks);
    const uint64_t planted[] = {0, mc_now_ns() - 70000000000u, mc_now_ns() + 3600000000000u, UINT64_MAX};
    write_foreign_board(path, owner + 1, mc_now_ns()); /* whose number is another's now */
    CHECK(mc_board_n_foreign() == 0 && mc_board_n_alive(path, 0) == 0);
    CHECK(mc_board_n_alive(path, 60000000000u) == 1); /* its process may be out of sight */
    start_agent_beside(NULL);
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) { /* any process of the node may be named */
        write_foreign_board(path, owner, planted[i]);
        CHECK(mc_board_n_foreign() == 0);
        start_agent_beside(NULL);
    }
    write_foreign_board(path, owner, mc_now_ns());
    CHECK(mc_board_n_foreign() == 1);
    start_agent_beside("another version");
    CHECK(truncate(path, 100) == 0 && mc_board_n_foreign() == 0);
    CHECK(truncate(path, 10) == 0 && mc_board_n_alive(path, 0) == MC_E_ABI);
    start_agent_beside(NULL);
    CHECK(unlink(path) == 0 && mc_shm_path(path, sizeof path, "v", "node") == MC_OK);
    unlink(path);
}

static const named_test tests[] = {
    {"garbage", test_garbage},
    {"shortened", test_shortened},
    {"replaced", test_replaced},
    {"other_versions", test_other_versions},
};

int main(int argc, char **argv)
{
    alarm(TEST_LIMIT_S);
    run_named(tests, sizeof tests / sizeof *tests, argc > 1 ? argv[1] : NULL);
    return n_failed;
}
