/*
 * The reader of worked examples: lines into cases, words into elements.
 */
#include "examples/read.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>

void bad_line(const struct examples *file, int line, const char *format, ...)
{
    va_list list;
    fprintf(stderr, "%s:%d: ", file->path, line);
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    exit(1);
}

static void *need(void *memory)
{
    if (memory == NULL)
        abort();
    return memory;
}

/* The next word of *text, cut off at its end; "" at the end of the text. */
static char *next_word(char **text)
{
    char *word = *text + strspn(*text, " \t");
    char *end = word + strcspn(word, " \t");
    *text = *end ? end + 1 : end;
    *end = '\0';
    return word;
}

/* ---- Lines ---- */

const struct entry *example_entry(const struct example *ex, const char *name, bool out)
{
    for (int i = 0; i < ex->n_entries; i++)
        if (ex->entries[i].out == out && strcmp(ex->entries[i].name, name) == 0)
            return &ex->entries[i];
    return NULL;
}

static sy_type type_named(const struct examples *file, int line, const char *name)
{
    for (int t = 1; t < SY_N_TYPES; t++)
        if (strcmp(sy_type_name((sy_type)t), name) == 0)
            return (sy_type)t;
    bad_line(file, line, "no type %s", name);
}

static void read_types(const struct examples *file, struct entry *e, char *text)
{
    char *rest = text;
    while (*rest) {
        char *name = rest;
        rest += strcspn(rest, "|");
        if (*rest)
            *rest++ = '\0';
        if (e->n_types == MAX_ALTERNATIVES)
            bad_line(file, e->line, "more than %d types", MAX_ALTERNATIVES);
        e->types[e->n_types++] = type_named(file, e->line, name);
    }
}

static void read_shape(const struct examples *file, struct entry *e, const char *text)
{
    for (char *end; *text; text = *end ? end + 1 : end) {
        const long long extent = strtoll(text, &end, 10);
        if (end == text || (*end && *end != ',') || e->rank == EXAMPLE_MAX_RANK)
            bad_line(file, e->line, "%s: bad shape", e->name);
        e->shape[e->rank++] = extent;
    }
    if (e->rank == 0)
        bad_line(file, e->line, "%s has no shape", e->name);
}

/* Replaces the entry of the same name, or appends. */
static void put_entry(struct example *ex, struct entry e)
{
    struct entry *old = (struct entry *)(uintptr_t)example_entry(ex, e.name, e.out);
    if (old != NULL) {
        *old = e;
        return;
    }
    ex->entries = need(realloc(ex->entries, (size_t)(ex->n_entries + 1) * sizeof *ex->entries));
    ex->entries[ex->n_entries++] = e;
}

static void read_entry(const struct examples *file, struct example *ex, char *text, int line)
{
    struct entry e = {.own = true, .line = line};
    char *colon = strchr(text, ':');
    if (colon != NULL) {
        *colon = '\0';
        e.values = need(strdup(colon + 1));
    }
    e.name = next_word(&text);
    e.out = strcmp(e.name, "->") == 0;
    if (e.out)
        e.name = next_word(&text);
    char *type = next_word(&text);
    e.none = e.out && strcmp(type, "none") == 0;
    if (*type && !e.none) {
        read_types(file, &e, type);
        read_shape(file, &e, next_word(&text));
    }
    if (*next_word(&text) || (!e.out && e.values == NULL) || (e.out && !e.none && e.n_types == 0))
        bad_line(file, line, "want a field: NAME TYPE SHAPE: VALUES, or NAME: VALUE");
    const struct entry *old = example_entry(ex, e.name, e.out);
    if (old != NULL && old->own)
        bad_line(file, line, "%s is given twice", e.name);
    put_entry(ex, e);
}

static void read_more(const struct examples *file, struct example *ex, const char *text, int line)
{
    struct entry *last = NULL;
    for (int i = 0; i < ex->n_entries; i++)
        if (ex->entries[i].own && (last == NULL || ex->entries[i].line > last->line))
            last = &ex->entries[i];
    if (last == NULL || last->values == NULL)
        bad_line(file, line, "values without a field");
    last->values = need(realloc(last->values, strlen(last->values) + strlen(text) + 2));
    strcat(strcat(last->values, " "), text);
}

