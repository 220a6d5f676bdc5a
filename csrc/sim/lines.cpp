/*
 * lines.cpp  Maps an instruction to its source line without an external tool: it reads
 * .debug_line (DWARF 2 to 4) of this library's own file, which the build makes with -g1
 * -gdwarf-4.  In a stripped library the lines are unknown, and faults name none.
 * Order: bytes, one line program, the file, the search.
 */
#include "internal.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gpo_sim {

struct Row {
    uintptr_t address; /* relative to where the library is loaded */
    const char *file;
    int line; /* 0: no code from here on */
    uint32_t order;
};

static struct {
    bool loaded;
    uintptr_t base;
    Row *rows;
    size_t count, capacity;
} table;

/* ---- bytes ---- */

struct Reader {
    const uint8_t *at, *end;
};

static uint64_t
fixed(Reader *r, int bytes)
{
    uint64_t value = 0;
    if (r->end - r->at < bytes) {
        r->at = r->end;
        return 0;
    }
    memcpy(&value, r->at, (size_t)bytes); /* x86-64 and aarch64 are little endian */
    r->at += bytes;
    return value;
}

static uint64_t
uleb(Reader *r)
{
    uint64_t value = 0;
    for (int shift = 0; r->at < r->end && shift < 64; shift += 7) {
        const uint8_t byte = *r->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            break;
        }
    }
    return value;
}

static int64_t
sleb(Reader *r)
{
    uint64_t value = 0;
    for (int shift = 0; r->at < r->end && shift < 64;) {
        const uint8_t byte = *r->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
        if (!(byte & 0x80)) {
            if (byte & 0x40 && shift < 64) {
                value |= ~(uint64_t)0 << shift;
            }
            break;
        }
    }
    return (int64_t)value;
}

static const char *
text(Reader *r)
{
    const char *begin = (const char *)r->at;
    while (r->at < r->end && *r->at) {
        r->at++;
    }
    if (r->at == r->end) {
        return "";
    }
    r->at++;
    return begin;
}

/* ---- one line program ---- */

static void
add_row(uintptr_t address, const char *file, int line)
{
    if (table.count == table.capacity) {
        const size_t capacity = table.capacity ? 2 * table.capacity : 4096;
        Row *grown = (Row *)realloc(table.rows, capacity * sizeof *grown);
        if (!grown) {
            return;
        }
        table.rows = grown;
        table.capacity = capacity;
    }
    table.rows[table.count] = Row{address, file, line, (uint32_t)table.count};
    table.count++;
}

enum { MAX_FILES = 1024, MAX_DIRECTORIES = 256 };

struct Program {
    const char *directories[MAX_DIRECTORIES];
    const char *files[MAX_FILES];
    unsigned ndirectories, nfiles;
};

/* The path directory/name in a string that is never freed. */
static const char *
joined(const char *directory, const char *name)
{
    const size_t size = strlen(directory) + strlen(name) + 2;
    char *path = (char *)malloc(size);
    if (!path) {
        return name;
    }
    snprintf(path, size, "%s/%s", directory, name);
    return path;
}

static void
read_files(Reader *header, Program *program)
{
    program->ndirectories = 1;
    program->directories[0] = ".";
    for (;;) {
        const char *directory = text(header);
        if (!*directory) {
            break;
        }
        if (program->ndirectories < MAX_DIRECTORIES) {
            program->directories[program->ndirectories++] = directory;
        }
    }
    program->nfiles = 1;
    program->files[0] = "";
    for (;;) {
        const char *name = text(header);
        if (!*name) {
            break;
        }
        const uint64_t directory = uleb(header);
        uleb(header); /* time */
        uleb(header); /* length */
        if (program->nfiles < MAX_FILES) {
            program->files[program->nfiles++] =
                name[0] == '/' || directory >= program->ndirectories
                    ? name
                    : joined(program->directories[directory], name);
        }
    }
}

static void
run_program(Reader unit, int version)
{
    Reader header = unit;
    const uint64_t header_bytes = fixed(&header, 4);
    unit.at = header.at + header_bytes;
    const uint8_t step = (uint8_t)fixed(&header, 1);
    if (version >= 4) {
        fixed(&header, 1); /* operations per instruction: 1 except on VLIW machines */
    }
    fixed(&header, 1); /* is_stmt */
    const int line_base = (int8_t)fixed(&header, 1);
    const int line_range = (int)fixed(&header, 1);
    const int opcode_base = (int)fixed(&header, 1);
    uint8_t lengths[256] = {0};
    for (int i = 1; i < opcode_base; i++) {
        lengths[i] = (uint8_t)fixed(&header, 1);
    }
    if (line_range == 0 || unit.at > unit.end) {
        return;
    }
    static Program program;
    read_files(&header, &program);

    uintptr_t address = 0;
    uint64_t file = 1;
    int line = 1;
    while (unit.at < unit.end) {
        const int opcode = (int)fixed(&unit, 1);
        bool row = false;
        if (opcode >= opcode_base) {
            address += (uintptr_t)((opcode - opcode_base) / line_range) * step;
            line += line_base + (opcode - opcode_base) % line_range;
            row = true;
        }
        else if (opcode == 0) { /* extended */
            const uint64_t bytes = uleb(&unit);
            const uint8_t *next = unit.at + bytes;
            const int extended = (int)fixed(&unit, 1);
            if (extended == 1) { /* end of a sequence */
                add_row(address, "", 0);
                address = 0;
                file = 1;
                line = 1;
            }
            else if (extended == 2) {
                address = (uintptr_t)fixed(&unit, sizeof address);
            }
            unit.at = next;
        }
        else if (opcode == 1) { /* copy */
            row = true;
        }
        else if (opcode == 2) { /* advance the address */
            address += (uintptr_t)uleb(&unit) * step;
        }
        else if (opcode == 3) { /* advance the line */
            line += (int)sleb(&unit);
        }
        else if (opcode == 4) { /* set the file */
            file = uleb(&unit);
        }
        else if (opcode == 8) { /* constant address step */
            address += (uintptr_t)((255 - opcode_base) / line_range) * step;
        }
        else if (opcode == 9) { /* fixed address step */
            address += (uintptr_t)fixed(&unit, 2);
        }
        else {
            for (int i = 0; i < lengths[opcode]; i++) {
                uleb(&unit);
            }
        }
        if (row) {
            add_row(address, file < program.nfiles ? program.files[file] : "", line);
        }
    }
}

