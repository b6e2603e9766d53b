/*
 * Reads the header of a safetensors file, in one pass and in place: names point into the text, and no tree of values is built.
 * The grammar is JSON (RFC 8259) with these bounds: an object of entries, each an object of dtype, shape and data_offsets in
 * any order, and one optional __metadata__, an object of strings. Any other value is rejected where it begins, so nothing is
 * nested deeper than these, and nothing has to be skipped.
 */
#include "safetensors.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

struct reader {
    char *text, *at, *end; /* *end is 0: reading the next byte needs no test for the end */
    uint64_t data_bytes;
    struct st_file *file;
    size_t room_tensors, room_shapes, room_meta;
    size_t n_shapes;
    bool has_meta;
    struct st_message *message;
};

bool st_fail(struct st_message *message, const char *format, ...)
{
    va_list list;
    *message = (struct st_message){""};
    va_start(list, format);
    vsnprintf(message->text, sizeof message->text, format, list);
    va_end(list);
    return false;
}

static bool out_of_memory(struct st_message *message)
{
    return st_fail(message, "does not fit into memory");
}

/* ---- JSON ---- */

static bool bad(struct reader *reader, const char *reason)
{
    return st_fail(reader->message, "has a bad header: %s (byte %zu)", reason,
                   (size_t)(reader->at - reader->text));
}

static void skip_space(struct reader *reader)
{
    while (*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\n' || *reader->at == '\r')
        reader->at++;
}

/* Skips a character such as { if it is next. */
static bool take(struct reader *reader, char mark)
{
    skip_space(reader);
    const bool found = *reader->at == mark;
    reader->at += found;
    return found;
}

/* The four digits after \u; false when they are missing. */
static bool read_hex(struct reader *reader, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++, reader->at++) {
        const char c = *reader->at, low = (char)(c | 0x20);
        if (!(c >= '0' && c <= '9') && !(low >= 'a' && low <= 'f'))
            return bad(reader, "\\u without four digits");
        *code = *code << 4 | (uint32_t)(c <= '9' ? c - '0' : low - 'a' + 10);
    }
    return true;
}

/* The rest of an escape sequence after \u; half of a pair of surrogates is no character. */
static bool read_code(struct reader *reader, uint32_t *code)
{
    uint32_t low = 0;
    if (!read_hex(reader, code))
        return false;
    if (*code >= 0xd800 && *code <= 0xdbff && reader->at[0] == '\\' && reader->at[1] == 'u') {
        reader->at += 2;
        if (!read_hex(reader, &low))
            return false;
        if (low < 0xdc00 || low > 0xdfff)
            return bad(reader, "half a surrogate pair");
        *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (*code >= 0xd800 && *code <= 0xdfff)
        return bad(reader, "half a surrogate pair");
    return *code != 0 || bad(reader, "a zero byte in a string");
}

static char *put_utf8(char *to, uint32_t code)
{
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3; /* bytes after the first */
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    *to++ = (char)(lead[more] | code >> (6 * more));
    for (int i = more - 1; i >= 0; i--)
        *to++ = (char)(0x80 | (code >> (6 * i) & 0x3f));
    return to;
}

/* An escape sequence is never shorter than the character it means, so that it can be replaced in place. */
static bool read_escape(struct reader *reader, char **to)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char letter = *++reader->at;
    const char *const known = letter != '\0' ? strchr(letters, letter) : NULL;
    uint32_t code = 0;
    if (!known && letter != 'u')
        return bad(reader, "an unknown escape sequence");
    reader->at++;
    if (known)
        code = (uint32_t)meanings[known - letters];
    else if (!read_code(reader, &code))
        return false;
    *to = put_utf8(*to, code);
    return true;
}

