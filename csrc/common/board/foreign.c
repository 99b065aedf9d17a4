/* Boards of any version, which all have the same fields at the beginning of the board and of each slot. */
#include "common/board/board.h"

#include "common/options.h"
#include "common/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { N_FOREIGN_SLOTS = 4096 };

static const uint64_t FRESH_NS = 62000000000u; /* longer than any period: an agent renews its heartbeat once a period */

/* The beginning of a slot in every version. */
typedef struct slot_head {
    uint64_t owner, heartbeat;
} slot_head;

static int owner_alive(uint64_t owner)
{
    mc_proc_stat stat;
    int pid = (int)(owner >> 32);
    if (pid <= 0)
        return 0;
    /* If /proc hides the processes of other users (hidepid), we know only whether the process exists. */
    if (mc_proc_read_stat(&stat, pid) != MC_OK)
        return kill(pid, 0) != 0 && errno == EPERM;
    return stat.state != 'Z' && stat.state != 'X' && mc_board_owner(pid, stat.start_ticks) == owner;
}

/* 1 if the owner is alive or its heartbeat is recent. The heartbeat counts because a process in a container may be
   invisible here. */
static int may_live(const slot_head *slot, uint64_t quiet_ns)
{
    return slot->owner != 0 && (owner_alive(slot->owner) || (quiet_ns && slot->heartbeat + quiet_ns > mc_now_ns()));
}

/* Requires both a live owner and a recent heartbeat, because any user can write a file that names some live process. */
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
