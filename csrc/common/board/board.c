#define _GNU_SOURCE
#include "common/board/board.h"

#include "common/board/socket.h"
#include "common/options.h"
#include "common/proc.h"
#include "common/words.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_OPENED = 8, RETRY_MS = 10 };

static const uint64_t STARTUP_NS = 5000000000u;
static const uint64_t LONGEST_PERIOD_NS = (uint64_t)(MC_LONGEST_PERIOD_S * 1e9);

/* A board that this process has mapped. */
typedef struct opened {
    int is_taken;
    int is_lost; /* the file was truncated, and an empty mapping has replaced it */
    mc_board *board;
    int fd;             /* separate file description: its locks on slots show that this process is alive */
    int stop;           /* handle of the thread that passes the board to other processes; -1: none */
    uint64_t own_slots; /* a bit for each slot */
    int is_refused;     /* 1: the socket exists, but no process passed the board on */
    int is_strangers;   /* 1: the reason is that the socket belongs to another user */
    uid_t stranger;
} opened;

static opened all_opened[N_OPENED];

#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define STORE(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELEASE)

/* Each version has its own board, so that a leftover board does not disturb other versions. */
int mc_board_path(char *path, size_t size)
{
    char key[32];
    snprintf(key, sizeof key, "abi%d", MC_ABI_VERSION);
    return mc_shm_path(path, size, key, "board");
}

/* Create a complete board under a temporary name, then link it, so that no process sees an incomplete board. */
static int make_board(const char *path)
{
    char temporary[MC_PATH_LEN + 64];
    mc_board head = {.magic = MC_MAGIC,
                     .abi_version = MC_ABI_VERSION,
                     .size_bytes = sizeof(mc_board),
                     .mark = mc_now_ns() ^ (uint64_t)getpid() << 48,
                     .slots_at_bytes = offsetof(mc_board, slots),
                     .slot_bytes = sizeof(mc_slot),
                     .n_slots = MC_N_SLOTS};
    snprintf(temporary, sizeof temporary, "%s.%d.%llx", path, (int)getpid(), (unsigned long long)mc_now_ns());
    int fd = mc_shm_open(temporary, O_RDWR | O_CREAT | O_EXCL, 1);
    if (fd < 0)
        return MC_E_SHM;
    /* Allocate the memory now, so that a full /dev/shm is an error here and not a SIGBUS later. */
    int ok = posix_fallocate(fd, 0, sizeof head) == 0 && write(fd, &head, sizeof head) == (ssize_t)sizeof head &&
             fchmod(fd, 0666) == 0 && (link(temporary, path) == 0 || errno == EEXIST);
    unlink(temporary);
    close(fd);
    return ok ? MC_OK : MC_E_SHM;
}

