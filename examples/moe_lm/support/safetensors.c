/*
 * The weights of a checkpoint are in model.safetensors, or in the files that model.safetensors.index.json names. Such a file is
 * 8 bytes (the length of the header), the header (JSON: type, shape and place of every tensor), then the numbers. Files are
 * mapped to memory, so a process of a mesh reads the experts that it hosts and no others.
 */
#include <stdarg.h>

#include "../lm.h"

struct checkpoint {
    json_t
        *tensors; /* {"name": {"dtype", "shape", "data_offsets", "file"}}: the headers of all files in one */
    struct file *file; /* [n] after its header */
    int n;
};

static void add_file(struct checkpoint *c, const char *folder, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->file[i].name, name) == 0)
            return;
    struct file *const f = &c->file[c->n];
    *f = map_file(folder, name);
    require(f->data != NULL, "%s/%s is missing", folder, name);
    uint64_t length = 0;
    for (int i = 7; i >= 0 && f->bytes >= 8; i--)
        length = length << 8 | (unsigned char)f->data[i];
    require(f->bytes >= 8 && length <= f->bytes - 8, "%s is truncated: its header ends beyond its end", name);
    json_error_t error = {.text = "another value"};
    json_t *const header = json_loadb(f->data + 8, length, JSON_REJECT_DUPLICATES, &error), *entry;
    require(json_is_object(header), "%s: its header is not an object: %s", name, error.text);
    const char *tensor;
    json_object_foreach (header, tensor, entry) {
        require(json_is_object(entry), "%s: the entry of %s is not an object", name, tensor);
        json_object_set_new(entry, "file", json_integer(c->n));
    }
    json_object_update(c->tensors, header);
    f->data += 8 + length;
    f->bytes -= 8 + length;
    c->n++;
}

struct checkpoint *checkpoint_open(const char *folder)
{
    struct checkpoint *const c = NEW(struct checkpoint, 1);
    json_t *const index = json_file(folder, "model.safetensors.index.json"), *name;
    json_t *const files = json_object_get(index, "weight_map"); /* {"tensor": "file"} */
    const char *tensor;
    c->tensors = json_object();
    c->file = NEW(struct file, json_object_size(files) + 1);
    if (index == NULL)
        add_file(c, folder, "model.safetensors");
    json_object_foreach (files, tensor, name) {
        add_file(c, folder, json_text("model.safetensors.index.json", files, tensor, ""));
    }
    return c;
}

bool has_tensor(const struct checkpoint *c, const char *name)
{
    char whole[256];
    snprintf(whole, sizeof whole, "%s.weight", name);
    return json_object_get(c->tensors, whole) != NULL;
}

/* Validates all that a header says before the first number is read. */
struct matrix read_tensor(const struct checkpoint *c, int64_t rows, int64_t cols, const char *format, ...)
{
    static const char *const types[] = {[F32] = "F32", [F16] = "F16", [BF16] = "BF16"};
    char name[256];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(name, sizeof name, format, args);
    va_end(args);
    snprintf(name + n, sizeof name - (size_t)n, ".weight");
    const json_t *const entry = json_object_get(c->tensors, name);
    require(entry != NULL, "the checkpoint has no tensor %s", name);
    const struct file *const file = &c->file[json_integer_value(json_object_get(entry, "file"))];
    const json_t *const shape = json_object_get(entry, "shape"), *const place =
                                                                     json_object_get(entry, "data_offsets");
    const json_t *const want = rows > 0 ? json_pack("[I,I]", (json_int_t)rows, (json_int_t)cols)
                                        : json_pack("[I]", (json_int_t)cols);
    require(json_equal(shape, want), "%s: the shape of %s is %s, want %s as config.json says", file->name,
            name, json_shown(shape), json_shown(want));
    const char *const type_name = json_text(file->name, entry, "dtype", "missing");
    int type = F32;
    while (type <= BF16 && strcmp(type_name, types[type]) != 0)
        type++;
    require(type <= BF16, "%s: %s is of type %s, want F32, F16 or BF16", file->name, name, type_name);
    const int64_t vectors = rows > 0 ? rows : 1, bytes = vectors * cols * (type == F32 ? 4 : 2);
    const int64_t begin =
        json_whole(file->name, json_array_get(place, 0), 0, 1LL << 53, "an offset of safetensors");
    const int64_t end =
        json_whole(file->name, json_array_get(place, 1), 0, 1LL << 53, "an offset of safetensors");
    require(end - begin == bytes, "%s: the bytes of %s are not those of its shape", file->name, name);
    require(end <= (int64_t)file->bytes, "%s is truncated: %s ends beyond its end", file->name, name);
    return (struct matrix){.data = file->data + begin, .type = type, .rows = vectors, .cols = cols};
}