static void read_like(const struct examples *file, struct example *ex, const char *name, int line)
{
    const struct example *from = NULL;
    for (int i = 0; i < file->count; i++)
        if (&file->list[i] != ex && strcmp(file->list[i].name, name) == 0)
            from = &file->list[i];
    if (from == NULL || ex->n_entries > 0)
        bad_line(file, line, "like %s: want an earlier case, before any field", name);
    for (int i = 0; i < from->n_entries; i++) {
        struct entry e = from->entries[i];
        e.own = false;
        put_entry(ex, e);
    }
}

static void read_without(const struct examples *file, struct example *ex, const char *name, int line)
{
    int kept = 0;
    for (int i = 0; i < ex->n_entries; i++)
        if (strcmp(ex->entries[i].name, name) != 0)
            ex->entries[kept++] = ex->entries[i];
    if (kept == ex->n_entries)
        bad_line(file, line, "without %s: there is none", name);
    ex->n_entries = kept;
}

static void read_mark(const struct examples *file, struct example *ex, bool only, const char *what, int line)
{
    static const char *const known[] = {"c", "cli", "python", "inferred"};
    size_t i = 0;
    while (i < COUNT_OF(known) && strcmp(what, known[i]) != 0)
        i++;
    if (i == COUNT_OF(known))
        bad_line(file, line, "mark %s: want c, cli, python or inferred", what);
    if (strcmp(what, "inferred") == 0)
        ex->inferred = false;
    else if (only != (strcmp(what, "c") == 0))
        ex->for_c = false;
}

/* First "!! STATUS CODE ARGUMENT [batch N] [position N] [value N] [limit N]", then "!! SENTENCE". */
static void read_rejection(struct example *ex, char *text)
{
    if (ex->rejected) {
        ex->sentence = text + strspn(text, " ");
        return;
    }
    ex->rejected = true;
    ex->status = next_word(&text);
    ex->code = next_word(&text);
    ex->argument = next_word(&text);
    static const char *const names[] = {"batch", "position", "value", "limit"};
    for (int i = 0; i < 4; i++)
        ex->numbers[i] = pair_value(text, names[i], i < 2 ? -1 : 0);
}

int64_t pair_value(const char *pairs, const char *name, int64_t missing)
{
    for (const char *at = pairs; (at = strstr(at, name)) != NULL; at += strlen(name))
        if ((at == pairs || at[-1] == ' ') && at[strlen(name)] == ' ')
            return strtoll(at + strlen(name), NULL, 10);
    return missing;
}

static void read_line(struct examples *file, char *text, int line)
{
    struct example *ex = file->count > 0 ? &file->list[file->count - 1] : NULL;
    const size_t length = strcspn(text, " ");
    char *rest = text[length] ? text + length + 1 : text + length;
#define STARTS(word) (length == strlen(word) && strncmp(text, word, length) == 0)
    if (STARTS("case")) {
        file->list = need(realloc(file->list, (size_t)(file->count + 1) * sizeof *file->list));
        file->list[file->count++] =
            (struct example){.name = rest, .line = line, .for_c = true, .inferred = true};
    } else if (ex == NULL) {
        bad_line(file, line, "want a case first");
    } else if (STARTS("like")) {
        read_like(file, ex, rest, line);
    } else if (STARTS("without")) {
        read_without(file, ex, rest, line);
    } else if (STARTS("only") || STARTS("not")) {
        read_mark(file, ex, STARTS("only"), rest, line);
    } else if (STARTS("query")) {
        ex->query = rest;
    } else if (STARTS("!!")) {
        read_rejection(ex, rest);
    } else if (STARTS("with") || STARTS("try") || STARTS("ask")) {
        ex->rows = need(realloc(ex->rows, (size_t)(ex->n_rows + 1) * sizeof *ex->rows));
        ex->rows[ex->n_rows++] = need(strdup(text));
    } else if ((STARTS("&") || STARTS("|")) && ex->n_rows > 0) {
        char **const row = &ex->rows[ex->n_rows - 1];
        *row = need(realloc(*row, strlen(*row) + strlen(text) + 2));
        strcat(strcat(*row, " "), text);
    } else if (strchr(text, ':') != NULL || STARTS("->")) {
        read_entry(file, ex, text, line);
    } else {
        read_more(file, ex, text, line);
    }
#undef STARTS
}

