#define _GNU_SOURCE
#include "guest/mpi/real.h"

#include "guest/hooks.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

mc_real_table mc_real, mc_next;
mc_constants mc_known;

enum { MAX_OBJECTS = 1024 };

typedef struct object_list {
    char *names[MAX_OBJECTS];
    int n;
} object_list;

static int note_object(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    object_list *list = data;
    if (info->dlpi_name == NULL || info->dlpi_name[0] == '\0' || list->n == MAX_OBJECTS)
        return 0;
    char *name = strdup(info->dlpi_name);
    if (name != NULL)
        list->names[list->n++] = name;
    return 0;
}

static int is_own(void *address)
{
    Dl_info found, self;
    return dladdr(address, &found) && dladdr(&mc_real, &self) && found.dli_fbase == self.dli_fbase;
}

/* Look for a symbol in each loaded object: Python loads MPI with RTLD_LOCAL, where a plain dlsym does not find it. The
   objects' names are collected first, because dl_iterate_phdr holds the loader's lock. */
static void *find_local(const char *symbol)
{
    object_list *list = calloc(1, sizeof *list);
    if (list == NULL)
        return NULL;
    dl_iterate_phdr(note_object, list);
    void *found = NULL;
    for (int i = 0; i < list->n; i++) {
        void *handle = found ? NULL : dlopen(list->names[i], RTLD_NOLOAD | RTLD_LAZY);
        if (handle != NULL) {
            found = dlsym(handle, symbol);
            if (found != NULL && is_own(found))
                found = NULL;
            dlclose(handle);
        }
        free(list->names[i]);
    }
    free(list);
    return found;
}

void *mc_find(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    return found != NULL ? found : find_local(name);
}

/* Field, Open MPI's symbol, constant in other libraries. The world is not in the list, because it is stored last. */
#define CONSTANTS(X) \
    X(self, "ompi_mpi_comm_self", MPI_COMM_SELF) \
    X(comm_null, "ompi_mpi_comm_null", MPI_COMM_NULL) \
    X(type_null, "ompi_mpi_datatype_null", MPI_DATATYPE_NULL) \
    X(type_byte, "ompi_mpi_byte", MPI_BYTE) \
    X(type_int, "ompi_mpi_int", MPI_INT) \
    X(type_char, "ompi_mpi_char", MPI_CHAR) \
    X(group_null, "ompi_mpi_group_null", MPI_GROUP_NULL) \
    X(sum, "ompi_mpi_op_sum", MPI_SUM) \
    X(no_op, "ompi_mpi_op_no_op", MPI_NO_OP) \
    X(message_no_proc, "ompi_message_no_proc", MPI_MESSAGE_NO_PROC) \
    X(info_null, "ompi_mpi_info_null", MPI_INFO_NULL) \
    X(errors_return, "ompi_mpi_errors_return", MPI_ERRORS_RETURN)

#ifdef OPEN_MPI
/* Search the executable first. Unlike functions, data may have been copied into the executable, and then only the copy
   is used. */
static void *find_data(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    return found != NULL ? found : find_local(name);
}

static void learn_constants(void)
{
    if (MC_POINTER(mc_known.world) != NULL)
        return;
#define LEARN(field, symbol, constant) mc_known.field = find_data(symbol);
    CONSTANTS(LEARN)
    mc_set_pointer(&mc_known.world, find_data("ompi_mpi_comm_world"));
}

int mc_library_fits(void)
{
    return mc_known.world != NULL;
}
#else
static void learn_constants(void)
{
    static atomic_int is_known;
    if (atomic_load_explicit(&is_known, memory_order_acquire))
        return;
#define LEARN(field, symbol, constant) mc_known.field = constant;
    CONSTANTS(LEARN)
    mc_known.world = MPI_COMM_WORLD;
    atomic_store_explicit(&is_known, 1, memory_order_release);
}

int mc_library_fits(void)
{
    return dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world") == NULL;
}
#endif

int mc_resolve(void *slot, const char *name)
{
    learn_constants();
    void *found = mc_find(name);
    if (found == NULL)
        return 0;
    mc_set_pointer(slot, found);
    return 1;
}

/* A tool between this library and MPI defines the name without P. There is no such tool if MPI was loaded with
   RTLD_LOCAL. */
int mc_resolve_next(void *slot, const char *name)
{
    void *real = NULL;
    if (!mc_resolve(&real, name))
        return 0;
    void *next = dlsym(RTLD_NEXT, name + 1);
    if (next == NULL)
        next = real;
    if (next != real)
        __atomic_store_n(&mc_is_chained, 1, __ATOMIC_RELAXED);
    mc_set_pointer(slot, next);
    return 1;
}

enum { N_LIBRARIES = 16 };

static struct {
    uintptr_t begin, end;
} libraries[N_LIBRARIES];
static int n_libraries;

int mc_is_mpi_file(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    return (strncmp(name, "libmpi", 6) == 0 && strncmp(name, "libmpicoloc", 11) != 0) ||
           strncmp(name, "libpmpi", 7) == 0;
}

static int note_library(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size, (void)data;
    if (info->dlpi_name == NULL || n_libraries == N_LIBRARIES || !mc_is_mpi_file(info->dlpi_name))
        return 0;
    for (int i = 0; i < info->dlpi_phnum && n_libraries < N_LIBRARIES; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
            continue;
        libraries[n_libraries].begin = info->dlpi_addr + part->p_vaddr;
        libraries[n_libraries].end = info->dlpi_addr + part->p_vaddr + part->p_memsz;
        n_libraries++;
    }
    return 0;
}

void mc_find_libraries(void)
{
    if (n_libraries == 0)
        dl_iterate_phdr(note_library, NULL);
}

int mc_is_library(const void *address)
{
    for (int i = 0; i < n_libraries; i++)
        if ((uintptr_t)address >= libraries[i].begin && (uintptr_t)address < libraries[i].end)
            return 1;
    return 0;
}

int mc_missing(void)
{
    return MPI_ERR_INTERN;
}
