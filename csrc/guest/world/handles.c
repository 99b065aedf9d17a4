/* Wrappers for programs that get MPI's functions from a library handle (dlopen and dlsym: Julia, numba, ctypes), or
   load a library that prefers its own dependencies (RTLD_DEEPBIND). Without wrappers they would see the launcher's
   world, which contains the coordinator. Wrappers are not possible in a dlmopen namespace. If a program uses one, the
   coordinator is notified and ends the job, because the job's ranks would otherwise wait for the coordinator
   forever. */
#define _GNU_SOURCE
#include "guest/mpi/real.h"
#include "guest/world/launch.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MC_EXPORT __attribute__((visibility("default")))
/* The C library derives RTLD_NEXT, $ORIGIN and the namespace from its caller's address. The caller must be the program,
   so we jump to the C library's functions instead of calling them, even in builds without optimisation. */
#ifdef __clang__
#define MC_JUMPS
#define MC_JUMP_TO __attribute__((musttail)) return
#else
#define MC_JUMPS __attribute__((optimize("O2", "no-stack-protector")))
#define MC_JUMP_TO return
#endif

/* Sanitizers call dlsym before their checks are initialized. */
#define MC_UNCHECKED __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

static void *(*real_dlsym)(void *, const char *);
static void *(*real_dlopen)(const char *, int);
static int is_deep;

MC_UNCHECKED static void find_real(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17", NULL};
    for (int i = 0; versions[i] && !real_dlsym; i++)
        *(void **)&real_dlsym = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    if (real_dlsym)
        *(void **)&real_dlopen = real_dlsym(RTLD_NEXT, "dlopen");
}

/* File of the library that contains the address; empty if none does. */
static const char *library_of(const void *address)
{
    Dl_info found;
    return address && dladdr(address, &found) && found.dli_fname ? found.dli_fname : "";
}

MC_UNCHECKED static int is_mpi_name(const char *name)
{
    int is_upper = name[0] == 'M' && name[1] == 'P' && name[2] == 'I' && name[3] == '_';
    return is_upper || (name[0] == 'm' && name[1] == 'p' && name[2] == 'i' && name[3] == '_');
}

/* 1 if the address is in a library of MPI itself, not of a tool. */
static int is_of_mpi(const void *address)
{
    return mc_is_mpi_file(library_of(address));
}

static int is_of_this_family(void *handle, const void *found)
{
#ifdef MPI_ABI_VERSION
    (void)handle;
    return strstr(library_of(found), "/libmpi_abi.") != NULL;
#else
    return (real_dlsym(handle, "ompi_mpi_comm_world") != NULL) == MC_IS_OPEN_MPI &&
           strstr(library_of(found), "/libmpi_abi.") == NULL;
#endif
}

/* The function that a program linked with MPI would call: our wrapper, or the wrapper of a tool before us. Returns NULL
   if there is no wrapper. */
static void *wrapper(const char *name)
{
    void *found = real_dlsym(RTLD_DEFAULT, name);
    return is_of_mpi(found) ? NULL : found;
}

static int is_in_own_namespace(void *handle)
{
    Lmid_t space = LM_ID_BASE;
    return dlinfo(handle, RTLD_DI_LMID, &space) == 0 && space != LM_ID_BASE;
}

#ifdef __x86_64__
enum { SLOT = R_X86_64_JUMP_SLOT, DATA = R_X86_64_GLOB_DAT };
#else
enum { SLOT = R_AARCH64_JUMP_SLOT, DATA = R_AARCH64_GLOB_DAT };
#endif

static void write_entry(uintptr_t *entry, void *value)
{
    uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE), page = (uintptr_t)entry & ~(size - 1);
    if (mprotect((void *)page, size, PROT_READ | PROT_WRITE) == 0)
        __atomic_store_n(entry, (uintptr_t)value, __ATOMIC_RELEASE);
}

