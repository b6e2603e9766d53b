/*
 * Weights of a Hugging Face checkpoint: model.safetensors, or the files that model.safetensors.index.json names. A file is
 * 8 bytes (length of the header), the header (JSON: type, shape and place of every tensor), then the numbers. A tensor is
 * read when it is asked for, so a process of a mesh reads the experts that it hosts and no others.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lm.h"

enum { MOST_FILES = 1000 };

struct checkpoint {
    json_t *tensors; /* by name: what the header says, "file" and "begin", the place of its first number */
    FILE *file[MOST_FILES];
    const char *name[MOST_FILES];
    int files;
};

static void add_file(struct checkpoint *c, const char *folder, const char *name)
{
    unsigned char length[8];
    struct stat info;
    uint64_t header = 0;
    if (c->files == MOST_FILES)
        die("the checkpoint has more than %d files", MOST_FILES);
    FILE *const file = open_file(folder, name);
    if (file == NULL)
        die("%s/%s is missing", folder, name);
    const bool whole = fstat(fileno(file), &info) == 0 && fread(length, 1, 8, file) == 8;
    for (int i = 0; i < 8 && whole; i++)
        header |= (uint64_t)length[i] << (8 * i);
    if (!whole || header > (uint64_t)info.st_size - 8)
        die("%s is truncated: its header ends beyond its end", name);
    char *const text = NEW(char, header);
    if (fread(text, 1, header, file) != header)
        die("%s cannot be read", name);
    json_error_t error;
    json_t *const all = json_loadb(text, header, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!json_is_object(all))
        die("%s: its header is not an object: %s", name, all == NULL ? error.text : "another value");
    const char *key;
    json_t *tensor;
    json_object_del(all, "__metadata__");
    json_object_foreach (all, key, tensor) {
        if (json_object_get(c->tensors, key) != NULL)
            die("%s: %s is in another file too", name, key);
        if (!json_is_object(tensor))
            die("%s: %s is not an object", name, key);
        json_object_set_new(tensor, "file", json_integer(c->files));
        json_object_set_new(tensor, "begin", json_integer((json_int_t)header + 8));
    }
    json_object_update(c->tensors, all);
    c->name[c->files] = name;
    c->file[c->files++] = file;
}

struct checkpoint *checkpoint_open(const char *folder)
{
    struct checkpoint *const c = NEW(struct checkpoint, 1);
    json_t *const map = json_object_get(json_file(folder, "model.safetensors.index.json"), "weight_map");
    json_t *const seen = json_object(), *file;
    const char *key;
    c->tensors = json_object();
    if (map == NULL)
        add_file(c, folder, "model.safetensors");
    json_object_foreach (map, key, file) {
        if (!json_is_string(file))
            die("model.safetensors.index.json: weight_map names no file for %s", key);
        if (json_object_get(seen, json_string_value(file)) == NULL)
            add_file(c, folder, json_string_value(file));
        json_object_set(seen, json_string_value(file), file);
    }
    json_decref(seen);
    if (json_object_size(c->tensors) == 0)
        die("%s: there are no tensors in the checkpoint", folder);
    return c;
}

bool checkpoint_has(const struct checkpoint *c, const char *name)
{
    return json_object_get(c->tensors, name) != NULL;
}

static float from_f16(uint16_t h)
{
    const uint32_t rest = h & 0x7FFF, bits = rest >= 0x7C00 ? 0x7F800000 | (rest & 0x3FF) << 13 : rest << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    value = rest >= 0x7C00 ? value : value * 0x1p112f; /* subnormals too: the product is exact */
    return h & 0x8000 ? -value : value;
}

static struct weight widened(struct weight w)
{
    float *const wide = NEW(float, w.rows *w.cols);
    for (int64_t i = 0; i < w.rows * w.cols; i++)
        wide[i] = from_f16(((const uint16_t *)w.data)[i]);
    free(w.data);
    return (struct weight){wide, false, w.rows, w.cols};
}

struct weight checkpoint_read(const struct checkpoint *c, const char *name, int64_t rows, int64_t cols)
{
    const json_t *const tensor = json_object_get(c->tensors, name), *const shape =
                                                                        json_object_get(tensor, "shape");
    const json_t *const offsets = json_object_get(tensor, "data_offsets");
    if (tensor == NULL)
        die("the checkpoint has no tensor %s", name);
    const int64_t index = json_integer_value(json_object_get(tensor, "file"));
    const char *const file = c->name[index], *const type = json_text(tensor, "dtype", "?");
    json_t *const want = rows > 0 ? json_pack("[I,I]", (json_int_t)rows, (json_int_t)cols)
                                  : json_pack("[I]", (json_int_t)cols);
    if (!json_equal(shape, want))
        die("%s: %s is %s, want %s as config.json says", file, name,
            shape != NULL ? json_dumps(shape, JSON_COMPACT | JSON_ENCODE_ANY) : "without a shape",
            json_dumps(want, JSON_COMPACT));
    json_decref(want);
    const bool f32 = strcmp(type, "F32") == 0, f16 = strcmp(type, "F16") == 0,
               bf16 = strcmp(type, "BF16") == 0;
    if (!f32 && !f16 && !bf16)
        die("%s: %s is of type %s, want F32, F16 or BF16", file, name, type);
    const int64_t most = INT64_C(1) << 48; /* rows may be heads times their size */
    if (rows > most / cols)
        die("%s: %s has more than %lld numbers", file, name, (long long)most);
    const int64_t numbers = (rows > 0 ? rows : 1) * cols, bytes = f32 ? 4 : 2;
    const int64_t begin = json_whole(json_array_get(offsets, 0), 1e15, "an offset", file),
                  end = json_whole(json_array_get(offsets, 1), 1e15, "an offset", file);
    if (end - begin != numbers * bytes)
        die("%s: the bytes of %s are not those of its shape", file, name);
    const struct weight w = {new_array((size_t)numbers, (size_t)bytes), bf16, rows > 0 ? rows : 1, cols};
    const int64_t at = json_integer_value(json_object_get(tensor, "begin")) + begin;
    if (fseeko(c->file[index], at, SEEK_SET) != 0 ||
        fread(w.data, (size_t)bytes, (size_t)numbers, c->file[index]) != (size_t)numbers)
        die("%s is truncated: %s ends beyond its end", file, name);
    return f16 ? widened(w) : w;
}
