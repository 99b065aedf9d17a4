/* A job's files as its keeper finds them: names, sizes and contents. */
#define main keeper_main
#include "keeper/keeper.c"
#undef main
#include "fuzz.h"

static void make_file(const char *what, const void *head, size_t n_head, size_t size, bytes *input)
{
    char path[MC_PATH_LEN], content[4096] = "";
    memcpy(content, head, n_head);
    damage(content, sizeof content, input, 4);
    if (take(input, 1) % 4 == 1)
        size = (size_t)take(input, 4) % size;
    if (mc_shm_path(path, sizeof path, "fuzz", what) != MC_OK)
        abort();
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || pwrite(fd, content, sizeof content, 0) < 0 || ftruncate(fd, (off_t)size) != 0)
        abort();
    close(fd);
}

/* A file that belongs to the job by the ends of its name. */
static void make_odd_name(char *path, bytes *input)
{
    char what[48], middle[32];
    take_text(input, middle, sizeof middle);
    for (char *at = middle; *at; at++)
        if (*at == '/')
            *at = '-';
    snprintf(what, sizeof what, "%s.seg", middle);
    make_file(what, "", 1, sizeof(mc_segment), input);
    mc_shm_path(path, MC_PATH_LEN, "fuzz", what);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mc_keeper k, empty;
    char odd_path[MC_PATH_LEN];
    bytes input = {data, size};
    const mc_node node = {.magic = MC_MAGIC, .abi_version = MC_ABI_VERSION, .size_bytes = sizeof node};
    uint32_t segment[] = {MC_MAGIC, MC_ABI_VERSION};
    k = empty;
    k.key = "fuzz";
    make_file("0.seg", segment, sizeof segment, sizeof(mc_segment), &input);
    make_file("1.seg", segment, sizeof segment, sizeof(mc_segment), &input);
    make_file("node", &node, offsetof(mc_node, corunners), sizeof(mc_node), &input);
    make_odd_name(odd_path, &input);
    for (int i = 0; i < 2; i++) {
        look(&k);
        all_wait(&k);
        coordinator_alive(&k);
    }
    if (!k.node)
        mc_files_make_node(&k);
    for (int i = 0; i < k.n_ranks; i++) {
        if (k.ranks[i].pidfd >= 0)
            close(k.ranks[i].pidfd);
        mc_shm_unmap(k.ranks[i].segment, sizeof(mc_segment));
    }
    mc_shm_unmap(k.node, sizeof(mc_node));
    mc_files_remove(&k, 1);
    unlink(odd_path); /* what is no rank's stays */
    return 0;
}