/* The string at the opening quote, decoded in place and ended by 0. */
static bool read_string(struct reader *reader, char **string)
{
    char *to = *string = ++reader->at;
    while (*reader->at != '"') {
        uint32_t code = 0;
        if (*reader->at == '\\') {
            if (!read_escape(reader, &to))
                return false;
            continue;
        }
        const size_t length = text_char(reader->at, (size_t)(reader->end - reader->at), &code);
        if (reader->at == reader->end)
            return bad(reader, "a string without an end");
        if (length == 0)
            return bad(reader, "a string that is not UTF-8");
        if (code < 0x20)
            return bad(reader, "a control character in a string");
        memmove(to, reader->at, length);
        to += length;
        reader->at += length;
    }
    *to = '\0';
    reader->at++;
    return true;
}

/* The next member of an object: its key, and the place after the colon. *more is false at the end of the object. */
static bool next_member(struct reader *reader, bool first, char **key, bool *more)
{
    *more = !take(reader, '}');
    if (!*more)
        return true;
    if (!first && !take(reader, ','))
        return bad(reader, "want , or }");
    skip_space(reader);
    if (*reader->at != '"')
        return bad(reader, "want a name in quotes");
    if (!read_string(reader, key))
        return false;
    if (!take(reader, ':'))
        return bad(reader, "want :");
    skip_space(reader);
    return *reader->at != '\0' || bad(reader, "want a value");
}

enum list { LIST_GOOD, LIST_NONE, LIST_ITEM, LIST_BAD }; /* ITEM: item number *n is not an integer >= 0 */

/* A list of integers >= 0. *n counts all of them, the first `most` are stored. */
static enum list read_list(struct reader *reader, int64_t *items, size_t most, size_t *n)
{
    *n = 0;
    if (!take(reader, '['))
        return LIST_NONE;
    if (take(reader, ']'))
        return LIST_GOOD;
    for (;; ++*n) {
        skip_space(reader);
        const char *const start = reader->at;
        int64_t value = 0;
        for (; *reader->at >= '0' && *reader->at <= '9'; reader->at++) {
            const int digit = *reader->at - '0';
            if (value > (INT64_MAX - digit) / 10) {
                bad(reader, "an integer past 63 bits");
                return LIST_BAD;
            }
            value = 10 * value + digit;
        }
        if (reader->at == start || (*start == '0' && reader->at > start + 1) ||
            (*reader->at != '\0' && strchr(".eE", *reader->at)))
            return LIST_ITEM;
        if (*n < most)
            items[*n] = value;
        if (take(reader, ']'))
            break;
        if (!take(reader, ',')) {
            bad(reader, "want , or ]");
            return LIST_BAD;
        }
    }
    ++*n;
    return LIST_GOOD;
}

/* ---- Entries ---- */

enum key { DTYPE, SHAPE, DATA_OFFSETS, N_KEYS };
static const char *const key_names[N_KEYS] = {"dtype", "shape", "data_offsets"};

struct entry {
    const char *name;
    bool has[N_KEYS];
    DLDataType type;
    int64_t shape[ST_MAX_RANK], range[2];
    size_t rank;
};

