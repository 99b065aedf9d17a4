#define _GNU_SOURCE
#include "agent/code/object.h"

#include "common/mpicoloc.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef ElfW(Ehdr) elf_header;
typedef ElfW(Phdr) elf_segment;
typedef ElfW(Shdr) elf_section;

enum {
    N_SECTIONS_MAX = 4096,
    TEXT_BYTES = 16384,
    N_TEXT_MAX = 16 << 20,
};

static int read_at(int fd, void *to, size_t size, uint64_t offset)
{
    return offset <= INT64_MAX && pread(fd, to, size, (off_t)offset) == (ssize_t)size;
}

static int is_ours(const elf_header *head)
{
    const uint16_t one = 1;
    int order = *(const uint8_t *)&one ? ELFDATA2LSB : ELFDATA2MSB;
    int class = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32;
    return memcmp(head->e_ident, ELFMAG, SELFMAG) == 0 && head->e_ident[EI_CLASS] == class &&
           head->e_ident[EI_DATA] == order && head->e_phentsize == sizeof(elf_segment);
}

int mc_object_open(mc_object *object, const char *path)
{
    struct stat status;
    elf_header head;
    *object = (mc_object){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
    if (object->fd < 0)
        return MC_E_GONE;
    if (fstat(object->fd, &status) != 0 || !S_ISREG(status.st_mode) || !read_at(object->fd, &head, sizeof head, 0) ||
        !is_ours(&head)) {
        mc_object_close(object);
        return MC_E_GONE;
    }
    return MC_OK;
}

void mc_object_close(mc_object *object)
{
    if (object->fd >= 0)
        close(object->fd);
    object->fd = -1;
}

static int section_at(const mc_object *object, const elf_header *head, int i, elf_section *section)
{
    return read_at(object->fd, section, sizeof *section, head->e_shoff + (uint64_t)i * sizeof *section);
}

static int find_section(const mc_object *object, const char *name, elf_section *section)
{
    char found[32];
    elf_header head;
    elf_section names;
    size_t size = strlen(name) + 1;
    if (size > sizeof found || !read_at(object->fd, &head, sizeof head, 0) || head.e_shentsize != sizeof *section ||
        !section_at(object, &head, head.e_shstrndx, &names))
        return 0;
    for (int i = 0; i < head.e_shnum && i < N_SECTIONS_MAX && section_at(object, &head, i, section); i++)
        if (read_at(object->fd, found, size, names.sh_offset + section->sh_name) && memcmp(found, name, size) == 0)
            return 1;
    return 0;
}

int mc_object_has_section(const mc_object *object, const char *name)
{
    elf_section section;
    return find_section(object, name, &section);
}

int mc_object_section_holds(const mc_object *object, const char *name, const char *text)
{
    char piece[TEXT_BYTES];
    elf_section section;
    size_t n_text = strlen(text);
    if (!find_section(object, name, &section) || section.sh_type == SHT_NOBITS)
        return 0;
    for (uint64_t at = 0; at < section.sh_size && at < N_TEXT_MAX; at += sizeof piece - n_text) {
        uint64_t left = section.sh_size - at;
        size_t n = mc_object_read(object, section.sh_offset + at, piece, left < sizeof piece ? left : sizeof piece);
        if (memmem(piece, n, text, n_text))
            return 1;
    }
    return 0;
}

size_t mc_object_read(const mc_object *object, uint64_t offset, void *to, size_t size)
{
    ssize_t n = offset <= INT64_MAX ? pread(object->fd, to, size, (off_t)offset) : -1;
    return n > 0 ? (size_t)n : 0;
}
