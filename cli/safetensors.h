/*
 * The safetensors file format, read and written by hand: 8 bytes of header length (little-endian), a JSON
 * object that names type, shape and byte range of every tensor, then the bytes.
 *
 * A file is untrusted input. The reader uses no number in it before it has been checked against the size of
 * the file, and allocates nothing for tensors until the whole header has been accepted. This part uses nothing
 * else of the command line, so that the fuzzer can link it alone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <switchyard.h>

enum {
    ST_MAX_RANK = 16,
    ST_MESSAGE_BYTES = 512,
};

struct st_tensor {
    char *name;     /* first, as in st_meta */
    int64_t *shape; /* at most ST_MAX_RANK extents */
    DLTensor view;  /* over 64-byte aligned memory that the file owns; data is never NULL    */
    size_t bytes;
    uint64_t begin; /* where its bytes start in the data part of the file                    */
};

struct st_meta {
    char *key;
    char *value;
};

struct st_file {
    struct st_tensor *tensors; /* in the order of the header */
    size_t n_tensors;
    struct st_meta *meta; /* the entries of __metadata__ */
    size_t n_meta;
    char *header;    /* its text, which holds all names and values */
    int64_t *shapes; /* of all tensors */
    void **by_name;  /* the tensors, for st_find */
};

/* A sentence about what went wrong, without the file's name. */
struct st_message {
    char text[ST_MESSAGE_BYTES];
};

/* An item to write: a name and a compact CPU tensor. */
struct st_item {
    const char *name;
    const DLTensor *tensor;
};

/* Reads a whole file. On failure the file is empty, nothing is allocated and the message is set. */
bool st_load(const char *path, struct st_file *file, struct st_message *message);

/* The same from memory. */
bool st_load_memory(const void *data, size_t bytes, struct st_file *file, struct st_message *message);

/* Frees everything; a zeroed or already freed file is allowed. */
void st_free(struct st_file *file);

/* NULL when there is no such tensor. */
const struct st_tensor *st_find(const struct st_file *file, const char *name);

/* Writes the items; output.h describes what happens to an old file. */
bool st_save(const char *path, const struct st_item *items, size_t n_items, struct st_message *message);

/* The format's name of a type ("BF16"), or NULL; and back, which is false for an unknown name. */
const char *st_type_name(DLDataType type);
bool st_type_from_name(const char *name, DLDataType *type);

/* Bytes of one element; every type of the format has whole bytes. */
size_t st_type_bytes(DLDataType type);

/* Elements times element size of a shape; false when an extent is negative or the product does not fit. */
bool st_shape_bytes(const int64_t *shape, int rank, DLDataType type, size_t *bytes);

/* Bytes of a compact tensor; 0 where they cannot be. */
size_t st_bytes(const DLTensor *tensor);

/* "[2,1,4]" */
void st_shape_text(const struct st_tensor *tensor, char *text, size_t bytes);

/* Zeroed memory aligned to 64 bytes, also for 0 bytes; NULL when there is none. Released with free(). */
void *st_alloc(size_t bytes);

/* ---- Inside the reader: header.c ---- */

/*
 * Fills the tensors and the metadata of `file`, whose text is file->header: rejects everything that is not a header of
 * a file with `data_bytes` bytes of data, except gaps and overlaps. The file owns all memory, also on failure.
 */
bool st_parse_header(struct st_file *file, size_t header_bytes, uint64_t data_bytes,
                     struct st_message *message);

/* Sets the message and returns false. */
bool st_fail(struct st_message *message, const char *format, ...) __attribute__((format(printf, 2, 3)));
