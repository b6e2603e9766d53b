/*
 * The weights of a checkpoint are in model.safetensors, or in the files that model.safetensors.index.json names: 8 bytes (length
 * of the header), the header (JSON: type, shape and place of every tensor), then the numbers. Files are mapped when they are
 * first needed, so a process of a mesh reads the experts that it hosts and no others.
 */
#include <stdarg.h>

#include "../lm.h"

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

static const struct shard *open_shard(struct checkpoint *c, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->shard[i].file.name, name) == 0)
            return &c->shard[i];
    require(c->n < MOST_SHARDS, "the checkpoint has more than %d files", MOST_SHARDS);
    struct shard *const s = &c->shard[c->n++];
    s->file = map_file(c->folder, name);
    require(s->file.data != NULL, "%s/%s is missing", c->folder, name);
    uint64_t length = 0;
    for (int i = 7; i >= 0 && s->file.bytes >= 8; i--)
        length = length << 8 | (unsigned char)s->file.data[i];
    require(s->file.bytes >= 8 && length <= s->file.bytes - 8,
            "%s is truncated: its header ends beyond its end", name);
    json_error_t error = {.text = "another value"};
    s->header = json_loadb(s->file.data + 8, length, JSON_REJECT_DUPLICATES, &error);
    require(json_is_object(s->header), "%s: its header is not an object: %s", name, error.text);
    s->numbers = s->file.data + 8 + length;
    return s;
}

/* The file that has a tensor; NULL: none has it. */
static const struct shard *shard_of(struct checkpoint *c, const char *tensor)
{
    const char *const name = c->index != NULL ? json_text(c->index, tensor, NULL) : "model.safetensors";
    const struct shard *const s = name != NULL ? open_shard(c, name) : NULL;
    return s != NULL && json_object_get(s->header, tensor) != NULL ? s : NULL;
}

bool has_tensor(struct checkpoint *c, const char *tensor)
{
    return shard_of(c, tensor) != NULL;
}

/* Validates all that a header says before the first number is read. */
struct weight read_tensor(struct checkpoint *c, int64_t rows, int64_t cols, const char *format, ...)
{
    static const char *const types[] = {[F32] = "F32", [F16] = "F16", [BF16] = "BF16"};
    char tensor[256];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(tensor, sizeof tensor, format, args);
    va_end(args);
    snprintf(tensor + n, sizeof tensor - (size_t)n, ".weight");
    const struct shard *const s = shard_of(c, tensor);
    require(s != NULL, "the checkpoint has no tensor %s", tensor);
    const char *const file = s->file.name;
    const json_t *const entry = json_object_get(s->header, tensor);
    const json_t *const shape = json_object_get(entry, "shape");
    json_t *const want = rows > 0 ? json_pack("[I,I]", (json_int_t)rows, (json_int_t)cols)
                                  : json_pack("[I]", (json_int_t)cols);
    require(json_equal(shape, want), "%s: %s is %s, want %s as config.json says", file, tensor,
            shape != NULL ? json_dumps(shape, JSON_COMPACT | JSON_ENCODE_ANY) : "without a shape",
            json_dumps(want, JSON_COMPACT));
    json_decref(want);
    const char *const name = json_text(entry, "dtype", "missing");
    int type = F32;
    while (type <= BF16 && strcmp(name, types[type]) != 0)
        type++;
    require(type <= BF16, "%s: %s is of type %s, want F32, F16 or BF16", file, tensor, name);
    const json_t *const offsets = json_object_get(entry, "data_offsets");
    const int64_t begin = json_whole(json_array_get(offsets, 0), 1e15, "an offset", file);
    const int64_t end = json_whole(json_array_get(offsets, 1), 1e15, "an offset", file);
    const int64_t most = INT64_C(1) << 48; /* rows may be heads times their size */
    const int64_t vectors = rows > 0 ? rows : 1;
    require(rows <= most / cols, "%s: %s has more than %lld numbers", file, tensor, (long long)most);
    require(end - begin == vectors * cols * (type == F32 ? 4 : 2),
            "%s: the bytes of %s are not those of its shape", file, tensor);
    require(end <= s->file.data + s->file.bytes - s->numbers, "%s is truncated: %s ends beyond its end", file,
            tensor);
    return (struct weight){s->numbers + begin, type, vectors, cols};
}
