/*
 * Fuzzes the safetensors reader from memory. Whatever the bytes are, the reader either rejects them with a
 * sentence or gives tensors that cover them exactly; a file it accepts is written and read again and must
 * come back the same.
 */
#define _XOPEN_SOURCE 700

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_tensor(const struct st_tensor *tensor)
{
    size_t bytes = 0;
    assert(tensor->name && tensor->view.data);
    assert(tensor->view.ndim >= 0 && tensor->view.ndim <= ST_MAX_RANK);
    assert(st_type_name(tensor->view.dtype));
    assert(st_shape_bytes(tensor->shape, tensor->view.ndim, tensor->view.dtype, &bytes) &&
           bytes == tensor->bytes);
    /* Touch every byte, so that the sanitizer sees a tensor that is shorter than it says. */
    unsigned sum = 0;
    for (size_t i = 0; i < bytes; i++)
        sum += ((const uint8_t *)tensor->view.data)[i];
    static volatile unsigned sink;
    sink = sum;
    (void)sink;
}

/* A file of every accepted tensor, written and read again. */
static void round_trip(const struct st_file *file)
{
    enum { MOST = 16 };
    struct st_item items[MOST];
    char path[64];
    struct st_message message;
    struct st_file again;
    if (file->n_tensors == 0 || file->n_tensors > MOST)
        return;
    for (size_t i = 0; i < file->n_tensors; i++)
        items[i] = (struct st_item){file->tensors[i].name, &file->tensors[i].view};
    snprintf(path, sizeof path, "/tmp/fuzz_safetensors.%ld", (long)getpid());
    const int written = st_save(path, items, file->n_tensors, &message);
    const int read = written && st_load(path, &again, &message);
    unlink(path);
    assert(read && again.n_tensors == file->n_tensors);
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct st_tensor *const was = &file->tensors[i], *const is = st_find(&again, was->name);
        assert(is && is->bytes == was->bytes && memcmp(is->view.data, was->view.data, was->bytes) == 0);
    }
    st_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct st_file file;
    struct st_message message = {""};
    if (!st_load_memory(data, size, &file, &message)) {
        assert(file.n_tensors == 0 && !file.tensors && !file.meta);
        assert(message.text[0] != '\0' && !strchr(message.text, '\n'));
        return 0;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < file.n_tensors; i++) {
        check_tensor(&file.tensors[i]);
        bytes += file.tensors[i].bytes;
    }
    assert(bytes <= size);
    /* Writing a file per run would make the fuzzer wait for the disk. */
    if (size % 64 == 0)
        round_trip(&file);
    st_free(&file);
    return 0;
}