static void check_case(const struct examples *file, const struct example *ex)
{
    const int n = example_alternatives(ex);
    bool any = ex->rejected;
    if (ex->rejected && ex->sentence == NULL)
        bad_line(file, ex->line, "the rejection has no sentence");
    for (int i = 0; i < ex->n_entries; i++) {
        const struct entry *e = &ex->entries[i];
        any = any || (e->out && !e->none);
        if (e->n_types > 1 && e->n_types != n)
            bad_line(file, e->line, "%d types, while another field has %d", e->n_types, n);
        if (e->out && !e->none && e->values == NULL && !ex->rejected)
            bad_line(file, e->line, "%s has no values", e->name);
    }
    if (!any)
        bad_line(file, ex->line, "the case expects nothing");
    for (const struct example *other = file->list; other < ex; other++)
        if (strcmp(other->name, ex->name) == 0)
            bad_line(file, ex->line, "a second case of this name");
}

/* What is read stays until the process ends; the list keeps it reachable for leak checkers. */
struct examples examples_read(const char *path)
{
    static struct kept {
        struct kept *next;
        char text[4096];
    } * kept;
    struct examples file = {.path = path};
    FILE *in = fopen(path, "r");
    if (in == NULL)
        bad_line(&file, 0, "%s", strerror(errno));
    for (int line = 1;; line++) {
        struct kept *one = need(malloc(sizeof *one));
        one->next = kept;
        kept = one;
        if (fgets(one->text, sizeof one->text, in) == NULL)
            break;
        if (strlen(one->text) == sizeof one->text - 1)
            bad_line(&file, line, "the line is too long");
        char *text = one->text + strspn(one->text, " \t"), *end = text + strlen(text);
        while (end > text && isspace((unsigned char)end[-1]))
            *--end = '\0';
        if (*text && *text != '#')
            read_line(&file, text, line);
    }
    fclose(in);
    for (int i = 0; i < file.count; i++)
        check_case(&file, &file.list[i]);
    return file;
}

int example_alternatives(const struct example *ex)
{
    int n = 1;
    for (int i = 0; i < ex->n_entries; i++)
        n = ex->entries[i].n_types > n ? ex->entries[i].n_types : n;
    return n;
}

/* ---- Elements ---- */

sy_type entry_type(const struct entry *entry, int alt)
{
    return entry->types[entry->n_types > 1 ? alt : 0];
}

DLDataType type_of(sy_type type)
{
    static const DLDataType types[SY_N_TYPES] = {
        [SY_TYPE_I8] = {0, 8, 1},       [SY_TYPE_I16] = {0, 16, 1},     [SY_TYPE_I32] = {0, 32, 1},
        [SY_TYPE_I64] = {0, 64, 1},     [SY_TYPE_U8] = {1, 8, 1},       [SY_TYPE_U16] = {1, 16, 1},
        [SY_TYPE_U32] = {1, 32, 1},     [SY_TYPE_U64] = {1, 64, 1},     [SY_TYPE_F16] = {2, 16, 1},
        [SY_TYPE_F32] = {2, 32, 1},     [SY_TYPE_F64] = {2, 64, 1},     [SY_TYPE_BF16] = {4, 16, 1},
        [SY_TYPE_BOOL] = {6, 8, 1},     [SY_TYPE_F8_E4M3] = {10, 8, 1}, [SY_TYPE_F8_E5M2] = {12, 8, 1},
        [SY_TYPE_F8_E8M0] = {14, 8, 1},
    };
    return types[type];
}

