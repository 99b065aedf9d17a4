#define _GNU_SOURCE
#include "agent/loop/entries.h"

#include "common/mpicoloc.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef ElfW(Ehdr) elf_header;
typedef ElfW(Phdr) elf_segment;
typedef ElfW(Shdr) elf_section;
typedef ElfW(Sym) elf_symbol;

/* .eh_frame_hdr as all linkers write it: a sorted table of pairs of 4-byte offsets, relative to its own begin. */
enum { HDR_VERSION = 1, ENC_UDATA4 = 0x03, ENC_DATAREL_SDATA4 = 0x3b, ENC_SIZE_MASK = 0x07, N_TABLE_AT = 8 };

enum {
    N_SECTIONS_MAX = 4096,
    SYMBOLS_PER_READ = 128,
    N_SYMBOLS_MAX = 200000, /* reading more would take too long */
    TEXT_BYTES = 16384,
    N_TEXT_MAX = 16 << 20,
};

typedef struct unwind_head {
    uint8_t version, eh_frame_enc, count_enc, table_enc;
    int32_t eh_frame;
    uint32_t n;
} unwind_head;

typedef struct unwind_row {
    int32_t function, description;
} unwind_row;

typedef struct frame_description {
    uint32_t length, i_common;
    int32_t function; /* relative to this field, but for exotic files */
    uint32_t size;
} frame_description;

static int read_at(int fd, void *to, size_t size, uint64_t offset)
{
    return offset <= INT64_MAX && pread(fd, to, size, (off_t)offset) == (ssize_t)size;
}

static int inside(uint64_t at, uint64_t begin, uint64_t size)
{
    return at >= begin && at - begin < size;
}

static int is_ours(const elf_header *head)
{
    const uint16_t one = 1;
    int order = *(const uint8_t *)&one ? ELFDATA2LSB : ELFDATA2MSB;
    int class = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32;
    return memcmp(head->e_ident, ELFMAG, SELFMAG) == 0 && head->e_ident[EI_CLASS] == class &&
           head->e_ident[EI_DATA] == order && head->e_phentsize == sizeof(elf_segment);
}

static void read_segments(mc_object *object, const elf_header *head)
{
    for (int i = 0; i < head->e_phnum && i < N_SECTIONS_MAX; i++) {
        elf_segment segment;
        if (!read_at(object->fd, &segment, sizeof segment, head->e_phoff + (uint64_t)i * sizeof segment))
            return;
        mc_span span = {segment.p_vaddr, segment.p_offset, segment.p_filesz};
        if (segment.p_type == PT_LOAD && object->n_loads < MC_N_LOADS)
            object->loads[object->n_loads++] = span;
        else if (segment.p_type == PT_GNU_EH_FRAME)
            object->unwind = span;
    }
}

/* Use the full symbol table, or else the dynamic linker's. */
static void read_sections(mc_object *object, const elf_header *head)
{
    if (head->e_shentsize != sizeof(elf_section))
        return;
    for (int i = 0; i < head->e_shnum && i < N_SECTIONS_MAX; i++) {
        elf_section section;
        if (!read_at(object->fd, &section, sizeof section, head->e_shoff + (uint64_t)i * sizeof section))
            return;
        if (section.sh_type == SHT_SYMTAB || (section.sh_type == SHT_DYNSYM && !object->symbols.size))
            object->symbols = (mc_span){0, section.sh_offset, section.sh_size};
        if (section.sh_type == SHT_SYMTAB)
            return;
    }
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
    read_segments(object, &head);
    read_sections(object, &head);
    return MC_OK;
}

void mc_object_close(mc_object *object)
{
    if (object->fd >= 0)
        close(object->fd);
    object->fd = -1;
}

static int to_address(const mc_object *object, uint64_t offset, uint64_t *address)
{
    for (int i = 0; i < object->n_loads; i++) {
        const mc_span *load = &object->loads[i];
        if (!inside(offset, load->offset, load->size))
            continue;
        *address = offset - load->offset + load->address;
        return 1;
    }
    return 0;
}

