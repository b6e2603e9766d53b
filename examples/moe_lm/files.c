/*
 * Files, JSON (read by jansson), memory, and the end of the program when something is wrong. A Hugging Face checkpoint is
 * model.safetensors, or the files that model.safetensors.index.json names: 8 bytes (length of the header), the header (JSON:
 * type, shape and place of every tensor), then the numbers. Files are mapped, so a process of a mesh reads the experts that
 * it hosts and no others.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lm.h"

void say_and_exit(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fflush(stdout);
    if (process > 0)
        sleep(1); /* mostly the same is wrong in the first process: it prints, and ends the others */
    fputs("moe_lm: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    mesh_abort();
    exit(2);
}

void *new_array(size_t n, size_t bytes)
{
    void *made = calloc(n > 0 ? n : 1, bytes);
    if (made == NULL)
        die("there is no memory for %zu x %zu bytes", n, bytes);
    return made;
}

struct file {
    const char *name, *data; /* data NULL: there is no such file */
    size_t bytes;
};

static struct file map_file(const char *folder, const char *name)
{
    char path[4096];
    struct stat info;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        die("the path of %s is longer than %zu bytes", name, sizeof path);
    const int file = open(path, O_RDONLY);
    if (file < 0 && errno == ENOENT)
        return (struct file){.name = name};
    if (file < 0 || fstat(file, &info) != 0)
        die("%s: %s", path, strerror(errno));
    const size_t bytes = (size_t)info.st_size;
    const void *const data = bytes > 0 ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0) : "";
    if (data == MAP_FAILED)
        die("%s: %s", path, strerror(errno));
    close(file);
    return (struct file){name, data, bytes};
}

/* ---- JSON ------------------------------------------------------------------------------------------------ */

json_t *json_file(const char *folder, const char *name)
{
    const struct file file = map_file(folder, name);
    json_error_t error;
    json_t *const value = json_loadb(file.data, file.bytes, JSON_REJECT_DUPLICATES, &error);
    if (value == NULL && file.data != NULL)
        die("%s, byte %d: %s", name, error.position, error.text);
    return value;
}

const json_t *json_get(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

double json_real_at(const json_t *object, const char *key, double otherwise)
{
    const json_t *const value = json_get(object, key);
    if (value != NULL && !json_is_number(value))
        die("%s is not a number", key);
    return value != NULL ? json_number_value(value) : otherwise;
}

bool json_flag(const json_t *object, const char *key, bool otherwise)
{
    const json_t *const value = json_get(object, key);
    if (value != NULL && !json_is_boolean(value))
        die("%s is not true or false", key);
    return value != NULL ? json_is_true(value) : otherwise;
}

const char *json_text(const json_t *object, const char *key, const char *otherwise)
{
    const json_t *const value = json_get(object, key);
    if (value != NULL && !json_is_string(value))
        die("%s is not a string", key);
    return value != NULL ? json_string_value(value) : otherwise;
}

int64_t json_whole(const json_t *value, double most, const char *what, const char *name)
{
    const double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= 0 && number <= most) || number != (double)(int64_t)number)
        die("%s: %s is not a whole number from 0 to %.0f", name, what, most);
    return (int64_t)number;
}

/* ---- Checkpoints ----------------------------------------------------------------------------------------- */

enum { MOST_SHARDS = 1000 };

struct checkpoint {
    const char *folder;
    const json_t *index; /* {"tensor": "file"}; NULL: all are in model.safetensors */
    struct shard {
        struct file file;
        json_t *header;      /* {"tensor": {"dtype", "shape", "data_offsets"}} */
        const char *numbers; /* after it */
    } shard[MOST_SHARDS];
    int n;
};

struct checkpoint *checkpoint_open(const char *folder)
{
    struct checkpoint *const c = NEW(struct checkpoint, 1);
    c->folder = folder;
    c->index = json_get(json_file(folder, "model.safetensors.index.json"), "weight_map");
    return c;
}