/* A decimal, nan or inf with a sign; decimals are rounded to nearest even. */
static bool read_float(sy_type type, const char *word, uint64_t *bits)
{
    const bool minus = *word == '-';
    const char *rest = word + minus;
    double value = NAN;
    char *end = NULL;
    if (strcmp(rest, "inf") == 0)
        value = INFINITY;
    else if (strcmp(rest, "nan") != 0) {
        if (!*rest || rest[strspn(rest, "0123456789.eE+-")])
            return false;
        value = strtod(rest, &end);
        if (*end)
            return false;
    }
    const bool finite = isfinite(value);
    const size_t width = type_of(type).bits;
    switch ((int)type) {
    case SY_TYPE_F16:
        *bits = f16_round(value);
        break;
    case SY_TYPE_BF16:
        *bits = bf16_round(value);
        break;
    case SY_TYPE_F32:
        *bits = f32_round(value);
        break;
    case SY_TYPE_F64:
        memcpy(bits, &value, sizeof *bits);
        break;
    default: /* the 8-bit floats are written as bit patterns */
        return false;
    }
    const uint64_t infinity = type == SY_TYPE_F64   ? UINT64_C(0x7ff0000000000000)
                              : type == SY_TYPE_F32 ? 0x7f800000
                              : type == SY_TYPE_F16 ? 0x7c00
                                                    : 0x7f80;
    if (finite && *bits == infinity)
        return false;
    *bits |= (uint64_t)minus << (width - 1);
    return true;
}

static bool read_integer(DLDataType type, const char *word, uint64_t *bits)
{
    char *end = NULL;
    errno = 0;
    if (!isdigit((unsigned char)word[*word == '-']))
        return false;
    if (type.code == kDLInt) {
        const int64_t value = strtoll(word, &end, 10), most = INT64_MAX >> (64 - type.bits);
        *bits = (uint64_t)value;
        return errno == 0 && *end == '\0' && value <= most && value >= -most - 1;
    }
    *bits = strtoull(word, &end, 10);
    const uint64_t most = type.code == SY_BOOL.code ? 1 : UINT64_MAX >> (64 - type.bits);
    return errno == 0 && *end == '\0' && *word != '-' && *bits <= most;
}

static bool read_element(sy_type type, const char *word, uint64_t *bits)
{
    const DLDataType t = type_of(type);
    char *end = NULL;
    if (strncmp(word, "0x", 2) == 0) {
        *bits = strtoull(word + 2, &end, 16);
        return *end == '\0' && word[2] && *bits <= UINT64_MAX >> (64 - t.bits);
    }
    const bool whole = t.code == kDLInt || t.code == kDLUInt || type == SY_TYPE_BOOL;
    return whole ? read_integer(t, word, bits) : read_float(type, word, bits);
}

/* A word as elements from `at` on: a value, "5*0" or "3..8"; returns how many, -1 for none of these. */
static int64_t read_word(const struct entry *entry, sy_type type, const char *word, int64_t at, int64_t count,
                         unsigned char *to)
{
    const char *const star = strchr(word, '*'), *const dots = strstr(word, "..");
    const size_t bytes = type_bytes(type_of(type));
    const long long first = strtoll(word, NULL, 10);
    const long long times = dots ? strtoll(dots + 2, NULL, 10) - first + 1 : star ? first : 1;
    const bool keep = entry->out && strcmp(star ? star + 1 : word, "_") == 0;
    uint64_t bits = 0;
    if (!keep && !dots && !read_element(type, star ? star + 1 : word, &bits))
        return -1;
    for (long long i = 0; i < times; i++) {
        char number[24];
        if (dots && (snprintf(number, sizeof number, "%lld", first + i), !read_element(type, number, &bits)))
            return -1;
        if (!keep && at + i < count)
            memcpy(to + (size_t)(at + i) * bytes, &bits, bytes);
    }
    return times < 1 ? -1 : times;
}

void entry_values(const struct examples *file, const struct entry *entry, int alt, unsigned char *to)
{
    const sy_type type = entry_type(entry, alt);
    int64_t count = 1, at = 0;
    for (int d = 0; d < entry->rank; d++)
        count *= entry->shape[d];
    char *copy = need(strdup(entry->values)), *text = copy;
    for (char *word; *(word = next_word(&text)) != '\0';) {
        const int64_t n = read_word(entry, type, word, at, count, to);
        if (n < 0)
            bad_line(file, entry->line, "%s: %s is no %s", entry->name, word, sy_type_name(type));
        at += n;
    }
    free(copy);
    if (at != count)
        bad_line(file, entry->line, "%s has %lld values, want %lld", entry->name, (long long)at,
                 (long long)count);
}