/* Open a file description that this process does not share with others, because locks belong to descriptions. */
static int reopen(int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

static int map_board(mc_board **out, int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size < (off_t)offsetof(mc_board, slots))
        return MC_E_ABI;
    mc_board head;
    if (pread(fd, &head, offsetof(mc_board, slots), 0) != offsetof(mc_board, slots) || head.magic != MC_MAGIC)
        return MC_E_ABI;
    if (head.abi_version != MC_ABI_VERSION)
        return MC_E_VERSION;
    if (status.st_size != (off_t)sizeof(mc_board) || head.size_bytes != sizeof(mc_board))
        return MC_E_ABI;
    void *map = mmap(NULL, sizeof(mc_board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return MC_E_SHM;
    *out = map;
    return MC_OK;
}

/* Open the board's file, or create it. */
static int open_file(int *out)
{
    char path[MC_PATH_LEN];
    int status = mc_board_path(path, sizeof path);
    for (int i = 0; status == MC_OK && i < 3; i++) {
        *out = mc_shm_open(path, O_RDWR, 0);
        if (*out >= 0 || errno != ENOENT)
            return *out >= 0 ? MC_OK : errno == EPERM ? MC_E_ABI : MC_E_SHM;
        status = make_board(path);
    }
    return status == MC_OK ? MC_E_SHM : status;
}

/* Map the board behind `fd`, and open a separate file description. */
static int open_mapped(opened *own, int fd, mc_board **out)
{
    int status = map_board(out, fd);
    if (status != MC_OK)
        return status;
    own->fd = reopen(fd);
    if (own->fd >= 0)
        return MC_OK;
    munmap(*out, sizeof **out);
    *out = NULL;
    return MC_E_SHM;
}

/* Get the board from a process at the socket. Returns MC_E_GONE if this process has created the socket, or if no
   process answers. */
static int open_handed(opened *own, int *listener, int *fd, mc_board **out)
{
    uint64_t end = mc_now_ns() + MC_SOCKET_WAIT_MS * 1000000ull;
    for (;;) {
        uint64_t now = mc_now_ns();
        int made = mc_board_socket_make(listener);
        own->is_refused = made == MC_E_FULL;
        own->is_strangers = 0;
        if (made != MC_E_FULL || now >= end)
            return MC_E_GONE;
        int asked = mc_board_socket_ask(listener, fd, (int)((end - now) / 1000000) + 1, &own->stranger);
        own->is_strangers = asked == MC_E_STRANGER;
        if (own->is_strangers)
            return MC_E_GONE;
        if (asked == MC_OK) {
            int status = open_mapped(own, *fd, out);
            own->is_refused = 0;
            if (status == MC_OK || status == MC_E_VERSION)
                return status;
            close(*fd);
            close(*listener);
            *fd = *listener = -1;
        }
        poll(NULL, 0, RETRY_MS); /* the process at the socket may be about to end */
    }
}

static opened *find_opened(const mc_board *board)
{
    for (int i = 0; i < N_OPENED; i++)
        if (board && LOAD(all_opened[i].board) == board)
            return &all_opened[i];
    return NULL;
}

static opened *take_place(void)
{
    for (int i = 0; i < N_OPENED; i++)
        if (!__atomic_exchange_n(&all_opened[i].is_taken, 1, __ATOMIC_ACQUIRE))
            return &all_opened[i];
    return NULL;
}

static void leave_place(opened *own)
{
    STORE(own->board, NULL);
    STORE(own->is_taken, 0);
}

int mc_board_open(mc_board **out)
{
    int listener = -1, fd = -1;
    opened *own = take_place();
    if (!own)
        return MC_E_FULL;
    own->own_slots = 0;
    own->is_lost = 0;
    own->stop = -1;
    int status = open_handed(own, &listener, &fd, out);
    if (status == MC_E_GONE) {
        status = open_file(&fd);
        if (status == MC_OK)
            status = open_mapped(own, fd, out);
        if (status == MC_E_VERSION) /* the file has the name of this version's board, but not its content */
            status = MC_E_ABI;
    }
    if (status == MC_OK && listener >= 0) {
        own->stop = mc_board_socket_serve(listener, fd);
    } else {
        close(listener);
        close(fd);
    }
    if (status == MC_OK)
        STORE(own->board, *out);
    else
        leave_place(own);
    return status;
}

void mc_board_unmap(mc_board *board)
{
    opened *own = find_opened(board);
    if (!own)
        return;
    if (own->stop >= 0)
        mc_board_socket_end(own->stop);
    STORE(own->board, NULL);
    close(own->fd);
    munmap(board, sizeof *board);
    leave_place(own);
}

/* The board's file has been truncated, so memory beyond its end cannot be read. Replace it by an empty board. The empty
   board is not the node's board, so the agent leaves it when it next wakes. */
static void on_bus_error(int signal, siginfo_t *info, void *context)
{
    const char *at = info->si_addr;
    (void)context;
    if (info->si_code <= 0) /* sent by a process */
        return;
    for (int i = 0; i < N_OPENED; i++) {
        const char *begin = (const char *)LOAD(all_opened[i].board);
        if (begin && at >= begin && at < begin + sizeof(mc_board) &&
            mmap((void *)(uintptr_t)begin, sizeof(mc_board), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
            STORE(all_opened[i].is_lost, 1);
            return;
        }
    }
    struct sigaction fatal = {.sa_handler = SIG_DFL};
    sigaction(signal, &fatal, NULL);
}

void mc_board_outlive(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

/* 1 if the file at the path is this board. */
static int is_at_path(const mc_board *board, char *path, size_t size)
{
    uint64_t mark = 0;
    int fd = mc_board_path(path, size) == MC_OK ? mc_shm_open(path, O_RDONLY, 0) : -1;
    if (fd < 0)
        return 0;
    int ok = pread(fd, &mark, sizeof mark, offsetof(mc_board, mark)) == (ssize_t)sizeof mark && mark == board->mark;
    close(fd);
    return ok;
}

int mc_board_current(const mc_board *board)
{
    char path[MC_PATH_LEN];
    struct stat status;
    int listener;
    opened *own = find_opened(board);
    if (!own || LOAD(own->is_lost) || fstat(own->fd, &status) != 0 || status.st_size != (off_t)sizeof *board)
        return 0;
    if (own->stop >= 0)
        return 1;
    if (!is_at_path(board, path, sizeof path))
        return 0;
    /* The process that held the socket may have ended. */
    if (mc_board_socket_make(&listener) == MC_OK) {
        int fd = reopen(own->fd);
        own->is_refused = own->is_strangers = 0;
        own->stop = fd >= 0 ? mc_board_socket_serve(listener, fd) : -1;
        if (fd < 0)
            close(listener);
    }
    return 1;
}

/* Tag of the PID namespace, because process IDs are unique only within a namespace; 0 for the initial namespace.
   Namespaces that are created one after another can contain processes with equal IDs and start times. The
   multiplication makes the tags of these namespaces differ in many bits. */
static uint32_t namespace_tag(void)
{
    struct stat status;
    return stat("/proc/self/ns/pid", &status) == 0 ? ((uint32_t)status.st_ino - 0xEFFFFFFCu) * 0x9E3779B1u : 0;
}

uint64_t mc_board_owner(int pid, uint64_t start_ticks)
{
    return (uint64_t)(uint32_t)pid << 32 | ((uint32_t)start_ticks ^ namespace_tag());
}

/* ---- slots ---- */

static struct flock lock_of(int i_slot, int n_slots, short type)
{
    off_t at = (off_t)(offsetof(mc_board, slots) + (size_t)i_slot * sizeof(mc_slot));
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = n_slots > 1 ? 0 : 1};
}

static int set_lock(const opened *own, int i_slot, short type)
{
    struct flock lock = lock_of(i_slot, 1, type);
    return fcntl(own->fd, F_OFD_SETLK, &lock) == 0;
}

/* 1 if another live process has claimed the slot. This works across PID namespaces. */
static int is_held(int fd, int i_slot, int n_slots)
{
    struct flock lock = lock_of(i_slot, n_slots, F_WRLCK);
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static int is_own(const opened *own, int i_slot)
{
    return (int)(LOAD(own->own_slots) >> i_slot & 1);
}

/* Store byte by byte and atomically, because other processes may be reading. */
static void store_name(mc_slot *slot, const char *name)
{
    size_t n = strnlen(name, sizeof slot->job_id - 1);
    for (size_t i = 0; i < sizeof slot->job_id; i++)
        __atomic_store_n(&slot->job_id[i], i < n ? name[i] : '\0', __ATOMIC_RELAXED);
}

void mc_slot_name(const mc_slot *slot, char name[MC_NAME_LEN])
{
    for (size_t i = 0; i < MC_NAME_LEN; i++)
        name[i] = __atomic_load_n(&slot->job_id[i], __ATOMIC_RELAXED);
    name[MC_NAME_LEN - 1] = '\0';
    memset(name + strlen(name), 0, MC_NAME_LEN - strlen(name)); /* remove the rest of an earlier name that was longer */
}

/* Atomic stores, because other processes may be reading the slot. */
static void fill_slot(mc_slot *slot, const char *job_id)
{
    uint64_t now = mc_now_ns();
    STORE(slot->heartbeat, 0); /* 0 means that the slot is not filled yet */
    STORE(slot->n_ranks, 0);
    STORE(slot->uid, (uint32_t)geteuid());
    mc_slot_acknowledge(slot, &(mc_ack){0});
    STORE(slot->offer.n, 0);
    STORE(slot->want_duration_ns, 0);
    STORE(slot->want_period_ns, 0);
    STORE(slot->want_per_turn, 0);
    STORE(slot->books, 0);
    mc_words_store(slot->cpu_mask, (uint64_t[MC_N_CPU_WORDS]){0}, sizeof slot->cpu_mask);
    STORE(slot->cpu_ns, 0);
    store_name(slot, job_id);
    mc_slot_reserve(slot, &(mc_reservation){0});
    mc_slot_book(slot, &(mc_booking){0, 0, 0});
    STORE(slot->t_joined, now);
    STORE(slot->heartbeat, now);
}

static void clear_slot(mc_slot *slot)
{
    STORE(slot->heartbeat, 0);
    STORE(slot->owner, 0);
}

int mc_board_claim(mc_board *board, uint64_t owner, const char *job_id, mc_slot **out)
{
    opened *own = find_opened(board);
    for (int i = 0; own && i < MC_N_SLOTS; i++) {
        mc_slot *slot = &board->slots[i];
        if (is_own(own, i) || !set_lock(own, i, F_WRLCK))
            continue;
        __atomic_fetch_or(&own->own_slots, 1ull << i, __ATOMIC_ACQ_REL);
        clear_slot(slot); /* the previous owner may have died without clearing it */
        STORE(slot->owner, owner);
        fill_slot(slot, job_id);
        *out = slot;
        return MC_OK;
    }
    return MC_E_FULL;
}

void mc_board_release(mc_board *board, mc_slot *slot)
{
    opened *own = find_opened(board);
    int i_slot = (int)(slot - board->slots);
    if (!own || !is_own(own, i_slot))
        return;
    clear_slot(slot);
    __atomic_fetch_and(&own->own_slots, ~(1ull << i_slot), __ATOMIC_ACQ_REL);
    set_lock(own, i_slot, F_UNLCK);
}

void mc_board_remove_if_empty(void)
{
    char path[MC_PATH_LEN];
    mc_board head;
    int fd = mc_board_path(path, sizeof path) == MC_OK ? mc_shm_open(path, O_RDONLY, 0) : -1;
    if (fd < 0)
        return;
    /* A job may claim a slot at this moment. If it got the board from the socket, it needs no file; otherwise it moves
       to a new board when it next wakes. */
    if (pread(fd, &head, offsetof(mc_board, slots), 0) == offsetof(mc_board, slots) && head.magic == MC_MAGIC &&
        !is_held(fd, 0, MC_N_SLOTS))
        unlink(path);
    close(fd);
}

int mc_board_live(mc_board *board, uint64_t now, mc_neighbour *out)
{
    const opened *own = find_opened(board);
    int n = 0;
    for (int i = 0; i < MC_N_SLOTS; i++) {
        mc_slot *slot = &board->slots[i];
        uint64_t owner = LOAD(slot->owner), heartbeat = LOAD(slot->heartbeat);
        /* Ignore the heartbeat's age: a job may be running although its agent is stopped, or has a different clock (in
           a container). */
        if (owner == 0 || heartbeat == 0 || !own || !(is_own(own, i) || is_held(own->fd, i, 1)))
            continue;
        mc_neighbour job = {i, owner, LOAD(slot->t_joined), LOAD(slot->n_ranks)};
        /* A job without ranks is writing its profile, or has just joined and will have ranks soon. */
        if (job.n_ranks || job.t_joined + STARTUP_NS > now)
            out[n++] = job;
    }
    return n;
}

uint64_t mc_board_period(mc_board *board, const mc_neighbour *live, int n_live, uint64_t at_least_ns)
{
    uint64_t period_ns = at_least_ns;
    for (int i = 0; i < n_live; i++) {
        uint64_t wish = LOAD(board->slots[live[i].i_slot].want_period_ns);
        if (wish > period_ns && wish <= LONGEST_PERIOD_NS)
            period_ns = wish;
    }
    return period_ns;
}

/* ---- for readers ---- */

int mc_board_read(mc_board *out)
{
    int listener = -1, fd = -1, status = MC_OK;
    uid_t stranger;
    mc_board_socket_ask(&listener, &fd, MC_SOCKET_WAIT_MS, &stranger);
    close(listener);
    if (fd < 0) {
        char path[MC_PATH_LEN];
        status = mc_board_path(path, sizeof path);
        fd = status == MC_OK ? mc_shm_open(path, O_RDONLY, 0) : -1;
    }
    if (fd < 0)
        return errno == ENOENT ? MC_E_GONE : errno == EPERM ? MC_E_ABI : MC_E_SHM;
    ssize_t n = pread(fd, out, sizeof *out, 0);
    int is_ours = n == (ssize_t)sizeof *out && out->magic == MC_MAGIC && out->abi_version == MC_ABI_VERSION;
    for (int i = 0; is_ours && i < MC_N_SLOTS; i++)
        if (!is_held(fd, i, 1))
            out->slots[i].owner = 0;
    close(fd);
    return is_ours ? MC_OK : MC_E_ABI;
}

/* ---- jobs that this process cannot see ---- */

/* Whether the process has a separate mount namespace. The inode number of the initial namespace is in a fixed range, or
   is the first that the kernel allocated. */
static int has_own_mounts(void)
{
    struct stat status;
    return stat("/proc/self/ns/mnt", &status) == 0 && status.st_ino >= 0xF0000010u;
}

/* Whether the process has a separate network namespace. Only in the initial namespace does the kernel show the settings
   that apply to all networks. */
static int has_own_network(void)
{
    return access("/proc/sys/net/core/somaxconn", F_OK) == 0 &&
           access("/proc/sys/net/core/netdev_max_backlog", F_OK) != 0;
}

static const char *why_unseen(int is_refused)
{
    char name[MC_NAME_LEN];
    if (is_refused)
        return "the socket where jobs meet is held by a program that gives no board";
    /* If the user names the folder, all jobs of the node are assumed to share it. */
    if (!getenv("MPICOLOC_SHM_DIR") && has_own_mounts() && has_own_network() && mc_board_socket_name(name, sizeof name))
        return "neither /dev/shm nor the network is the node's";
    return NULL;
}

/* Whether the user has a job on this board. If so, that job found the board's file in a shared folder, so the user's
   socket hides no jobs. */
static int has_job_of(const mc_board *board, const opened *own, uid_t uid)
{
    for (int i = 0; i < MC_N_SLOTS; i++)
        if (LOAD(board->slots[i].owner) && board->slots[i].uid == uid &&
            (!own || is_own(own, i) || is_held(own->fd, i, 1)))
            return 1;
    return 0;
}

const char *mc_board_unseen(const mc_board *board)
{
    const opened *own = find_opened(board);
    return why_unseen(own && own->is_refused && !(own->is_strangers && has_job_of(board, own, own->stranger)));
}

const char *mc_board_would_not_see(void)
{
    int listener = -1, fd = -1, status = MC_OK;
    uid_t stranger = 0;
    mc_board *board = calloc(1, sizeof *board);
    if (mc_board_socket_make(&listener) == MC_E_FULL)
        status = mc_board_socket_ask(&listener, &fd, MC_SOCKET_WAIT_MS, &stranger);
    close(listener);
    close(fd);
    if (status == MC_E_STRANGER && board && mc_board_read(board) == MC_OK && has_job_of(board, NULL, stranger))
        status = MC_OK;
    free(board);
    return why_unseen(status != MC_OK);
}