static int to_offset(const mc_object *object, uint64_t address, uint64_t *offset)
{
    for (int i = 0; i < object->n_loads; i++) {
        const mc_span *load = &object->loads[i];
        if (!inside(address, load->address, load->size))
            continue;
        *offset = address - load->address + load->offset;
        return 1;
    }
    return 0;
}

static int read_row(const mc_object *object, uint32_t i, unwind_row *row)
{
    return read_at(object->fd, row, sizeof *row,
                   object->unwind.offset + sizeof(unwind_head) + (uint64_t)i * sizeof *row);
}

static uint64_t from_base(const mc_object *object, int32_t relative)
{
    return object->unwind.address + (uint64_t)(int64_t)relative;
}

/* The last row whose function begins at or before the address. */
static int search_row(const mc_object *object, uint32_t n, uint64_t address, unwind_row *found)
{
    uint32_t low = 0, high = n;
    unwind_row row;
    int any = 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (!read_row(object, middle, &row))
            return 0;
        if (from_base(object, row.function) <= address) {
            *found = row;
            any = 1;
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return any;
}

/* 0: the function is known to end before the address. */
static int reaches(const mc_object *object, const unwind_row *row, uint64_t address)
{
    frame_description description;
    uint64_t at = from_base(object, row->description), start = from_base(object, row->function), offset;
    if (!to_offset(object, at, &offset) || !read_at(object->fd, &description, sizeof description, offset))
        return 0;
    uint64_t told = at + offsetof(frame_description, function) + (uint64_t)(int64_t)description.function;
    return told != start || address - start < description.size;
}

static int by_unwinding(const mc_object *object, uint64_t address, uint64_t *start)
{
    unwind_head head;
    unwind_row row = {0, 0};
    if (object->unwind.size < sizeof head || !read_at(object->fd, &head, sizeof head, object->unwind.offset))
        return 0;
    if (head.version != HDR_VERSION || head.count_enc != ENC_UDATA4 || head.table_enc != ENC_DATAREL_SDATA4 ||
        (head.eh_frame_enc & ENC_SIZE_MASK) != ENC_UDATA4)
        return 0;
    uint64_t n_max = (object->unwind.size - sizeof head) / sizeof row;
    if (!search_row(object, head.n < n_max ? head.n : (uint32_t)n_max, address, &row) ||
        !reaches(object, &row, address))
        return 0;
    *start = from_base(object, row.function);
    return 1;
}

static int by_symbols(const mc_object *object, uint64_t address, uint64_t *start)
{
    elf_symbol symbols[SYMBOLS_PER_READ];
    uint64_t n = object->symbols.size / sizeof *symbols, best = 0;
    for (uint64_t i = 0; i < n && i < N_SYMBOLS_MAX; i += SYMBOLS_PER_READ) {
        uint64_t n_here = n - i < SYMBOLS_PER_READ ? n - i : SYMBOLS_PER_READ;
        if (!read_at(object->fd, symbols, n_here * sizeof *symbols, object->symbols.offset + i * sizeof *symbols))
            break;
        for (uint64_t j = 0; j < n_here; j++)
            if ((symbols[j].st_info & 0xf) == STT_FUNC && symbols[j].st_shndx != SHN_UNDEF &&
                inside(address, symbols[j].st_value, symbols[j].st_size) && symbols[j].st_value > best)
                best = symbols[j].st_value;
    }
    *start = best;
    return best != 0;
}

int mc_object_entry(const mc_object *object, uint64_t offset, uint64_t *entry)
{
    uint64_t address, start;
    if (!to_address(object, offset, &address))
        return MC_E_GONE;
    if (!by_unwinding(object, address, &start) && !by_symbols(object, address, &start))
        return MC_E_GONE;
    return to_offset(object, start, entry) ? MC_OK : MC_E_GONE;
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
