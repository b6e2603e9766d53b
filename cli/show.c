/*
 * switchyard show FILE: what is inside a safetensors file, with the first values of every tensor.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "number.h"
#include "safetensors.h"

enum { MAX_VALUES = 64, MAX_ROWS = 8 };

static void print_element(DLDataType type, const char *element)
{
    if (type.code == SY_I64.code && type.bits == 64) {
        int64_t value;
        memcpy(&value, element, sizeof value);
        printf("%" PRId64, value);
    } else if (type.code == SY_U64.code && type.bits == 64) {
        uint64_t value;
        memcpy(&value, element, sizeof value);
        printf("%" PRIu64, value);
    } else if (type.bits == 64) {
        printf("%.17g", element_value(type, element));
    } else {
        printf("%.9g", element_value(type, element));
    }
}

/* Rows of the last dimension, a line each; the number of omitted rows is printed. */
static void print_values(const struct st_tensor *tensor)
{
    const size_t element_bytes = st_type_bytes(tensor->view.dtype);
    const size_t n = tensor->bytes / element_bytes;
    const int rank = tensor->view.ndim;
    const size_t width = rank > 0 && tensor->shape[rank - 1] > 0 ? (size_t)tensor->shape[rank - 1] : 1;
    const size_t shown_width = width < MAX_VALUES ? width : MAX_VALUES;
    const size_t rows = n / width;
    for (size_t r = 0; r < rows && r < MAX_ROWS; r++) {
        printf("    ");
        for (size_t i = 0; i < shown_width; i++) {
            if (i > 0)
                putchar(' ');
            print_element(tensor->view.dtype,
                          (const char *)tensor->view.data + (r * width + i) * element_bytes);
        }
        if (shown_width < width)
            printf(" ... %zu more", width - shown_width);
        putchar('\n');
    }
    if (rows > MAX_ROWS)
        printf("    ... %zu more rows\n", rows - MAX_ROWS);
}

static void print_tensor(const struct st_tensor *tensor)
{
    char name[256], shape[ST_MAX_RANK * 24];
    printable(name, sizeof name, tensor->name);
    st_shape_text(tensor, shape, sizeof shape);
    printf("%s  %s %s\n", name, st_type_name(tensor->view.dtype), shape);
    print_values(tensor);
}

int command_show(struct common *common, struct arg_list *list)
{
    (void)common;
    const char *path = NULL;
    for (struct arg arg = arg_next(list); arg.kind != ARG_END; arg = arg_next(list)) {
        if (arg.kind == ARG_OPTION)
            return usage_error("show", "show has no option --%.*s", arg.length, arg.text);
        if (path)
            return usage_error("show", "one word too many: %s", arg.text);
        path = arg.text;
    }
    if (!path)
        return usage_error("show", "show needs a file");
    struct st_file file;
    struct st_message message;
    if (!st_load(path, &file, &message))
        return plain_error("%s: %s", path, message.text);
    for (size_t i = 0; i < file.n_tensors; i++)
        print_tensor(&file.tensors[i]);
    for (size_t i = 0; i < file.n_meta; i++) {
        char key[256], value[512];
        printable(key, sizeof key, file.meta[i].key);
        printable(value, sizeof value, file.meta[i].value);
        printf("metadata %s = %s\n", key, value);
    }
    st_free(&file);
    return EXIT_DONE;
}
