/*
 * Strided views: which of them an operator accepts in place, packing of the others, and whether two of them share
 * memory.
 */
#include "internal.h"

#include <string.h>

static DLDataType dl_type(aclDataType type)
{
    return type == ACL_FLOAT     ? SY_F32
           : type == ACL_FLOAT16 ? SY_F16
           : type == ACL_BF16    ? SY_BF16
           : type == ACL_INT8    ? SY_I8
           : type == ACL_BOOL    ? SY_BOOL
           : type == ACL_INT32   ? SY_I32
                                 : SY_I64; /* the rules accept nothing else */
}

void syi_aclnn_view_set(struct syi_aclnn_view *view, const char *name, const aclTensor *tensor)
{
    *view = (struct syi_aclnn_view){.name = name, .taken = tensor != NULL, .shape = {1, 1}};
    if (tensor == NULL)
        return;
    view->type = tensor->type;
    view->format = tensor->format;
    view->elem_bytes = aclDataTypeSize(tensor->type);
    view->rank = tensor->rank;
    for (uint64_t d = 0; d < tensor->rank && d < 2; d++) {
        view->shape[d] = tensor->dims[d];
        view->strides[d] = tensor->strides[d];
    }
    for (uint64_t d = 0; d < tensor->rank && d < SYI_ACLNN_MAX_RANK; d++) {
        view->dims[d] = tensor->dims[d];
        view->steps[d] = tensor->strides[d];
    }
    view->base = tensor->data;
    view->offset = tensor->offset;
}

size_t syi_aclnn_view_bytes(const struct syi_aclnn_view *view)
{
    return (size_t)view->shape[0] * (size_t)view->shape[1] * view->elem_bytes;
}

/* Rows of contiguous elements that do not overlap: accepted by every operator. */
static bool is_plain(const struct syi_aclnn_view *view)
{
    const bool one_column = view->rank < 2 || view->shape[1] <= 1;
    if (view->rank < 2)
        return view->shape[0] <= 1 || view->strides[0] == 1;
    return (one_column || view->strides[1] == 1) &&
           (view->shape[0] <= 1 || view->strides[0] >= view->shape[1]);
}

void syi_aclnn_view_ready(struct syi_aclnn_view *view, bool any_stride)
{
    view->packed = syi_aclnn_view_bytes(view) > 0 && !any_stride && !is_plain(view);
    view->dl = sy_tensor(NULL, dl_type(view->type), (int)view->rank, view->shape);
    view->dl.strides = view->packed ? NULL : view->strides;
}

void *syi_aclnn_view_data(const struct syi_aclnn_view *view)
{
    return view->base == NULL ? NULL : (char *)view->base + (size_t)view->offset * view->elem_bytes;
}

char *syi_aclnn_row(const struct syi_aclnn_view *view, int64_t row)
{
    const int64_t elems = view->packed || view->shape[0] <= 1 ? view->shape[1] : view->strides[0];
    return (char *)view->dl.data + (size_t)(row * elems) * view->elem_bytes;
}

/* Copies the elements of one view to another, row by row. */
static void copy(const struct syi_aclnn_view *view, char *dst, const int64_t *dst_strides, const char *src,
                 const int64_t *src_strides)
{
    const size_t bytes = view->elem_bytes;
    const int64_t columns = view->shape[1];
    for (int64_t i = 0; i < view->shape[0]; i++) {
        char *to = dst + (size_t)(i * dst_strides[0]) * bytes;
        const char *from = src + (size_t)(i * src_strides[0]) * bytes;
        if (dst_strides[1] == 1 && src_strides[1] == 1) {
            memcpy(to, from, (size_t)columns * bytes);
            continue;
        }
        for (int64_t j = 0; j < columns; j++)
            memcpy(to + (size_t)(j * dst_strides[1]) * bytes, from + (size_t)(j * src_strides[1]) * bytes,
                   bytes);
    }
}

void syi_aclnn_pack(const struct syi_aclnn_view *view, void *dst)
{
    copy(view, dst, (int64_t[2]){view->shape[1], 1}, syi_aclnn_view_data(view), view->strides);
}

void syi_aclnn_unpack(const struct syi_aclnn_view *view, const void *src)
{
    copy(view, syi_aclnn_view_data(view), view->strides, src, (int64_t[2]){view->shape[1], 1});
}

/* A view whose longer stride exceeds the extent of its shorter one has no element twice. Other views may, which is
   reason enough to reject an output. */
bool syi_aclnn_overlaps_itself(const struct syi_aclnn_view *view)
{
    int64_t n[2], stride[2];
    int steps = 0;
    for (int d = 0; d < 2; d++)
        if (view->shape[d] > 1) {
            n[steps] = view->shape[d];
            stride[steps++] = view->strides[d];
        }
    if (syi_aclnn_view_bytes(view) == 0 || steps == 0)
        return false;
    if (steps == 1)
        return stride[0] == 0;
    const int small = stride[0] <= stride[1] ? 0 : 1;
    return stride[small] == 0 || stride[1 - small] <= (n[small] - 1) * stride[small];
}

/* The bytes from the first element to the end of the last. */
struct span {
    uintptr_t begin, end;
};

static struct span span_of(const struct syi_aclnn_view *view)
{
    const uintptr_t begin = (uintptr_t)syi_aclnn_view_data(view);
    if (syi_aclnn_view_bytes(view) == 0)
        return (struct span){begin, begin};
    const int64_t reach = (view->shape[0] - 1) * view->strides[0] + (view->shape[1] - 1) * view->strides[1];
    return (struct span){begin, begin + (size_t)(reach + 1) * view->elem_bytes};
}

void syi_aclnn_view_span(const struct syi_aclnn_view *view, char **begin, char **end)
{
    const struct span span = span_of(view);
    *begin = syi_aclnn_view_data(view);
    *end = *begin + (span.end - span.begin);
}

/* The bytes of a row, if its elements are contiguous; else 0. */
static uintptr_t row_bytes(const struct syi_aclnn_view *view)
{
    return view->rank == 2 && view->strides[1] == 1 ? (uintptr_t)view->shape[1] * view->elem_bytes : 0;
}

/* Rows of the same stride in disjoint columns, as halves of one wider tensor. */
static bool interleave(const struct syi_aclnn_view *a, const struct syi_aclnn_view *b)
{
    const uintptr_t stride = (uintptr_t)a->strides[0] * a->elem_bytes;
    const uintptr_t a_bytes = row_bytes(a), b_bytes = row_bytes(b);
    if (a_bytes == 0 || b_bytes == 0 || stride == 0 || stride != (uintptr_t)b->strides[0] * b->elem_bytes)
        return false;
    const uintptr_t a_begin = span_of(a).begin, b_begin = span_of(b).begin;
    const uintptr_t ahead =
        a_begin <= b_begin ? (b_begin - a_begin) % stride : (stride - (a_begin - b_begin) % stride) % stride;
    return ahead >= a_bytes && ahead + b_bytes <= stride;
}

bool syi_aclnn_overlap(const struct syi_aclnn_view *a, const struct syi_aclnn_view *b)
{
    const struct span x = span_of(a), y = span_of(b);
    return x.begin < y.end && y.begin < x.end && x.begin < x.end && y.begin < y.end && !interleave(a, b);
}

bool syi_aclnn_same(const struct syi_aclnn_view *a, const struct syi_aclnn_view *b)
{
    return a->type == b->type && syi_aclnn_view_data(a) == syi_aclnn_view_data(b) &&
           memcmp(a->shape, b->shape, sizeof a->shape) == 0 &&
           memcmp(a->strides, b->strides, sizeof a->strides) == 0;
}