/* A sentence about a tensor. */
static bool wrong(const struct reader *reader, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool wrong(const struct reader *reader, const char *name, const char *format, ...)
{
    char sentence[ST_MESSAGE_BYTES / 2];
    va_list list;
    va_start(list, format);
    vsnprintf(sentence, sizeof sentence, format, list);
    va_end(list);
    return st_fail(reader->message, "tensor %s: %s", shown_name(name).text, sentence);
}

static bool read_dtype(struct reader *reader, struct entry *entry)
{
    char *type = NULL;
    if (*reader->at != '"')
        return wrong(reader, entry->name, "dtype is not a string");
    return read_string(reader, &type) &&
           (st_type_from_name(type, &entry->type) ||
            wrong(reader, entry->name, "unknown dtype %s", shown_name(type).text));
}

static bool read_shape(struct reader *reader, struct entry *entry)
{
    const enum list list = read_list(reader, entry->shape, ST_MAX_RANK, &entry->rank);
    if (list == LIST_NONE)
        return wrong(reader, entry->name, "shape is not a list");
    if (list == LIST_ITEM)
        return wrong(reader, entry->name, "shape[%zu] is not an integer from 0 up", entry->rank);
    if (list == LIST_GOOD && entry->rank > ST_MAX_RANK)
        return wrong(reader, entry->name, "has rank %zu, at most %d is read", entry->rank, ST_MAX_RANK);
    return list == LIST_GOOD;
}

static bool read_range(struct reader *reader, struct entry *entry)
{
    size_t n = 0;
    const enum list list = read_list(reader, entry->range, 2, &n);
    if (list == LIST_BAD || (list == LIST_GOOD && n == 2))
        return list == LIST_GOOD;
    return wrong(reader, entry->name, "data_offsets is not a pair of integers from 0 up");
}

static bool read_member(struct reader *reader, struct entry *entry, const char *key)
{
    enum key which = DTYPE;
    while (which < N_KEYS && strcmp(key_names[which], key) != 0)
        which++;
    if (which == N_KEYS)
        return wrong(reader, entry->name, "unknown key %s in its header entry", shown_name(key).text);
    if (entry->has[which])
        return wrong(reader, entry->name, "duplicate key %s in its header entry", key);
    entry->has[which] = true;
    return which == DTYPE   ? read_dtype(reader, entry)
           : which == SHAPE ? read_shape(reader, entry)
                            : read_range(reader, entry);
}

/*
 * Stricter than st_shape_bytes: the other extents are checked even if one is 0. The reference implementation rejects an
 * empty tensor of 2^124 rows too.
 */
static bool extents_fit(const struct entry *entry)
{
    size_t product = st_type_bytes(entry->type);
    for (size_t i = 0; i < entry->rank; i++) {
        if (entry->shape[i] > 0 && (uint64_t)entry->shape[i] > SIZE_MAX / product)
            return false;
        product *= entry->shape[i] > 0 ? (size_t)entry->shape[i] : 1;
    }
    return true;
}

static bool check_entry(const struct reader *reader, const struct entry *entry, size_t *bytes)
{
    const unsigned long long from = (uint64_t)entry->range[0], to = (uint64_t)entry->range[1];
    for (enum key key = DTYPE; key < N_KEYS; key++)
        if (!entry->has[key])
            return wrong(reader, entry->name, "%s is missing", key_names[key]);
    if (from > to)
        return wrong(reader, entry->name, "data_offsets end before they begin");
    if (to > reader->data_bytes)
        return wrong(reader, entry->name, "data_offsets end at %llu, but the file holds %llu data bytes", to,
                     (unsigned long long)reader->data_bytes);
    if (!extents_fit(entry) || !st_shape_bytes(entry->shape, (int)entry->rank, entry->type, bytes))
        return wrong(reader, entry->name, "the size of its shape does not fit 64 bits");
    if (to - from != *bytes)
        return wrong(reader, entry->name, "data_offsets span %llu bytes, its shape needs %zu", to - from,
                     *bytes);
    return true;
}

/* `items` with space for `need` of them; NULL when there is no memory, and then they are unchanged. */
static void *grow(void *items, size_t *room, size_t need, size_t item_bytes)
{
    if (need <= *room)
        return items;
    const size_t wanted = need + need / 2 + 4;
    void *const grown = realloc(items, wanted * item_bytes); /* far below SIZE_MAX: headers have a limit */
    *room = grown ? wanted : *room;
    return grown;
}

static bool read_entry(struct reader *reader, char *name)
{
    struct st_file *const file = reader->file;
    struct entry entry = {.name = name};
    size_t bytes = 0;
    char *key = name;
    bool more = true;
    if (!take(reader, '{'))
        return wrong(reader, name, "its header entry is not an object");
    for (bool first = true; more; first = false)
        if (!next_member(reader, first, &key, &more) || (more && !read_member(reader, &entry, key)))
            return false;
    if (!check_entry(reader, &entry, &bytes))
        return false;
    struct st_tensor *const tensors =
        grow(file->tensors, &reader->room_tensors, file->n_tensors + 1, sizeof *tensors);
    file->tensors = tensors ? tensors : file->tensors;
    int64_t *const shapes =
        grow(file->shapes, &reader->room_shapes, reader->n_shapes + ST_MAX_RANK, sizeof *shapes);
    file->shapes = shapes ? shapes : file->shapes;
    if (!tensors || !shapes)
        return out_of_memory(reader->message);
    memcpy(file->shapes + reader->n_shapes, entry.shape, entry.rank * sizeof entry.shape[0]);
    reader->n_shapes += entry.rank;
    file->tensors[file->n_tensors++] = (struct st_tensor){
        .name = name,
        .view = {.dtype = entry.type, .ndim = (int)entry.rank},
        .bytes = bytes,
        .begin = (uint64_t)entry.range[0],
    };
    return true;
}

static bool read_meta(struct reader *reader)
{
    struct st_file *const file = reader->file;
    char *key = reader->at;
    bool more = true;
    if (reader->has_meta)
        return bad(reader, "duplicate __metadata__");
    reader->has_meta = true;
    if (!take(reader, '{'))
        return st_fail(reader->message, "__metadata__ is not an object");
    for (bool first = true;; first = false) {
        if (!next_member(reader, first, &key, &more))
            return false;
        if (!more)
            return true;
        if (*reader->at != '"')
            return st_fail(reader->message, "__metadata__: the value of %s is not a string",
                           shown_name(key).text);
        struct st_meta *const meta = grow(file->meta, &reader->room_meta, file->n_meta + 1, sizeof *meta);
        if (!meta)
            return out_of_memory(reader->message);
        file->meta = meta;
        meta[file->n_meta].key = key;
        if (!read_string(reader, &meta[file->n_meta].value))
            return false;
        file->n_meta++;
    }
}

/* ---- Names ---- */

/* Of tensors and of metadata: both begin with their name. */
static int by_name(const void *left, const void *right)
{
    const void *const a = *(void *const *)left, *const b = *(void *const *)right;
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Pointers to items in the order of their names, which must differ. NULL: the message is set. */
static void **sort_names(void *items, size_t n, size_t item_bytes, struct st_message *message)
{
    void **const order = malloc((n + 1) * sizeof *order);
    if (!order) {
        out_of_memory(message);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        order[i] = (char *)items + i * item_bytes;
    qsort(order, n, sizeof *order, by_name);
    for (size_t i = 1; i < n; i++)
        if (by_name(&order[i - 1], &order[i]) == 0) {
            st_fail(message, "has a bad header: duplicate name %s", shown_name(*(char **)order[i]).text);
            free(order);
            return NULL;
        }
    return order;
}

const struct st_tensor *st_find(const struct st_file *file, const char *name)
{
    const void *const wanted = &name;
    void *const *const found =
        file->n_tensors > 0 ? bsearch(&wanted, file->by_name, file->n_tensors, sizeof *file->by_name, by_name)
                            : NULL;
    return found ? *found : NULL;
}

bool st_parse_header(struct st_file *file, size_t header_bytes, uint64_t data_bytes,
                     struct st_message *message)
{
    struct reader reader = {
        .text = file->header,
        .at = file->header,
        .end = file->header + header_bytes,
        .data_bytes = data_bytes,
        .file = file,
        .message = message,
    };
    char *key = reader.at;
    bool more = true;
    *reader.end = '\0';
    if (*reader.at++ != '{')
        return st_fail(message, "is no safetensors file: the header does not begin with {");
    for (bool first = true; more; first = false)
        if (!next_member(&reader, first, &key, &more) ||
            (more && !(strcmp(key, "__metadata__") == 0 ? read_meta(&reader) : read_entry(&reader, key))))
            return false;
    skip_space(&reader);
    if (reader.at != reader.end)
        return bad(&reader, "bytes after its end");
    int64_t *shape = file->shapes;
    for (size_t i = 0; i < file->n_tensors; i++) {
        file->tensors[i].shape = shape;
        shape += file->tensors[i].view.ndim;
    }
    void **const keys = sort_names(file->meta, file->n_meta, sizeof *file->meta, message);
    free(keys);
    if (!keys)
        return false;
    file->by_name = sort_names(file->tensors, file->n_tensors, sizeof *file->tensors, message);
    return file->by_name != NULL;
}
