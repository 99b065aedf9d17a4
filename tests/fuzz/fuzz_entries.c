/* Files of programs and what /proc says of where they are loaded: every file that the code opens is the input, a real
   program (this one) with pieces of it replaced. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bytes file_text;

static int foreign_open(const char *path, int flags, ...)
{
    static int fd = -1;
    (void)path, (void)flags;
    fd = fd >= 0 ? fd : memfd_create("foreign", 0);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, file_text.at, file_text.n, 0) < 0)
        abort();
    return dup(fd);
}

static FILE *foreign_fopen(const char *path, const char *mode)
{
    (void)path, (void)mode;
    return file_text.n ? fmemopen((void *)(uintptr_t)file_text.at, file_text.n, "r") : NULL;
}

#define open foreign_open
#define fopen foreign_fopen
#include "agent/loop/entries.c"
#include "agent/loop/maps.c"
#undef open
#undef fopen

static const char maps_text[] = "55d0a0000000-55d0a0001000 r--p 00000000 fe:00 1234 /opt/a program\n"
                                "55d0a0001000-55d0a0003000 r-xp 00001000 fe:00 1234   /opt/a program\n"
                                "7f0000000000-7f0000200000 r-xp 00028000 fe:00 99  /usr/lib/libc.so.6\n"
                                "7f0000400000-7f0000500000 r-xp 00000000 00:00 0\n"
                                "7f0000600000-7f0000700000 r-xp 00000000 fe:00 7 /tmp/gone (deleted)\n"
                                "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n";

enum { N_COPY = 1 << 16 };

/* The beginning of a program and, behind it, its tables: a header, a segment, a table of functions, symbols. */
static size_t make_program(uint8_t *out)
{
    elf_header head = {.e_phoff = sizeof head, .e_phnum = 2, .e_phentsize = sizeof(elf_segment)};
    memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    head.e_ident[EI_DATA] = ELFDATA2LSB;
    head.e_shoff = 0x200;
    head.e_shnum = 2;
    head.e_shentsize = sizeof(elf_section);
    elf_segment segments[2] = {{.p_type = PT_LOAD, .p_filesz = 0x800}, {.p_type = PT_GNU_EH_FRAME, .p_offset = 0x400}};
    segments[1].p_vaddr = 0x400;
    segments[1].p_filesz = 0x40;
    elf_section sections[2] = {{.sh_type = SHT_DYNSYM, .sh_offset = 0x600, .sh_size = 3 * sizeof(elf_symbol)},
                               {.sh_type = SHT_SYMTAB, .sh_offset = 0x600, .sh_size = 3 * sizeof(elf_symbol)}};
    unwind_head unwind = {1, 0x1b, ENC_UDATA4, ENC_DATAREL_SDATA4, 0, 2};
    unwind_row rows[2] = {{0x700 - 0x400, 0x100}, {0x740 - 0x400, 0x120}};
    frame_description descriptions[2] = {{0x1c, 4, 0x700 - 0x508, 0x30}, {0x1c, 4, 0x740 - 0x528, 0x10}};
    elf_symbol symbols[3] = {{.st_info = STT_FUNC, .st_shndx = 1, .st_value = 0x780, .st_size = 0x20}};
    symbols[1] = (elf_symbol){.st_info = STT_FUNC, .st_shndx = 1, .st_value = 0x788, .st_size = 8};
    memset(out, 0, 0x800);
    memcpy(out, &head, sizeof head);
    memcpy(out + head.e_phoff, segments, sizeof segments);
    memcpy(out + head.e_shoff, sections, sizeof sections);
    memcpy(out + 0x400, &unwind, sizeof unwind);
    memcpy(out + 0x400 + sizeof unwind, rows, sizeof rows);
    memcpy(out + 0x500, &descriptions[0], sizeof descriptions[0]);
    memcpy(out + 0x520, &descriptions[1], sizeof descriptions[1]);
    memcpy(out + 0x600, symbols, sizeof symbols);
    return 0x800;
}

static void expect(const mc_object *object, uint64_t offset, int status, uint64_t wanted)
{
    uint64_t entry = 0;
    if (mc_object_entry(object, offset, &entry) != status || (status == MC_OK && entry != wanted))
        abort();
}

/* Undamaged, it is read rightly: otherwise all of this would test nothing. */
static void check_program(const mc_object *object)
{
    expect(object, 0x700, MC_OK, 0x700);
    expect(object, 0x72f, MC_OK, 0x700);
    expect(object, 0x730, MC_E_GONE, 0);
    expect(object, 0x74f, MC_OK, 0x740);
    expect(object, 0x6ff, MC_E_GONE, 0);
    expect(object, 0x785, MC_OK, 0x780);
    expect(object, 0x78a, MC_OK, 0x788);
    expect(object, 0x800, MC_E_GONE, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t text[N_COPY];
    static mc_maps maps;
    bytes input = {data, size};
    mc_object object;
    uint64_t entry;
    int n_patches = (int)take(&input, 1) % 4;
    size_t n = make_program(text);
    damage(text, n, &input, n_patches);
    file_text = (bytes){text, n_patches ? n - take(&input, 1) : n};
    if (mc_object_open(&object, "program") == MC_OK) {
        if (!n_patches)
            check_program(&object);
        for (int i = 0; i < 8; i++)
            mc_object_entry(&object, take(&input, 2) * (i < 4 ? 1 : 0x1001001001), &entry);
        mc_object_close(&object);
    } else if (!n_patches) {
        abort();
    }
    memcpy(text, maps_text, sizeof maps_text);
    damage(text, sizeof maps_text, &input, n_patches);
    file_text.n = sizeof maps_text - 1;
    int status = mc_maps_read(&maps, 1);
    if (!n_patches && (status != MC_OK || maps.n != 1 || strcmp(maps.paths[0], "/opt/a program") != 0))
        abort();
    mc_maps_find(&maps, take(&input, 8));
    mc_maps_address(&maps, "/opt/a program", take(&input, 4));
    return 0;
}