/* ---- the file ---- */

static int
compare_rows(const void *a, const void *b)
{
    const Row *x = (const Row *)a, *y = (const Row *)b;
    if (x->address != y->address) {
        return x->address < y->address ? -1 : 1;
    }
    if ((x->line != 0) != (y->line != 0)) {
        return x->line == 0 ? -1 : 1; /* the end of a sequence before the next begins */
    }
    return x->order < y->order ? -1 : 1; /* of several rows the last one counts */
}

static void
read_section(const uint8_t *data, size_t bytes)
{
    Reader section = {data, data + bytes};
    while (section.end - section.at > 6) {
        const uint64_t length = fixed(&section, 4);
        if (length >= 0xfffffff0u || length > (uint64_t)(section.end - section.at)) {
            break; /* gcc does not write the 64-bit format */
        }
        Reader unit = {section.at, section.at + length};
        section.at += length;
        const int version = (int)fixed(&unit, 2);
        if (version >= 2 && version <= 4) {
            run_program(unit, version);
        }
    }
    qsort(table.rows, table.count, sizeof *table.rows, compare_rows);
}

static void
read_elf(const char *image, size_t bytes)
{
    const Elf64_Ehdr *elf = (const Elf64_Ehdr *)image;
    if (bytes < sizeof *elf || memcmp(elf->e_ident, ELFMAG, SELFMAG) != 0 ||
        elf->e_ident[EI_CLASS] != ELFCLASS64 ||
        elf->e_shoff + (size_t)elf->e_shnum * sizeof(Elf64_Shdr) > bytes) {
        return;
    }
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(image + elf->e_shoff);
    const char *names = image + sections[elf->e_shstrndx].sh_offset;
    for (int i = 0; i < elf->e_shnum; i++) {
        const Elf64_Shdr *s = &sections[i];
        if (strcmp(names + s->sh_name, ".debug_line") == 0 &&
            !(s->sh_flags & SHF_COMPRESSED) && s->sh_offset + s->sh_size <= bytes) {
            read_section((const uint8_t *)image + s->sh_offset, s->sh_size);
        }
    }
}

static void
load(void)
{
    table.loaded = true;
    Dl_info info;
    if (!dladdr((void *)&load, &info)) {
        return;
    }
    table.base = (uintptr_t)info.dli_fbase;
    const int file = open(info.dli_fname, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return;
    }
    const off_t bytes = lseek(file, 0, SEEK_END);
    if (bytes > 0) {
        /* never unmapped: the file names in the table point into it */
        void *image = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, file, 0);
        if (image != MAP_FAILED) {
            read_elf((const char *)image, (size_t)bytes);
        }
    }
    close(file);
}

/* ---- the search ---- */

Site
line_of(uintptr_t pc)
{
    if (!table.loaded) {
        load();
    }
    const uintptr_t address = pc - table.base;
    size_t low = 0, high = table.count;
    while (low < high) { /* the first row after the address */
        const size_t middle = (low + high) / 2;
        if (table.rows[middle].address > address) {
            high = middle;
        }
        else {
            low = middle + 1;
        }
    }
    /* a wide copy is inlined from vector_sim.h: the row before has the caller's line */
    while (low > 1 && strstr(table.rows[low - 1].file, "_sim.h") &&
           table.rows[low - 2].line != 0) {
        low--;
    }
    if (low == 0 || table.rows[low - 1].line == 0 ||
        strstr(table.rows[low - 1].file, "/include/c++/")) { /* the launch's own code */
        return Site{"", 0};
    }
    return Site{table.rows[low - 1].file, table.rows[low - 1].line};
}

/* Drops "name/.." pairs in place. */
static void
drop_parents(char *path)
{
    for (char *up = strstr(path, "/../"); up; up = strstr(path, "/../")) {
        char *name = up;
        while (name > path && name[-1] != '/') {
            name--;
        }
        memmove(name, up + 4, strlen(up + 4) + 1);
    }
}

const char *
short_path(const char *path)
{
    static char text[256];
    const char *root = strstr(path, "csrc/");
    for (const char *next = root; next; next = strstr(next + 1, "csrc/")) {
        root = next;
    }
    if (!root) {
        const char *slash = strrchr(path, '/');
        return slash ? slash + 1 : path;
    }
    snprintf(text, sizeof text, "%s", root + 5);
    drop_parents(text);
    return text;
}

} // namespace gpo_sim