/* The file that has a tensor, which is opened when it is needed; NULL: none has it. */
static const struct shard *shard_of(struct checkpoint *c, const char *tensor)
{
    const char *const name = c->index != NULL ? json_text(c->index, tensor, NULL) : "model.safetensors";
    struct shard *s = c->shard;
    json_error_t error = {.text = "another value"};
    uint64_t length = 0;
    while (name != NULL && s < c->shard + c->n && strcmp(s->file.name, name) != 0)
        s++;
    if (name == NULL || s < c->shard + c->n)
        return name != NULL && json_object_get(s->header, tensor) != NULL ? s : NULL;
    if (c->n++ == MOST_SHARDS)
        die("the checkpoint has more than %d files", MOST_SHARDS);
    s->file = map_file(c->folder, name);
    if (s->file.data == NULL)
        die("%s/%s is missing", c->folder, name);
    for (int i = 7; i >= 0 && s->file.bytes >= 8; i--)
        length = length << 8 | (unsigned char)s->file.data[i];
    if (s->file.bytes < 8 || length > s->file.bytes - 8)
        die("%s is truncated: its header ends beyond its end", name);
    s->numbers = s->file.data + 8 + length;
    s->header = json_loadb(s->file.data + 8, length, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(s->header))
        die("%s: its header is not an object: %s", name, error.text);
    return shard_of(c, tensor);
}

bool checkpoint_has(struct checkpoint *c, const char *name)
{
    return shard_of(c, name) != NULL;
}

struct weight checkpoint_read(struct checkpoint *c, int64_t rows, int64_t cols, const char *name, ...)
{
    char tensor[256];
    va_list args;
    va_start(args, name);
    vsnprintf(tensor, sizeof tensor, name, args);
    va_end(args);
    const struct shard *const s = shard_of(c, tensor);
    if (s == NULL)
        die("the checkpoint has no tensor %s", tensor);
    const char *const file = s->file.name;
    const json_t *const entry = json_object_get(s->header, tensor);
    const json_t *const shape = json_object_get(entry, "shape");
    json_t *const want = rows > 0 ? json_pack("[I,I]", (json_int_t)rows, (json_int_t)cols)
                                  : json_pack("[I]", (json_int_t)cols);
    if (!json_equal(shape, want))
        die("%s: %s is %s, want %s as config.json says", file, tensor,
            shape != NULL ? json_dumps(shape, JSON_COMPACT | JSON_ENCODE_ANY) : "without a shape",
            json_dumps(want, JSON_COMPACT));
    json_decref(want);
    struct weight w = {.rows = rows > 0 ? rows : 1, .cols = cols};
    const char *const type = json_text(entry, "dtype", "missing");
    const bool f32 = strcmp(type, "F32") == 0, f16 = strcmp(type, "F16") == 0,
               bf16 = strcmp(type, "BF16") == 0;
    if (!f32 && !f16 && !bf16)
        die("%s: %s is of type %s, want F32, F16 or BF16", file, tensor, type);
    w.type = f32 ? F32 : f16 ? F16 : BF16;
    const json_t *const offsets = json_object_get(entry, "data_offsets");
    const int64_t begin = json_whole(json_array_get(offsets, 0), 1e15, "an offset", file);
    const int64_t end = json_whole(json_array_get(offsets, 1), 1e15, "an offset", file);
    const int64_t most = INT64_C(1) << 48; /* rows may be heads times their size */
    if (rows > most / cols)
        die("%s: %s has more than %lld numbers", file, tensor, (long long)most);
    if (end - begin != w.rows * cols * (f32 ? 4 : 2))
        die("%s: the bytes of %s are not those of its shape", file, tensor);
    if (end > s->file.data + s->file.bytes - s->numbers)
        die("%s is truncated: %s ends beyond its end", file, tensor);
    w.data = s->numbers + begin;
    return w;
}
