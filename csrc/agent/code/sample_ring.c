#define _GNU_SOURCE
#include "agent/code/sample_ring.h"

#include "common/mpicoloc.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __x86_64__
/* asm/perf_regs.h numbers AX to BP from 0 on, and R8 to R15 from 16 on. */
static const uint64_t REGISTERS = 0xff007f;
#else
static const uint64_t REGISTERS = 0;
#endif

enum {
    N_PAGES = 16,
    N_PAGES_WITH_REGISTERS = 32,
    RECORD_BYTES = 16,
    REGISTERS_BYTES = 8 * (2 + MC_N_SAMPLED_REGISTERS) /* time, kind of registers, and values */
};

static int open_event(int tid, uint64_t every_ns, int has_registers)
{
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.size = sizeof attr;
    attr.type = PERF_TYPE_SOFTWARE;
    attr.config = PERF_COUNT_SW_TASK_CLOCK;
    attr.exclude_kernel = 1;
    attr.exclude_hv = 1;
    attr.disabled = 1;
    attr.sample_period = every_ns;
    attr.sample_type = PERF_SAMPLE_IP;
    if (has_registers) {
        attr.sample_type |= PERF_SAMPLE_READ | PERF_SAMPLE_REGS_USER;
        attr.sample_regs_user = REGISTERS;
    }
    return (int)syscall(SYS_perf_event_open, &attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static int start(mc_sample_ring *ring)
{
    size_t n_pages = ring->has_registers ? N_PAGES_WITH_REGISTERS : N_PAGES;
    size_t record_bytes = RECORD_BYTES + (ring->has_registers ? REGISTERS_BYTES : 0);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (n_pages + 1) * page;
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
    if (map == MAP_FAILED)
        return MC_E_PERF;
    ring->map = map;
    ring->n_bytes = bytes;
    /* If the agent does not read the ring in time, the kernel stops the event when the ring is full. */
    return ioctl(ring->fd, PERF_EVENT_IOC_REFRESH, (int)(n_pages * page / record_bytes)) == 0 ? MC_OK : MC_E_PERF;
}

int mc_sample_ring_open(mc_sample_ring *ring, int tid, uint64_t every_ns, int has_registers)
{
    has_registers = has_registers && REGISTERS != 0;
    *ring = (mc_sample_ring){.fd = open_event(tid, every_ns, has_registers), .has_registers = has_registers};
    if (ring->fd >= 0 && start(ring) == MC_OK)
        return MC_OK;
    int error = errno;
    mc_sample_ring_close(ring);
    errno = error;
    return MC_E_PERF;
}

int mc_sample_ring_ran_ns(const mc_sample_ring *ring, uint64_t *ran_ns)
{
    return read(ring->fd, ran_ns, sizeof *ran_ns) == (ssize_t)sizeof *ran_ns ? MC_OK : MC_E_PERF;
}

void mc_sample_ring_set_every(const mc_sample_ring *ring, uint64_t every_ns)
{
    ioctl(ring->fd, PERF_EVENT_IOC_PERIOD, &every_ns);
}

/* A record holds the address. With registers it also holds the time, the kind of registers (0: the thread has none),
   and their values. */
static mc_thread_sample sample_of(const mc_sample_ring *ring, const uint64_t *words, size_t n_bytes)
{
    mc_thread_sample sample = {.address = words[0]};
    if (ring->has_registers && n_bytes >= (size_t)RECORD_BYTES + REGISTERS_BYTES && words[2]) {
        sample.ran_ns = words[1];
        sample.registers = words + 3;
    }
    return sample;
}

uint64_t mc_sample_ring_each(const mc_sample_ring *ring, void (*found)(void *data, const mc_thread_sample *sample),
                             void *data)
{
    uint64_t n = 0;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!ring->map)
        return 0;
    /* Records are never consumed, so the kernel stops writing at the ring's end, and no record continues at its
       start. */
    const struct perf_event_mmap_page *head = (const void *)ring->map;
    uint64_t n_written = __atomic_load_n(&head->data_head, __ATOMIC_ACQUIRE), at = 0;
    n_written = n_written < ring->n_bytes - page ? n_written : ring->n_bytes - page;
    while (at + sizeof(struct perf_event_header) <= n_written) {
        const struct perf_event_header *record = (const void *)(ring->map + page + at);
        if (record->size < sizeof *record || record->size > n_written - at)
            break;
        int is_sample = record->type == PERF_RECORD_SAMPLE && record->size >= RECORD_BYTES;
        if (is_sample && found) {
            mc_thread_sample sample = sample_of(ring, (const void *)(record + 1), record->size);
            found(data, &sample);
        }
        n += (uint64_t)is_sample;
        at += record->size;
    }
    return n;
}

void mc_sample_ring_stop(const mc_sample_ring *ring)
{
    ioctl(ring->fd, PERF_EVENT_IOC_DISABLE, 0);
}

void mc_sample_ring_close(mc_sample_ring *ring)
{
    if (ring->map)
        munmap(ring->map, ring->n_bytes);
    if (ring->fd >= 0)
        close(ring->fd);
    *ring = (mc_sample_ring){.fd = -1};
}