static void bind_entries(const struct link_map *map, const ElfW(Rela) * entries, size_t n, const ElfW(Sym) * symbols,
                         const char *names)
{
    for (size_t i = 0; i < n; i++) {
        unsigned long kind = ELF64_R_TYPE(entries[i].r_info);
        const char *name = names + symbols[ELF64_R_SYM(entries[i].r_info)].st_name;
        void *own = (kind == SLOT || kind == DATA) && is_mpi_name(name) ? wrapper(name) : NULL;
        if (own)
            write_entry((uintptr_t *)(map->l_addr + entries[i].r_offset), own);
    }
}

/* Redirect a library's MPI calls to the wrappers. */
static void bind_calls(const struct link_map *map)
{
    const ElfW(Rela) *plt = NULL, *data = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    size_t plt_bytes = 0, data_bytes = 0;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        const void *address = (const void *)entry->d_un.d_ptr;
        switch (entry->d_tag) {
        case DT_JMPREL:
            plt = address;
            break;
        case DT_PLTRELSZ:
            plt_bytes = entry->d_un.d_val;
            break;
        case DT_RELA:
            data = address;
            break;
        case DT_RELASZ:
            data_bytes = entry->d_un.d_val;
            break;
        case DT_SYMTAB:
            symbols = address;
            break;
        case DT_STRTAB:
            names = address;
            break;
        default:
            break;
        }
    }
    if (!symbols || !names)
        return;
    bind_entries(map, plt, plt ? plt_bytes / sizeof *plt : 0, symbols, names);
    bind_entries(map, data, data ? data_bytes / sizeof *data : 0, symbols, names);
}

/* Redirect every library that was loaded from a file. Libraries in the global scope use the wrappers already. */
static void bind_libraries(void *handle)
{
    struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0)
        return;
    while (map->l_prev)
        map = map->l_prev;
    for (; map; map = map->l_next)
        if (map->l_name && strchr(map->l_name, '/') && !is_of_mpi(map->l_ld))
            bind_calls(map);
}

static void *from_handle(void *handle, const char *name)
{
    void *found = real_dlsym(handle, name);
    if (!found)
        return NULL;
    if (is_in_own_namespace(handle)) {
        if (is_of_mpi(found) || is_of_mpi(real_dlsym(handle, "MPI_Init")))
            mc_announce_trouble("past");
        return found;
    }
    if (__atomic_exchange_n(&is_deep, 0, __ATOMIC_ACQ_REL))
        bind_libraries(handle);
    if (!is_mpi_name(name) || !is_of_mpi(found) || !is_of_this_family(handle, found))
        return found;
    void *own = wrapper(name);
    return own ? own : found;
}

/* 1 if the name has a wrapper but this MPI lacks the function, as with sessions before Open MPI 5. */
MC_UNCHECKED static int is_missing(const char *name)
{
    Dl_info found, own;
    void *address = is_mpi_name(name) && !real_dlsym(RTLD_NEXT, name) ? real_dlsym(RTLD_DEFAULT, name) : NULL;
    return address && dladdr(address, &found) && dladdr((void *)mc_call_name, &own) && found.dli_fbase == own.dli_fbase;
}

MC_JUMPS MC_UNCHECKED MC_EXPORT void *dlsym(void *restrict handle, const char *restrict name)
{
    if (!real_dlsym)
        find_real();
    if (!real_dlsym)
        return NULL;
    if (handle == RTLD_DEFAULT && is_missing(name))
        return NULL;
    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT)
        MC_JUMP_TO real_dlsym(handle, name);
    return from_handle(handle, name);
}

MC_JUMPS MC_EXPORT void *dlopen(const char *file, int mode)
{
    if (!real_dlopen)
        find_real();
    if (!real_dlopen)
        return NULL;
    if (mode & RTLD_DEEPBIND)
        __atomic_store_n(&is_deep, 1, __ATOMIC_RELEASE);
    MC_JUMP_TO real_dlopen(file, mode);
}
