/* Jobs that have a shared-memory folder each and share a board, and what another program may do at the socket where they
   meet. Exit code: number of failed checks; 77: no namespaces can be made here. */
#include "../support/node.h"
#include "common/board/socket.h"

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { CANNOT = 77, LATE_MS = 2 * MC_SOCKET_WAIT_MS };

static const uint64_t MS = 1000000u;

/* A process with a folder and process numbers of its own; tells how many others it sees. */
typedef struct apart {
    pid_t pid;
    int in, out;
} apart;

static void make_namespaces(void)
{
    int user = geteuid() == 0 ? 0 : CLONE_NEWUSER;
    if (unshare(user | CLONE_NEWNS | CLONE_NEWPID) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", getenv("MPICOLOC_SHM_DIR"), "tmpfs", 0, NULL) != 0)
        _exit(CANNOT);
}

/* 'l': how many jobs live? 'a': is it sure that these are all? 'q': leave. */
static void obey(mc_board *board, mc_slot *slot, int in, int out)
{
    char order, answer;
    mc_neighbour live[MC_N_SLOTS];
    while (read(in, &order, 1) == 1 && order != 'q') {
        __atomic_store_n(&slot->heartbeat, mc_now_ns(), __ATOMIC_RELEASE);
        answer = (char)(order == 'l' ? mc_board_live(board, mc_now_ns(), live)
                                     : mc_board_current(board) && !mc_board_unseen(board));
        if (write(out, &answer, 1) != 1)
            _exit(1);
    }
    mc_board_release(board, slot);
    mc_board_unmap(board);
    mc_board_remove_if_empty();
    _exit(0);
}

static void be_apart(int in, int out)
{
    mc_board *board;
    mc_slot *slot;
    mc_proc_stat self = {0};
    make_namespaces();
    pid_t inner = fork(); /* the first process of the new numbers */
    if (inner) {
        int status;
        waitpid(inner, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK(getpid() == 1 && mc_proc_read_stat(&self, 1) == MC_OK);
    CHECK(mc_board_open(&board) == MC_OK);
    CHECK(mc_board_claim(board, mc_board_owner(1, self.start_ticks), "apart", &slot) == MC_OK);
    __atomic_store_n(&slot->n_ranks, 1, __ATOMIC_RELEASE);
    if (n_failed || write(out, "", 1) != 1)
        _exit(1);
    obey(board, slot, in, out);
}

static apart start_apart(void)
{
    int to[2], from[2];
    char ready;
    CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
    apart one = {child(), to[1], from[0]};
    if (one.pid == 0) {
        close(to[1]);
        close(from[0]);
        be_apart(to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    if (read(from[0], &ready, 1) != 1) {
        int status;
        waitpid(one.pid, &status, 0);
        if (WEXITSTATUS(status) == CANNOT)
            exit(CANNOT);
        CHECK(!"it began");
    }
    return one;
}

static int told(const apart *one, char order)
{
    char answer = -1;
    CHECK(write(one->in, &order, 1) == 1 && read(one->out, &answer, 1) == 1);
    return answer;
}

static int ended(apart *one)
{
    int status;
    CHECK(write(one->in, "q", 1) == 1);
    close(one->in);
    waitpid(one->pid, &status, 0);
    close(one->out);
    return status;
}

/* The one that made the board ends first, by itself or not, and others join after that. */
static void test_apart(void)
{
    apart a = start_apart(), b = start_apart();
    CHECK(told(&a, 'l') == 2 && told(&b, 'l') == 2);
    CHECK(told(&a, 'a') == 1 && told(&b, 'a') == 1);
    CHECK(ended(&a) == 0);
    CHECK(told(&b, 'l') == 1);
    apart c = start_apart();
    CHECK(told(&b, 'l') == 2 && told(&c, 'l') == 2);
    CHECK(kill(b.pid, SIGKILL) == 0);
    ended(&b);
    CHECK_SOON(told(&c, 'l') == 1, 5);
    apart d = start_apart();
    CHECK(told(&c, 'l') == 2 && told(&d, 'l') == 2);
    CHECK(ended(&c) == 0 && ended(&d) == 0);
}

/* ---- another program at the socket ---- */

static void send_two(int to, int first, int second)
{
    char byte = 0, room[CMSG_SPACE(2 * sizeof(int))] __attribute__((aligned(8))) = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(head), (int[]){first, second}, 2 * sizeof(int));
    CHECK(sendmsg(to, &message, MSG_NOSIGNAL) == 1);
}

static int memory_file(const void *bytes, size_t size)
{
    int fd = memfd_create("squatter", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && pwrite(fd, bytes, size, 0) == (ssize_t)size);
    return fd;
}

static int board_file(uint32_t version, size_t size)
{
    mc_board *board = calloc(1, sizeof *board);
    *board = (mc_board){.magic = MC_MAGIC, .abi_version = version, .size_bytes = sizeof *board, .mark = 1};
    int fd = memory_file(board, size);
    free(board);
    return fd;
}

static void say_nothing(int to, int listener)
{
    (void)to, (void)listener;
}

static void say_garbage(int to, int listener)
{
    char garbage[4096];
    (void)listener;
    memset(garbage, 0x5a, sizeof garbage);
    CHECK(send(to, garbage, sizeof garbage, MSG_NOSIGNAL) > 0);
}

static void give_pipe(int to, int listener)
{
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    send_two(to, ends[0], listener);
    close(ends[0]);
    close(ends[1]);
}

static void give_other_socket(int to, int listener)
{
    int fd = board_file(MC_ABI_VERSION, sizeof(mc_board));
    (void)listener;
    send_two(to, fd, to);
    close(fd);
}

static void give_other_file(int to, int listener)
{
    int fd = memory_file("hello", 5);
    send_two(to, fd, listener);
    close(fd);
}

static void give_short_board(int to, int listener)
{
    int fd = board_file(MC_ABI_VERSION, sizeof(mc_board) / 2);
    send_two(to, fd, listener);
    close(fd);
}

static void give_board_to_read(int to, int listener)
{
    int fd = board_file(MC_ABI_VERSION, sizeof(mc_board));
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
    send_two(to, fd, listener);
    close(fd);
}

static pid_t start_squatter(void (*answer)(int, int))
{
    int listener = -1;
    CHECK(mc_board_socket_make(&listener) == MC_OK);
    pid_t pid = child();
    if (pid == 0) {
        int to[64];
        fcntl(listener, F_SETFL, 0);
        for (int n = 0; n < 64; n++) {
            to[n] = accept(listener, NULL, NULL);
            answer(to[n], listener);
            if (answer != say_nothing)
                close(to[n]);
        }
        pause();
    }
    close(listener);
    return pid;
}

/* The job goes on with the file in its folder, and says that it may not see all. When the squatter has gone, the job
   hands the board on itself. */
static void test_squatter(void)
{
    void (*const answers[])(int, int) = {say_nothing,     say_garbage,      give_pipe,         give_other_socket,
                                         give_other_file, give_short_board, give_board_to_read};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        mc_board *board = NULL, *again = NULL;
        mc_slot *slot;
        int listener = -1, fd = -1;
        uid_t stranger;
        pid_t squatter = start_squatter(answers[i]);
        uint64_t began = mc_now_ns();
        CHECK(mc_board_open(&board) == MC_OK && mc_board_claim(board, 1, "job", &slot) == MC_OK);
        CHECK(mc_now_ns() - began < LATE_MS * MS);
        CHECK(mc_board_current(board) && mc_board_unseen(board));
        CHECK(mc_board_open(&again) == MC_OK && again->mark == board->mark);
        end_process(squatter, SIGKILL);
        CHECK(mc_board_current(board) && !mc_board_unseen(board));
        CHECK(mc_board_socket_ask(&listener, &fd, LATE_MS, &stranger) == MC_OK && close(listener) == 0 &&
              close(fd) == 0);
        mc_board_unmap(again);
        mc_board_unmap(board);
        mc_board_remove_if_empty();
        WAIT_FOR((listener = -1, mc_board_socket_make(&listener) == MC_OK), 5); /* when its thread has ended */
        CHECK(listener >= 0 && close(listener) == 0);
    }
}

static int given_fd;

static void give_it(int to, int listener)
{
    send_two(to, given_fd, listener);
}

/* A board that is cut off later: leave it. */
static void test_cut_off(void)
{
    mc_board *board;
    mc_slot *slot = NULL;
    mc_neighbour live[MC_N_SLOTS];
    mc_board_outlive();
    given_fd = board_file(MC_ABI_VERSION, sizeof(mc_board));
    pid_t squatter = start_squatter(give_it);
    CHECK(mc_board_open(&board) == MC_OK && board->mark == 1 && mc_board_claim(board, 1, "job", &slot) == MC_OK);
    CHECK(mc_board_current(board));
    CHECK(ftruncate(given_fd, 0) == 0);
    CHECK(mc_board_live(board, mc_now_ns(), live) == 0 && !mc_board_current(board));
    mc_board_unmap(board);
    close(given_fd);
    end_process(squatter, SIGKILL);
}

static void test_other_version(void)
{
    mc_board *board;
    given_fd = board_file(MC_ABI_VERSION + 1, sizeof(mc_board) - sizeof(mc_slot));
    pid_t squatter = start_squatter(give_it);
    CHECK(mc_board_open(&board) == MC_E_VERSION);
    close(given_fd);
    end_process(squatter, SIGKILL);
}

static int n_unread(const int *fds, int n)
{
    int n_found = 0;
    for (int i = 0; i < n; i++) {
        struct pollfd event = {fds[i], POLLIN, 0};
        char byte;
        n_found += poll(&event, 1, 200) == 1 && recv(fds[i], &byte, 1, MSG_PEEK) == 1;
    }
    return n_found;
}

/* Who asks and does not read what comes leaves a few descriptors on their way, not as many as the user may have. */
static void test_not_read(void)
{
    int asked[32], n = sizeof asked / sizeof *asked;
    mc_board *board, *other;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CHECK(mc_board_socket_name(address.sun_path + 1, sizeof address.sun_path - 1));
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(address.sun_path + 1));
    CHECK(mc_board_open(&board) == MC_OK);
    for (int i = 0; i < n; i++) {
        asked[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(connect(asked[i], (struct sockaddr *)&address, length) == 0);
    }
    int n_found = n_unread(asked, n);
    CHECK(n_found > 0 && n_found < n / 2);
    for (int i = 0; i < n; i++)
        close(asked[i]);
    CHECK(mc_board_open(&other) == MC_OK && other->mark == board->mark && !mc_board_unseen(other));
    mc_board_unmap(other);
    mc_board_unmap(board);
    mc_board_remove_if_empty();
}

/* Who asks all the time costs the job next to nothing, and keeps nobody from its board. */
static void test_flood(void)
{
    mc_board *board, *other;
    struct rusage before, after;
    CHECK(mc_board_open(&board) == MC_OK);
    pid_t asker = child();
    if (asker == 0)
        for (int listener, fd;;) {
            uid_t stranger;
            if (mc_board_socket_ask(&listener, &fd, 1, &stranger) == MC_OK) {
                close(listener);
                close(fd);
            }
        }
    getrusage(RUSAGE_SELF, &before);
    nap_ms(1000);
    getrusage(RUSAGE_SELF, &after);
    uint64_t used_us = (uint64_t)(after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec -
                                  before.ru_stime.tv_usec + 1000000 * (after.ru_stime.tv_sec - before.ru_stime.tv_sec));
    CHECK(used_us < 50000);
    CHECK(mc_board_open(&other) == MC_OK && other->mark == board->mark && !mc_board_unseen(other));
    end_process(asker, SIGKILL);
    mc_board_unmap(other);
    mc_board_unmap(board);
    mc_board_remove_if_empty();
}

enum { STRANGER = 54321 };

/* What another user's program gives is not taken, not even looked at: where it is a descriptor of a file system of its own,
   close() would wait for it. Its jobs are no reason for doubt if they are on the board in the folder. */
static void test_stranger(void)
{
    mc_board *board;
    mc_slot *slot = NULL;
    int listener = -1, ready[2];
    char byte;
    if (geteuid() != 0)
        exit(CANNOT);
    CHECK(pipe(ready) == 0);
    given_fd = board_file(MC_ABI_VERSION, sizeof(mc_board));
    pid_t pid = child();
    if (pid == 0) {
        CHECK(setresuid(STRANGER, STRANGER, STRANGER) == 0 && mc_board_socket_make(&listener) == MC_OK);
        CHECK(write(ready[1], "", 1) == 1);
        fcntl(listener, F_SETFL, 0);
        for (;;)
            give_it(accept(listener, NULL, NULL), listener);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    uint64_t began = mc_now_ns();
    CHECK(mc_board_open(&board) == MC_OK && board->mark != 1 && mc_board_claim(board, 1, "job", &slot) == MC_OK);
    CHECK(mc_now_ns() - began < MC_SOCKET_WAIT_MS * MS / 2);
    CHECK(mc_board_current(board) && mc_board_unseen(board));
    slot->uid = STRANGER;
    CHECK(!mc_board_unseen(board));
    end_process(pid, SIGKILL);
    CHECK(mc_board_current(board) && !mc_board_unseen(board));
    mc_board_unmap(board);
    mc_board_remove_if_empty();
}

/* Who is not this user has neither the board nor the socket, and keeps nobody from them. */
static void test_strangers_ask(void)
{
    mc_board *board, *other;
    CHECK(geteuid() == 0 && mc_board_open(&board) == MC_OK);
    pid_t pid = child();
    if (pid == 0) {
        int listener, fd, n = 0;
        uid_t stranger;
        CHECK(setresuid(STRANGER, STRANGER, STRANGER) == 0);
        for (int i = 0; i < 32; i++)
            n += mc_board_socket_ask(&listener, &fd, 1, &stranger) == MC_OK;
        _exit(n);
    }
    CHECK(mc_board_open(&other) == MC_OK && other->mark == board->mark && !mc_board_unseen(other));
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    mc_board_unmap(other);
    mc_board_unmap(board);
    mc_board_remove_if_empty();
}

/* A map that was lost is another board, although its file has its size again. */
static void test_lost_map(void)
{
    mc_board *board;
    mc_neighbour live[MC_N_SLOTS];
    mc_board_outlive();
    given_fd = board_file(MC_ABI_VERSION, sizeof(mc_board));
    pid_t squatter = start_squatter(give_it);
    CHECK(mc_board_open(&board) == MC_OK && mc_board_current(board));
    CHECK(ftruncate(given_fd, 0) == 0 && mc_board_live(board, mc_now_ns(), live) == 0);
    CHECK(ftruncate(given_fd, sizeof(mc_board)) == 0 && !mc_board_current(board));
    mc_board_unmap(board);
    close(given_fd);
    end_process(squatter, SIGKILL);
}

static const named_test tests[] = {
    {"apart", test_apart},       {"squatter", test_squatter},
    {"cut_off", test_cut_off},   {"other_version", test_other_version},
    {"not_read", test_not_read}, {"flood", test_flood},
    {"stranger", test_stranger}, {"strangers_ask", test_strangers_ask},
    {"lost_map", test_lost_map},
};

int main(int argc, char **argv)
{
    char name[MC_NAME_LEN];
    alarm(TEST_LIMIT_S);
    if (!mc_board_socket_name(name, sizeof name)) {
        fprintf(stderr, "MPICOLOC_SHM_DIR is not in memory\n");
        return CANNOT;
    }
    run_named(tests, sizeof tests / sizeof *tests, argc > 1 ? argv[1] : NULL);
    return n_failed;
}
