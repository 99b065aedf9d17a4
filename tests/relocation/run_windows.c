/* Runs each window of standard input on this processor from random states, as it is and relocated, and compares
   registers, flags, memory and faults. Arguments: states of each window, seed, most windows. Equal windows are run
   once. Standard output: the counts below; standard error: what differs. Exit code 1: something differs. */
#define _GNU_SOURCE
#include "common/mpicoloc.h"
#include "enter.h"
#include "windows.h"

#include <capstone/capstone.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

/* clang-format off */
#define COUNTS(X) \
    X(windows) X(distinct) X(encodings) X(executed) X(faulted_behind_place) X(faulted_at_place) X(runs) X(faulted_runs) X(cut) X(rip_relative) \
    X(skipped_unknown_to_processor) X(skipped_reads_near_itself) X(skipped_out_of_reach) X(differences)
/* clang-format on */

#define MEMBER(name) uint64_t n_##name;
static struct {
    COUNTS(MEMBER)
} sums;

#define PAGE UINT64_C(4096)
#define CODE UINT64_C(0x1000000000)
#define SCRATCH UINT64_C(0x3700000000) /* half of it, or a third, is not near the code */
enum { N_SCRATCH = 4 * 4096, N_AREAS = 48, N_POOL = 1 << 20, N_INSNS = 128, N_COUNT_BYTES = 9, N_TABLE = 1 << 25 };
enum { CF = 1, FIVE_FLAGS = 0x8d4 }; /* OF SF ZF AF PF */

static const int64_t stub_offsets[] = {-0x7ff00000, -0x40000000, -0x10000, 0x10000, 0x1000000, 0x40000000, 0x7ff00000};
enum { N_STUBS = sizeof stub_offsets / sizeof *stub_offsets };

state saved, at_rest;
static __thread uint64_t counter;
static uint8_t pool[N_POOL];
static mc_decoder *decoder;
static csh handle;
static cs_insn *insn;

typedef struct area {
    uint8_t *at;
    size_t n;
    const uint8_t *initial;
    uint8_t after[N_SCRATCH];
} area;

static area areas[N_AREAS];
static int n_areas;

typedef struct fault {
    int signal;
    uint64_t at, address;
} fault;

static volatile int is_inside;
static fault last_fault;

