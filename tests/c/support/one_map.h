/* A shared file has one place in this process, however often it is mapped: the thread sanitizer knows memory by its
   address. Link with -Wl,--wrap=mmap,--wrap=munmap. */
#ifndef MC_TEST_ONE_MAP_H
#define MC_TEST_ONE_MAP_H

#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { N_SHARED_MAPS = 64 };

typedef struct shared_map {
    dev_t dev;
    ino_t ino;
    void *at;
    size_t size_bytes;
    int n_users;
} shared_map;

static shared_map shared_maps[N_SHARED_MAPS];
static pthread_mutex_t shared_maps_lock = PTHREAD_MUTEX_INITIALIZER;

void *__real_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *address, size_t size);
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *address, size_t size);

/* The entry of a file, or a free one. */
static shared_map *find_map(const struct stat *status)
{
    shared_map *unused = NULL;
    for (int i = 0; i < N_SHARED_MAPS; i++) {
        shared_map *map = &shared_maps[i];
        if (map->n_users && map->dev == status->st_dev && map->ino == status->st_ino)
            return map;
        if (!map->n_users)
            unused = map;
    }
    return unused;
}

void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    struct stat status;
    if (address || !(flags & MAP_SHARED) || offset || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return __real_mmap(address, size, protection, flags, fd, offset);
    pthread_mutex_lock(&shared_maps_lock);
    shared_map *map = find_map(&status);
    if (map && !map->n_users)
        *map = (shared_map){status.st_dev, status.st_ino, __real_mmap(NULL, size, protection, flags, fd, 0), size, 0};
    void *at = map && map->size_bytes >= size ? map->at : MAP_FAILED;
    if (at != MAP_FAILED)
        map->n_users++;
    pthread_mutex_unlock(&shared_maps_lock);
    return at;
}

int __wrap_munmap(void *address, size_t size)
{
    pthread_mutex_lock(&shared_maps_lock);
    shared_map *map = NULL;
    for (int i = 0; i < N_SHARED_MAPS; i++)
        if (shared_maps[i].n_users && shared_maps[i].at == address)
            map = &shared_maps[i];
    int is_last = !map || --map->n_users == 0;
    int result = is_last ? __real_munmap(address, size) : 0;
    pthread_mutex_unlock(&shared_maps_lock);
    return result;
}

#endif
