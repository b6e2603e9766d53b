/*
 * Reading has three steps, so that false sizes are detected before memory is allocated: the length of the
 * header against the size of the file, then every entry of the header and how the entries cover the data, and
 * only then memory for tensors, whose sizes have been checked.
 */
#define _XOPEN_SOURCE 700 /* pread */

#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "output.h"
#include "text.h"

/* The reference implementation rejects longer headers; real files are far below. */
#define HEADER_LIMIT ((uint64_t)100000000)
#define LENGTH_BYTES ((uint64_t)8)

/* ---- Types ---- */

static const struct {
    const char *name;
    uint8_t code, bits; /* DLPack's numbers */
} types[] = {
    {"BOOL", 6, 8},     {"U8", 1, 8},       {"I8", 0, 8},   {"F8_E4M3", 10, 8},
    {"F8_E5M2", 12, 8}, {"F8_E8M0", 14, 8}, {"I16", 0, 16}, {"U16", 1, 16},
    {"F16", 2, 16},     {"BF16", 4, 16},    {"I32", 0, 32}, {"U32", 1, 32},
    {"F32", 2, 32},     {"F64", 2, 64},     {"I64", 0, 64}, {"U64", 1, 64},
};

const char *st_type_name(DLDataType type)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].code == type.code && types[i].bits == type.bits && type.lanes == 1)
            return types[i].name;
    return NULL;
}

bool st_type_from_name(const char *name, DLDataType *type)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, name) == 0) {
            *type = SY_TYPE(types[i].code, types[i].bits);
            return true;
        }
    return false;
}

size_t st_type_bytes(DLDataType type)
{
    return type.bits / 8u;
}

bool st_shape_bytes(const int64_t *shape, int rank, DLDataType type, size_t *bytes)
{
    size_t product = st_type_bytes(type);
    bool empty = false;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0)
            return false;
        empty = empty || shape[i] == 0;
    }
    /* An extent of 0 makes the tensor empty, even if the product of the others overflows. */
    for (int i = 0; i < rank && !empty; i++) {
        if ((uint64_t)shape[i] > SIZE_MAX / product)
            return false;
        product *= (size_t)shape[i];
    }
    *bytes = empty ? 0 : product;
    return true;
}

size_t st_bytes(const DLTensor *tensor)
{
    size_t bytes = 0;
    return st_shape_bytes(tensor->shape, tensor->ndim, tensor->dtype, &bytes) ? bytes : 0;
}

void st_shape_text(const struct st_tensor *tensor, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (int i = 0; i < tensor->view.ndim && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%lld", i > 0 ? "," : "",
                                 (long long)tensor->shape[i]);
    if (used < bytes)
        snprintf(text + used, bytes - used, "]");
}

void *st_alloc(size_t bytes)
{
    void *data = NULL;
    if (bytes > SIZE_MAX - 64 || posix_memalign(&data, 64, bytes + 1) != 0)
        return NULL;
    memset(data, 0, bytes + 1);
    return data;
}

/* ---- Where the bytes come from ---- */

struct source {
    const unsigned char *memory; /* NULL: read from fd */
    int fd;
    uint64_t bytes;
};

static bool read_at(const struct source *source, uint64_t at, void *into, size_t bytes,
                    struct st_message *message)
{
    if (source->memory) {
        if (bytes > 0)
            memcpy(into, source->memory + at, bytes);
        return true;
    }
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pread(source->fd, (char *)into + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return st_fail(message, "cannot be read: %s", strerror(errno));
        if (n == 0)
            return st_fail(message, "became shorter while it was read");
        done += (size_t)n;
    }
    return true;
}

/* ---- Coverage ---- */