static uint64_t next_random(void)
{
    static uint64_t x;
    uint64_t z = (x += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t below(uint64_t n)
{
    return next_random() % n;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (!is_inside) {
        signal(number, SIG_DFL);
        return;
    }
    last_fault = (fault){number, (uint64_t)registers[REG_RIP], 0};
    if (number == SIGSEGV || number == SIGBUS)
        last_fault.address = (uint64_t)(uintptr_t)info->si_addr;
    registers[REG_RIP] = (greg_t)(uintptr_t)leave_window;
}

static void *map(uint64_t at, size_t n, int protection)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    void *mapped = mmap((void *)(uintptr_t)at, n, protection, flags, -1, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

/* Values of which some lead into the scratch memory. */
static uint64_t any_value(void)
{
    uint64_t random = next_random();
    switch (random >> 62) {
    case 0:
        return random & 0xff;
    case 1:
        return random << 2 ^ random >> 7;
    default:
        return SCRATCH + N_SCRATCH / 2 + (random & 0x3c0) - 0x200 + (random & 0x70000 ? 0 : random >> 20 & 0x3f);
    }
}

static void set_up(uint64_t seed)
{
    static uint8_t stack[1 << 16];
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    sigaltstack(&other, NULL);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, NULL);
    while (seed--)
        next_random();
    for (size_t i = 0; i < N_POOL; i += sizeof(uint64_t))
        memcpy(pool + i, &(uint64_t){any_value()}, sizeof(uint64_t));
    has_zmm = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    __asm__ volatile("fxsave64 %0" : "=m"(at_rest.fx));
    areas[0].at = map(SCRATCH, N_SCRATCH, PROT_READ | PROT_WRITE);
    areas[0].n = N_SCRATCH;
    int any = PROT_READ | PROT_WRITE | PROT_EXEC;
    int is_mapped = areas[0].at && map(CODE, PAGE, any);
    for (int i = 0; i < N_STUBS; i++)
        is_mapped = is_mapped && map(CODE + (uint64_t)stub_offsets[i], PAGE, any);
    decoder = mc_decoder_new();
    if (!is_mapped || !decoder || cs_open(CS_ARCH_X86, CS_MODE_64, &handle))
        exit(3);
    cs_option(handle, CS_OPT_DETAIL, CS_OPT_ON);
    insn = cs_malloc(handle);
}

/* The number of a general register, of any width; -1: it is none. */
static int number_of(x86_reg reg)
{
#define LETTER(a) \
    { \
        X86_REG_R##a##X, X86_REG_E##a##X, X86_REG_##a##X, X86_REG_##a##L, X86_REG_##a##H \
    }
#define NAME(a) \
    { \
        X86_REG_R##a, X86_REG_E##a, X86_REG_##a, X86_REG_##a##L \
    }
#define NUMBER(n) \
    { \
        X86_REG_R##n, X86_REG_R##n##D, X86_REG_R##n##W, X86_REG_R##n##B \
    }
    static const x86_reg names[N_GPR][5] = {
        LETTER(A), LETTER(C), LETTER(D),  LETTER(B),  NAME(SP),   NAME(BP),   NAME(SI),   NAME(DI),
        NUMBER(8), NUMBER(9), NUMBER(10), NUMBER(11), NUMBER(12), NUMBER(13), NUMBER(14), NUMBER(15),
    };
    for (int n = 0; n < N_GPR && reg != X86_REG_INVALID; n++)
        for (int i = 0; i < 5; i++)
            if (names[n][i] == reg)
                return n;
    return -1;
}

static int number_of_vector(x86_reg reg)
{
    if (reg >= X86_REG_XMM0 && reg <= X86_REG_ZMM31)
        return (int)(reg - X86_REG_XMM0) % N_ZMM;
    return -1;
}

typedef struct operand {
    int base, index, vector, scale; /* -1: none, or written before */
    int64_t displacement;
} operand;

typedef struct plan {
    int n_operands, n_targets;
    operand operands[N_INSNS];
    uint64_t targets[N_INSNS]; /* of RIP-relative operands */
    int first_bytes;
} plan;

static void plan_operand(const x86_op_mem *mem, uint32_t written, uint64_t end, plan *out)
{
    operand *o = &out->operands[out->n_operands];
    if (out->n_operands == N_INSNS)
        return;
    if (mem->base == X86_REG_RIP) {
        out->targets[out->n_targets++] = end + (uint64_t)mem->disp;
        return;
    }
    *o = (operand){number_of(mem->base), number_of(mem->index), number_of_vector(mem->index), mem->scale, mem->disp};
    if (o->base >= 0 && written >> o->base & 1)
        o->base = -1;
    if (o->index >= 0 && written >> o->index & 1)
        o->index = -1;
    out->n_operands++;
}

static void make_plan(const window *w, uint64_t at, plan *out)
{
    const uint8_t *code = w->bytes;
    size_t n = w->n_bytes;
    uint32_t written = 0;
    *out = (plan){.first_bytes = 0};
    while (n && cs_disasm_iter(handle, &code, &n, &at, insn)) {
        const cs_x86 *x86 = &insn->detail->x86;
        out->first_bytes = out->first_bytes ? out->first_bytes : insn->size;
        for (int i = 0; i < x86->op_count; i++)
            if (x86->operands[i].type == X86_OP_MEM && out->n_targets < N_INSNS)
                plan_operand(&x86->operands[i].mem, written, at, out);
        for (int i = 0; i < x86->op_count; i++)
            if (x86->operands[i].type == X86_OP_REG && x86->operands[i].access & CS_AC_WRITE &&
                number_of(x86->operands[i].reg) >= 0)
                written |= 1u << number_of(x86->operands[i].reg);
    }
}

/* Operands lead into the scratch memory, as far as the registers are free. */
static void aim(state *s, const plan *p)
{
    uint32_t fixed = 0;
    for (int i = 0; i < p->n_operands; i++) {
        const operand *o = &p->operands[i];
        uint64_t to = SCRATCH + N_SCRATCH / 2 + 64 * below(16) + (below(4) ? 0 : below(64)) - (uint64_t)o->displacement;
        int has_index = o->index >= 0 && o->index != o->base;
        if (o->vector >= 0)
            for (int j = 0; j < 8; j++)
                memcpy(s->zmm[o->vector] + 8 * j, &(uint64_t){below(16)}, 8);
        if (has_index && !(fixed >> o->index & 1))
            s->gpr[o->index] = o->base < 0 ? to / (uint64_t)o->scale : below(32) - 16;
        if (has_index)
            fixed |= 1u << o->index;
        if (o->base < 0)
            continue;
        if (!(fixed >> o->base & 1))
            s->gpr[o->base] = o->base == o->index ? to / (1 + (uint64_t)o->scale)
                              : has_index         ? to - s->gpr[o->index] * (uint64_t)o->scale
                                                  : to;
        fixed |= 1u << o->base;
    }
}

static void make_state(state *s, const plan *p)
{
    enum { MXCSR_AT = 24, MXCSR_REST = 0x1f80, ROUNDING = 0x6000, ZEROES = 0x8040, N_ST = 8, ST_AT = 32, TAGS_AT = 4 };
    uint32_t mxcsr = MXCSR_REST | ((uint32_t)next_random() & (below(2) ? ROUNDING : ROUNDING | ZEROES));
    memcpy(s->fx, at_rest.fx, sizeof s->fx);
    memcpy(s->fx + MXCSR_AT, &mxcsr, sizeof mxcsr);
    s->fx[TAGS_AT] = 0xff;
    for (int i = 0; i < N_ST; i++)
        memcpy(s->fx + ST_AT + 16 * i, pool + below(N_POOL - 16), 10);
    memcpy(s->zmm, pool + below(N_POOL - sizeof s->zmm), sizeof s->zmm);
    for (int i = 0; i < N_ZMM / 2; i++) /* half of them numbers that arithmetic does something with */
        for (int j = 0; j < 8; j++)
            memcpy(s->zmm[2 * i] + 8 * j, &(double){(double)(int64_t)next_random() / (double)(1 + below(1000))}, 8);
    for (int i = 0; i < N_MASK; i++)
        s->k[i] = next_random();
    for (int i = 0; i < N_GPR; i++)
        s->gpr[i] = below(4) ? any_value() & ((UINT64_C(1) << 44) - 1) : any_value();
    s->gpr[RSP] = SCRATCH + N_SCRATCH / 2 + 16 * below(16);
    s->flags = 0x202 | (next_random() & (FIVE_FLAGS | CF));
    aim(s, p);
}

/* 0: that page belongs to us, or there is no room. */
static int add_page(uint64_t page)
{
    area *a = &areas[n_areas];
    for (int i = 1; i < n_areas; i++)
        if ((uintptr_t)areas[i].at == page)
            return 1;
    if (n_areas == N_AREAS || !(a->at = map(page, PAGE, PROT_READ | PROT_WRITE)))
        return 0;
    a->n = PAGE;
    a->initial = pool + below((N_POOL - N_SCRATCH) / 8) * 8;
    n_areas++;
    return 1;
}

/* 0: the window reads where it is itself, or a stub. */
static int map_targets(const plan *p)
{
    n_areas = 1;
    for (int i = 0; i < p->n_targets; i++)
        for (uint64_t ahead = 0; ahead <= 64; ahead += 64)
            if (!add_page((p->targets[i] + ahead) / PAGE * PAGE))
                return 0;
    return 1;
}

static void unmap_targets(void)
{
    for (int i = 1; i < n_areas; i++)
        munmap(areas[i].at, areas[i].n);
}

static void run(const state *in, uint64_t at, state *out, fault *failed)
{
    for (int i = 0; i < n_areas; i++)
        memcpy(areas[i].at, areas[i].initial, areas[i].n);
    last_fault = (fault){0, 0, 0};
    target = at;
    is_inside = 1;
    enter_window(in);
    is_inside = 0;
    *out = saved;
    *failed = last_fault;
}

static uint8_t *at_address(uint64_t address)
{
    return (uint8_t *)(uintptr_t)address;
}

static void put_window(const window *w, uint64_t at)
{
    static const uint8_t jump[] = {0xff, 0x25, 0, 0, 0, 0};
    uint64_t back = (uint64_t)(uintptr_t)leave_window;
    memset(at_address(CODE), 0xcc, PAGE);
    memcpy(at_address(at), w->bytes, w->n_bytes);
    memcpy(at_address(at + w->n_bytes), jump, sizeof jump);
    memcpy(at_address(at + w->n_bytes + sizeof jump), &back, sizeof back);
}

static int tell(const window *w, const char *what)
{
    enum { N_TOLD = 20 };
    if (sums.n_differences >= N_TOLD)
        return 0;
    fprintf(stderr, "%s differ at %d:", what, w->remainder);
    for (int i = 0; i < w->n_bytes; i++)
        fprintf(stderr, " %02x", w->bytes[i]);
    fprintf(stderr, "\n");
    return 0;
}

/* Where a fault in the stub would have been in the code. */
static uint64_t unmoved(uint64_t at, const mc_patch_code *patch, uint64_t stub)
{
    uint64_t offset = at - stub - N_COUNT_BYTES;
    return offset < patch->n_bytes ? patch->address + offset : at;
}

static int is_equal(const window *w, const mc_patch_code *patch, uint64_t stub, state *a, state *b, fault *fa,
                    fault *fb)
{
    uint64_t seen = fa->signal ? ~(uint64_t)FIVE_FLAGS : ~UINT64_C(0);
    if (fa->signal != fb->signal || fa->at != unmoved(fb->at, patch, stub) || fa->address != fb->address)
        return tell(w, "faults");
    if ((a->flags & seen) != (b->flags & seen))
        return tell(w, "flags");
    a->flags = b->flags = 0;
    if (memcmp(a, b, sizeof *a) != 0)
        return tell(w, "registers");
    for (int i = 0; i < n_areas; i++)
        if (memcmp(areas[i].at, areas[i].after, areas[i].n) != 0)
            return tell(w, "memory");
    return 1;
}

/* Of all states of a window. */
typedef struct outcomes {
    int n_whole, n_past; /* to the window's end; past the place */
    int is_unknown;      /* to this processor */
} outcomes;

static int is_addressable(uint64_t address)
{
    return address >= 1 << 20 && address < UINT64_C(1) << 46;
}

/* Memory appears where the code as it is looks for it. 0: a difference. */
static int run_both(const window *w, const plan *p, const mc_patch_code *patch, uint64_t stub, outcomes *seen)
{
    static state in, a, b;
    fault fa, fb;
    make_state(&in, p);
    for (int i = 0; i < n_areas; i++)
        areas[i].initial = pool + below((N_POOL - N_SCRATCH) / 8) * 8;
    int n_tries = 0;
    uint64_t n_before = counter;
    memcpy(at_address(patch->word_address), patch->before, sizeof patch->before);
    do {
        run(&in, patch->address, &a, &fa);
    } while (fa.signal == SIGSEGV && is_addressable(fa.address) && add_page(fa.address / PAGE * PAGE) &&
             n_tries++ < N_AREAS);
    for (int i = 0; i < n_areas; i++)
        memcpy(areas[i].after, areas[i].at, areas[i].n);
    uint64_t n_bare = counter;
    memcpy(at_address(patch->word_address), patch->after, sizeof patch->after);
    run(&in, patch->address, &b, &fb);
    sums.n_runs++;
    sums.n_faulted_runs += fa.signal != 0;
    seen->n_whole += fa.signal == 0;
    seen->n_past += fa.signal == 0 || fa.at != patch->address;
    if (fa.signal == SIGILL && fb.signal == SIGILL) {
        seen->is_unknown = 1;
        return 1;
    }
    if (n_bare != n_before || counter != n_bare + 1)
        return tell(w, "counts");
    return is_equal(w, patch, stub, &a, &b, &fa, &fb);
}

static int relocate(uint64_t at, uint64_t *stub, mc_patch_code *patch)
{
    int32_t offset = (int32_t)((uintptr_t)&counter - (uintptr_t)__builtin_thread_pointer());
    for (uint64_t i = 0, first = below(N_STUBS); i < N_STUBS; i++) {
        uint64_t address = CODE + (uint64_t)stub_offsets[(first + i) % N_STUBS] + below(PAGE - MC_STUB_MAX);
        if (mc_relocate(decoder, at_address(CODE), PAGE, CODE, at, address, offset, patch) == MC_OK) {
            *stub = address;
            memcpy(at_address(address), patch->stub, patch->n_stub);
            return 1;
        }
    }
    return 0;
}

static void try_window(const window *w, int n_states)
{
    static plan p;
    mc_patch_code patch;
    uint64_t at = CODE + 0x400 + w->remainder, stub;
    outcomes seen = {0, 0, 0};
    make_plan(w, at, &p);
    put_window(w, at);
    if (!map_targets(&p)) {
        sums.n_skipped_reads_near_itself++;
    } else if (!relocate(at, &stub, &patch)) {
        sums.n_skipped_out_of_reach++;
    } else {
        for (int i = 0; i < n_states && !seen.is_unknown; i++)
            sums.n_differences += !run_both(w, &p, &patch, stub, &seen);
        sums.n_skipped_unknown_to_processor += (uint64_t)seen.is_unknown;
        sums.n_executed += seen.n_whole > 0;
        sums.n_faulted_behind_place += !seen.is_unknown && !seen.n_whole && seen.n_past > 0;
        sums.n_faulted_at_place += !seen.is_unknown && !seen.n_past;
        sums.n_cut += w->is_cut;
        sums.n_rip_relative += p.n_targets > 0;
    }
    unmap_targets();
}

static int is_new(const uint8_t *bytes, size_t n, uint64_t kind)
{
    static uint64_t *table;
    uint64_t hash = UINT64_C(0xcbf29ce484222325) + kind;
    table = table ? table : calloc(N_TABLE, sizeof *table);
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    hash = hash ? hash : 1;
    uint64_t i = (hash ^ hash >> 32) % N_TABLE;
    for (int n_tries = 0; n_tries < 1000; n_tries++, i = (i + 1) % N_TABLE) {
        if (table[i] == hash)
            return 0;
        if (!table[i]) {
            table[i] = hash;
            return 1;
        }
    }
    return 0; /* full */
}

int main(int argc, char **argv)
{
    window w;
    mc_instruction first;
    if (argc != 4 || !__builtin_cpu_supports("avx2"))
        return 3;
    set_up(strtoull(argv[2], NULL, 10));
    while (read_window(&w)) {
        sums.n_windows++;
        if (sums.n_distinct >= strtoull(argv[3], NULL, 10) || !is_new(w.bytes, w.n_bytes, 0))
            continue;
        sums.n_distinct++;
        if (mc_decode(decoder, w.bytes, w.n_bytes, CODE, &first) == MC_OK)
            sums.n_encodings += (uint64_t)is_new(w.bytes, first.n_bytes, 1);
        try_window(&w, atoi(argv[1]));
    }
#define PRINT(name) printf(#name " %" PRIu64 "\n", sums.n_##name);
    COUNTS(PRINT)
    return sums.n_differences != 0;
}
