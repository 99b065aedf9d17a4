#define _GNU_SOURCE
#include "common/board.h"

#include "common/options.h"
#include "common/proc.h"
#include "common/words.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_READ_TRIES = 32 };

static const uint64_t HEARTBEAT_GRACE_NS = 2000000000u;
static const uint64_t STARTUP_NS = 5000000000u;
static const uint64_t LONGEST_PERIOD_NS = (uint64_t)(MC_LONGEST_PERIOD_S * 1e9);
static const uint64_t LONGEST_SHUTTER_NS = 1000000000u;

static mc_board *mapped;

#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define STORE(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELEASE)

/* Each version has a board of its own, so a board that is left behind disturbs no other version. */
int mc_board_path(char *path, size_t size)
{
    char key[32];
    snprintf(key, sizeof key, "abi%d", MC_ABI_VERSION);
    return mc_shm_path(path, size, key, "board");
}

/* Make a complete board under a temporary name, then link it: nobody ever sees half a board. */
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

static int map_board(mc_board **out, const char *path)
{
    struct stat status;
    int fd = mc_shm_open(path, O_RDWR, 0);
    if (fd < 0)
        return errno == ENOENT ? MC_E_GONE : errno == EPERM ? MC_E_ABI : MC_E_SHM;
    int ok = fstat(fd, &status) == 0 && status.st_size == (off_t)sizeof(mc_board);
    void *map = ok ? mmap(NULL, sizeof(mc_board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (map == MAP_FAILED)
        return ok ? MC_E_SHM : MC_E_ABI;
    mc_board *board = map;
    if (board->magic != MC_MAGIC || board->abi_version != MC_ABI_VERSION || board->size_bytes != sizeof(mc_board)) {
        munmap(map, sizeof(mc_board));
        return MC_E_ABI;
    }
    *out = board;
    return MC_OK;
}

int mc_board_open(mc_board **out)
{
    char path[MC_PATH_LEN];
    int status = mc_board_path(path, sizeof path);
    for (int i = 0; status == MC_OK && i < 3; i++) {
        status = map_board(out, path);
        if (status == MC_OK)
            __atomic_store_n(&mapped, *out, __ATOMIC_RELEASE);
        if (status != MC_E_GONE)
            return status;
        status = make_board(path);
    }
    return status;
}

void mc_board_unmap(mc_board *board)
{
    mc_board *expected = board;
    if (!board)
        return;
    __atomic_compare_exchange_n(&mapped, &expected, NULL, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    munmap(board, sizeof *board);
}

/* Somebody has shortened the board's file, so what is behind its end cannot be read. Put an empty board in its
   place. That is not the node's board any more, so the agent leaves it when it wakes next. */
static void on_bus_error(int signal, siginfo_t *info, void *context)
{
    const char *at = info->si_addr, *begin = (const char *)LOAD(mapped);
    (void)context;
    if (begin && at >= begin && at < begin + sizeof(mc_board) &&
        mmap((void *)(uintptr_t)begin, sizeof(mc_board), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
        return;
    struct sigaction fatal = {.sa_handler = SIG_DFL};
    sigaction(signal, &fatal, NULL);
}

void mc_board_outlive(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

int mc_board_current(const mc_board *board)
{
    /* Look the file up each time: the application could close a descriptor that we keep open, and reuse its number. */
    char path[MC_PATH_LEN];
    struct stat status;
    uint64_t mark = 0;
    if (mc_board_path(path, sizeof path) != MC_OK)
        return 0;
    int fd = mc_shm_open(path, O_RDONLY, 0);
    if (fd < 0)
        return 0;
    int ok = fstat(fd, &status) == 0 && status.st_size == (off_t)sizeof *board &&
             pread(fd, &mark, sizeof mark, offsetof(mc_board, mark)) == (ssize_t)sizeof mark && mark == board->mark;
    close(fd);
    return ok;
}

uint64_t mc_board_owner(int pid, uint64_t start_ticks)
{
    return (uint64_t)(uint32_t)pid << 32 | (uint32_t)start_ticks;
}

static int owner_alive(uint64_t owner)
{
    mc_proc_stat stat;
    int pid = (int)(owner >> 32);
    if (pid <= 0)
        return 0;
    /* Where /proc hides processes of other users (hidepid), we only know whether the process exists. */
    if (mc_proc_read_stat(&stat, pid) != MC_OK)
        return kill(pid, 0) != 0 && errno == EPERM;
    return stat.state != 'Z' && stat.state != 'X' && (uint32_t)stat.start_ticks == (uint32_t)owner;
}

/* Much cheaper than reading /proc. A reused pid is noticed because the heartbeat is missing. */
static int pid_used(int pid)
{
    return pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
}

/* Byte by byte: the slot may become another job's meanwhile. */
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
    memset(name + strlen(name), 0, MC_NAME_LEN - strlen(name)); /* a longer name may have stood there before */
}

/* Store atomically what readers load atomically, as they may be reading now. */
static void fill_slot(mc_slot *slot, const char *job_id)
{
    uint64_t now = mc_now_ns();
    STORE(slot->heartbeat, 0); /* not live until the slot is filled */
    STORE(slot->n_ranks, 0);
    STORE(slot->uid, (uint32_t)geteuid());
    mc_slot_acknowledge(slot, &(mc_ack){0});
    STORE(slot->offer.n, 0);
    STORE(slot->want_duration_ns, 0);
    STORE(slot->want_period_ns, 0);
    STORE(slot->want_per_turn, 0);
    STORE(slot->books, 0);
    mc_words_store(slot->cpu_mask, (uint64_t[MC_N_CPU_WORDS]){0}, sizeof slot->cpu_mask);
    store_name(slot, job_id);
    mc_slot_reserve(slot, &(mc_reservation){0});
    mc_slot_book(slot, &(mc_booking){0, 0, 0});
    STORE(slot->t_joined, now);
    STORE(slot->heartbeat, now);
}

int mc_board_claim(mc_board *board, uint64_t owner, const char *job_id, mc_slot **out)
{
    mc_board_reap(board);
    for (int i = 0; i < MC_N_SLOTS; i++) {
        uint64_t expected = 0;
        mc_slot *slot = &board->slots[i];
        if (__atomic_compare_exchange_n(&slot->owner, &expected, owner, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            fill_slot(slot, job_id);
            *out = slot;
            return MC_OK;
        }
    }
    return MC_E_FULL;
}

void mc_board_release(mc_slot *slot, uint64_t owner)
{
    /* A heartbeat of 0 is for the next owner. Two processes may free the slot of a dead job at once: the later one
       finds the heartbeat of the job that has claimed the slot meanwhile, and does nothing. */
    uint64_t heartbeat = LOAD(slot->heartbeat);
    if (LOAD(slot->owner) != owner ||
        !__atomic_compare_exchange_n(&slot->heartbeat, &heartbeat, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return;
    __atomic_compare_exchange_n(&slot->owner, &owner, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

void mc_board_reap(mc_board *board)
{
    for (int i = 0; i < MC_N_SLOTS; i++) {
        uint64_t owner = LOAD(board->slots[i].owner);
        if (owner && !owner_alive(owner))
            mc_board_release(&board->slots[i], owner);
    }
}

void mc_board_remove_if_empty(mc_board *board)
{
    char path[MC_PATH_LEN];
    mc_board_reap(board);
    for (int i = 0; i < MC_N_SLOTS; i++)
        if (LOAD(board->slots[i].owner))
            return;
    /* A job that claims a slot just now finds its board gone when it wakes next, and moves to a new one. */
    if (mc_board_current(board) && mc_board_path(path, sizeof path) == MC_OK)
        unlink(path);
}

int mc_board_live(mc_board *board, uint64_t now, uint64_t period_ns, mc_neighbour *out)
{
    int n = 0;
    for (int i = 0; i < MC_N_SLOTS; i++) {
        mc_slot *slot = &board->slots[i];
        uint64_t owner = LOAD(slot->owner), heartbeat = LOAD(slot->heartbeat);
        int is_silent = heartbeat + HEARTBEAT_GRACE_NS + 2 * period_ns < now;
        /* An agent that is stopped, or has another clock (in a container), renews no heartbeat, but its job runs. */
        if (owner == 0 || heartbeat == 0 || !(is_silent ? owner_alive(owner) : pid_used((int)(owner >> 32))))
            continue;
        mc_neighbour job = {i, owner, LOAD(slot->t_joined), LOAD(slot->n_ranks)};
        /* A job without ranks only writes its profile, unless it has just come: then it will have ranks soon. */
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

/* The fields between the two numbers are stored with release and loaded with acquire: a reader that sees one of them
   also sees the odd number, even on processors that reorder stores and loads. The last load of the number needs no
   order of its own, as it follows loads with acquire. Fences would do the same, but TSan does not know them. */
void mc_slot_reserve(mc_slot *slot, const mc_reservation *reservation)
{
    /* It is odd already if the last owner died while writing. */
    uint64_t odd = __atomic_load_n(&slot->seq, __ATOMIC_RELAXED) | 1;
    __atomic_store_n(&slot->seq, odd, __ATOMIC_RELAXED);
    mc_words_store(&slot->reservation, reservation, sizeof *reservation);
    STORE(slot->seq, odd + 1);
}

int mc_slot_reservation(mc_slot *slot, mc_reservation *out)
{
    for (int i = 0; i < N_READ_TRIES; i++) {
        uint64_t before = LOAD(slot->seq);
        mc_words_load(out, &slot->reservation, sizeof *out);
        if (!(before & 1) && __atomic_load_n(&slot->seq, __ATOMIC_RELAXED) == before)
            return MC_OK;
    }
    return MC_E_GONE;
}

void mc_slot_book(mc_slot *slot, const mc_booking *booking)
{
    if (LOAD(slot->booking.t0) == booking->t0 && LOAD(slot->booking.t1) == booking->t1) {
        /* Without removing the booking first: another job might book in that moment. */
        STORE(slot->booking.is_firm, booking->is_firm);
        return;
    }
    STORE(slot->booking.t0, 0);
    STORE(slot->booking.t1, booking->t1);
    STORE(slot->booking.is_firm, booking->is_firm);
    __atomic_store_n(&slot->booking.t0, booking->t0, __ATOMIC_SEQ_CST);
}

int mc_slot_booking(mc_slot *slot, mc_booking *out)
{
    out->t0 = __atomic_load_n(&slot->booking.t0, __ATOMIC_SEQ_CST);
    out->t1 = LOAD(slot->booking.t1);
    out->is_firm = LOAD(slot->booking.is_firm);
    int is_whole = out->t0 != 0 && __atomic_load_n(&slot->booking.t0, __ATOMIC_SEQ_CST) == out->t0;
    return is_whole && out->t1 > out->t0 && out->t1 - out->t0 <= LONGEST_SHUTTER_NS ? MC_OK : MC_E_GONE;
}

void mc_slot_acknowledge(mc_slot *slot, const mc_ack *ack)
{
    mc_ack unnumbered = *ack;
    unnumbered.epoch = 0;
    mc_words_store(&slot->ack, &unnumbered, sizeof unnumbered);
    STORE(slot->ack.epoch, ack->epoch);
}

int mc_slot_ack(mc_slot *slot, uint64_t epoch, mc_ack *out)
{
    mc_words_load(out, &slot->ack, sizeof *out);
    return out->epoch == epoch && LOAD(slot->ack.epoch) == epoch ? MC_OK : MC_E_GONE;
}

uint64_t mc_instant_ns(uint64_t i_instant, uint64_t period_ns)
{
    uint64_t x = i_instant * 0x9e3779b97f4a7c15ULL; /* splitmix64: neighbouring numbers land far apart */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    x ^= x >> 31;
    return i_instant * period_ns + (x >> 8) % (period_ns * 3 / 10 + 1);
}

/* ---- boards of any version: how a board and its slots begin is the same in all ---- */

enum { N_FOREIGN_SLOTS = 4096 };

static const uint64_t FRESH_NS = 62000000000u; /* longer than any period: an agent renews its heartbeat once a period */

/* Every version's slot begins so. */
typedef struct slot_head {
    uint64_t owner, heartbeat;
} slot_head;

/* Count the owner if it is alive, or if its heartbeat is recent: it may be invisible here, in a container. */
static int may_live(const slot_head *slot, uint64_t quiet_ns)
{
    return slot->owner != 0 && (owner_alive(slot->owner) || (quiet_ns && slot->heartbeat + quiet_ns > mc_now_ns()));
}

/* Both must hold: anybody can write a file that names some process. */
static int lives(const slot_head *slot, uint64_t quiet_ns)
{
    uint64_t now = mc_now_ns();
    return slot->heartbeat <= now && now - slot->heartbeat < quiet_ns && owner_alive(slot->owner);
}

static int count_slots(int fd, const mc_board *head, int (*counts)(const slot_head *, uint64_t), uint64_t quiet_ns)
{
    int n = 0;
    slot_head slot;
    for (uint64_t i = 0; i < head->n_slots && i < N_FOREIGN_SLOTS; i++) {
        if (pread(fd, &slot, sizeof slot, (off_t)(head->slots_at_bytes + i * head->slot_bytes)) != sizeof slot)
            break;
        n += counts(&slot, quiet_ns);
    }
    return n;
}

static int count_on(const char *path, int (*counts)(const slot_head *, uint64_t), uint64_t quiet_ns)
{
    mc_board head;
    int fd = mc_shm_open(path, O_RDONLY, 0);
    if (fd < 0)
        return errno == ENOENT ? MC_E_GONE : errno == EPERM ? MC_E_ABI : MC_E_SHM;
    int ok = pread(fd, &head, offsetof(mc_board, _pad), 0) == offsetof(mc_board, _pad) && head.magic == MC_MAGIC;
    int n = ok ? count_slots(fd, &head, counts, quiet_ns) : MC_E_ABI;
    close(fd);
    return n;
}

int mc_board_n_alive(const char *path, uint64_t quiet_ns)
{
    return count_on(path, may_live, quiet_ns);
}

static void add_foreign(void *data, const char *version)
{
    char path[MC_PATH_LEN], key[MC_NAME_LEN];
    snprintf(key, sizeof key, "abi%.32s", version);
    int n = atoi(version) != MC_ABI_VERSION && mc_shm_path(path, sizeof path, key, "board") == MC_OK
                ? count_on(path, lives, FRESH_NS)
                : 0;
    *(int *)data += n > 0 ? n : 0;
}

int mc_board_n_foreign(void)
{
    int n = 0;
    mc_dir_scan(mc_option_text(MC_OPT_SHM_DIR), "mpicoloc.abi", ".board", add_foreign, &n);
    return n;
}