static int by_place(const void *left, const void *right)
{
    const struct st_tensor *const a = *(const struct st_tensor *const *)left;
    const struct st_tensor *const b = *(const struct st_tensor *const *)right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

/* The format lays tensors end to end: every data byte belongs to exactly one of them. */
static bool check_coverage(const struct st_file *file, uint64_t data_bytes, struct st_message *message)
{
    const struct st_tensor **order = calloc(file->n_tensors + 1, sizeof *order);
    if (!order)
        return st_fail(message, "does not fit into memory");
    for (size_t i = 0; i < file->n_tensors; i++)
        order[i] = &file->tensors[i];
    qsort(order, file->n_tensors, sizeof *order, by_place);
    uint64_t end = 0;
    bool good = true;
    for (size_t i = 0; i < file->n_tensors && good; i++) {
        if (order[i]->begin < end)
            good = st_fail(message, "tensor %s: its bytes overlap those of tensor %s",
                           shown_name(order[i]->name).text, shown_name(order[i - 1]->name).text);
        else if (order[i]->begin > end)
            good = st_fail(message, "tensor %s: %llu bytes before it belong to no tensor",
                           shown_name(order[i]->name).text, (unsigned long long)(order[i]->begin - end));
        end = order[i]->begin + order[i]->bytes;
    }
    if (good && end != data_bytes)
        good = st_fail(message, "%llu bytes at its end belong to no tensor",
                       (unsigned long long)(data_bytes - end));
    free(order);
    return good;
}

/* ---- Reading ---- */

static bool read_header(const struct source *source, struct st_file *file, uint64_t *header_bytes,
                        struct st_message *message)
{
    unsigned char length[LENGTH_BYTES];
    if (source->bytes < LENGTH_BYTES)
        return st_fail(message, "is no safetensors file: %llu bytes are too few for a header length",
                       (unsigned long long)source->bytes);
    if (!read_at(source, 0, length, sizeof length, message))
        return false;
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | length[i];
    if (n > HEADER_LIMIT)
        return st_fail(message, "is no safetensors file: a header of %llu bytes is past the limit of %llu",
                       (unsigned long long)n, (unsigned long long)HEADER_LIMIT);
    if (n > source->bytes - LENGTH_BYTES)
        return st_fail(message, "is cut short: the header needs %llu bytes, %llu follow",
                       (unsigned long long)n, (unsigned long long)(source->bytes - LENGTH_BYTES));
    *header_bytes = n;
    file->header = malloc((size_t)n + 1);
    if (!file->header)
        return st_fail(message, "does not fit into memory");
    return read_at(source, LENGTH_BYTES, file->header, (size_t)n, message) &&
           st_parse_header(file, (size_t)n, source->bytes - LENGTH_BYTES - n, message);
}

static bool read_data(const struct source *source, uint64_t data_at, struct st_file *file,
                      struct st_message *message)
{
    for (size_t i = 0; i < file->n_tensors; i++) {
        struct st_tensor *const tensor = &file->tensors[i];
        void *const data = st_alloc(tensor->bytes);
        if (!data)
            return st_fail(message, "tensor %s: its %zu bytes do not fit into memory",
                           shown_name(tensor->name).text, tensor->bytes);
        tensor->view = sy_tensor(data, tensor->view.dtype, tensor->view.ndim, tensor->shape);
        if (!read_at(source, data_at + tensor->begin, data, tensor->bytes, message))
            return false;
    }
    return true;
}

static bool load(const struct source *source, struct st_file *file, struct st_message *message)
{
    *file = (struct st_file){0};
    uint64_t header_bytes = 0;
    const bool good = read_header(source, file, &header_bytes, message) &&
                      check_coverage(file, source->bytes - LENGTH_BYTES - header_bytes, message) &&
                      read_data(source, LENGTH_BYTES + header_bytes, file, message);
    if (!good)
        st_free(file);
    return good;
}

bool st_load_memory(const void *data, size_t bytes, struct st_file *file, struct st_message *message)
{
    static const unsigned char nothing[1];
    return load(&(struct source){.memory = bytes > 0 ? data : nothing, .fd = -1, .bytes = bytes}, file,
                message);
}

bool st_load(const char *path, struct st_file *file, struct st_message *message)
{
    *file = (struct st_file){0};
    /* O_NONBLOCK: opening a FIFO must not wait for a writer; it is rejected below. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return st_fail(message, "cannot be opened: %s", strerror(errno));
    struct stat status;
    bool good = true;
    if (fstat(fd, &status) != 0)
        good = st_fail(message, "cannot be read: %s", strerror(errno));
    else if (!S_ISREG(status.st_mode))
        good = st_fail(message, S_ISDIR(status.st_mode) ? "is a directory" : "is not a regular file");
    else
        good = load(&(struct source){.fd = fd, .bytes = (uint64_t)status.st_size}, file, message);
    close(fd);
    return good;
}

void st_free(struct st_file *file)
{
    for (size_t i = 0; i < file->n_tensors; i++)
        free(file->tensors[i].view.data);
    free(file->tensors);
    free(file->shapes);
    free(file->by_name);
    free(file->meta);
    free(file->header);
    *file = (struct st_file){0};
}

/* ---- Writing ---- */

/*
 * Like the reference writer, wide elements first: the header is padded to 8, so every tensor is aligned to
 * its type.
 */
static void order_items(const struct st_item *items, size_t n_items, const struct st_item **order)
{
    size_t n = 0;
    for (size_t bytes = 8; bytes > 0; bytes /= 2)
        for (size_t i = 0; i < n_items; i++)
            if (st_type_bytes(items[i].tensor->dtype) == bytes)
                order[n++] = &items[i];
}

/* {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}; moves *end to the end of the tensor. */
static json_t *describe(const DLTensor *tensor, uint64_t *end)
{
    size_t bytes = 0;
    if (!st_shape_bytes(tensor->shape, tensor->ndim, tensor->dtype, &bytes) ||
        bytes > (uint64_t)INT64_MAX - *end)
        return NULL;
    json_t *const shape = json_array();
    for (int i = 0; i < tensor->ndim; i++)
        json_array_append_new(shape, json_integer(tensor->shape[i]));
    const json_int_t begin = (json_int_t)*end;
    *end += bytes;
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", st_type_name(tensor->dtype), "shape", shape,
                     "data_offsets", begin, (json_int_t)*end);
}

static char *header_text(const struct st_item **order, size_t n_items)
{
    json_t *const root = json_object();
    uint64_t end = 0;
    bool good = root != NULL;
    for (size_t i = 0; i < n_items && good; i++)
        good = json_object_set_new(root, order[i]->name, describe(order[i]->tensor, &end)) == 0;
    char *const text = good ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

static bool write_all(int fd, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = write(fd, (const char *)data + done, bytes - done);
        if (n < 0 && errno != EINTR)
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool write_items(int fd, const char *header, const struct st_item **order, size_t n_items)
{
    const size_t text = strlen(header);
    const size_t padded = (text + 7) / 8 * 8;
    unsigned char length[LENGTH_BYTES];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)padded >> (8 * i));
    if (!write_all(fd, length, sizeof length) || !write_all(fd, header, text) ||
        !write_all(fd, "       ", padded - text))
        return false;
    for (size_t i = 0; i < n_items; i++) {
        const DLTensor *const tensor = order[i]->tensor;
        if (!write_all(fd, (const char *)tensor->data + tensor->byte_offset, st_bytes(tensor)))
            return false;
    }
    return true;
}

static bool write_file(const char *path, const char *header, const struct st_item **order, size_t n_items,
                       struct st_message *message)
{
    struct output output;
    int error = output_open(&output, path);
    if (error == 0)
        error = output_close(&output, write_items(output.fd, header, order, n_items) ? 0 : errno);
    if (error == EISDIR)
        return st_fail(message, "is a directory");
    return error == 0 || st_fail(message, "cannot be written: %s", strerror(error));
}

bool st_save(const char *path, const struct st_item *items, size_t n_items, struct st_message *message)
{
    const struct st_item **const order = calloc(n_items + 1, sizeof *order);
    char *header = NULL;
    bool good = order != NULL;
    if (good) {
        order_items(items, n_items, order);
        header = header_text(order, n_items);
        good = header != NULL;
    }
    good = good ? write_file(path, header, order, n_items, message)
                : st_fail(message, "its header does not fit into memory");
    free(header);
    free(order);
    return good;
}
