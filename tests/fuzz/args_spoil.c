/*
 * Makes a valid call wrong in one place: a missing tensor, data or shape, any type, rank, extent, stride, device, overlap or
 * scalar. Where its tensors are in memory is the business of the program.
 */
#include "args.h"

#include <math.h>
#include <string.h>

int64_t hostile(struct reader *r)
{
    static const int64_t values[] = {0,
                                     1,
                                     2,
                                     3,
                                     -1,
                                     -2,
                                     7,
                                     64,
                                     255,
                                     65535,
                                     INT32_MAX,
                                     INT64_C(1) << 31,
                                     INT32_MIN,
                                     INT64_C(1) << 32,
                                     INT64_C(1) << 40,
                                     INT64_C(1) << 61,
                                     INT64_C(1) << 62,
                                     INT64_MAX,
                                     INT64_MIN,
                                     INT64_MAX / 2 + 1};
    return values[pick(r, (int)(sizeof values / sizeof values[0]))];
}

static DLDataType any_type(struct reader *r)
{
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1},  {4, 16, 1}, {2, 64, 1}, {0, 32, 1},
                                       {0, 64, 1}, {0, 8, 1},   {1, 8, 1},  {6, 8, 1},  {1, 32, 1},
                                       {1, 64, 1}, {0, 16, 1},  {10, 8, 1}, {2, 32, 2}, {2, 32, 0},
                                       {0, 4, 1},  {5, 128, 1}, {0, 24, 1}, {0, 0, 1},  {255, 255, 65535}};
    return types[pick(r, (int)(sizeof types / sizeof types[0]))];
}

size_t element_bytes(DLDataType type)
{
    return ((size_t)type.bits * type.lanes + 7) / 8;
}

static void spoil_tensor(struct call *c, struct reader *r)
{
    if (c->count == 0)
        return;
    struct item *x = &c->items[pick(r, c->count)];
    static const int ranks[] = {0, 1, 2, 3, 4, 5, 33, -1, -2147483647 - 1};
    static const int devices[] = {kDLCPU, kDLCUDAHost, kDLCUDA, 0, -1, 77};
    const int d = pick(r, 3);
    switch (pick(r, 10)) {
    case 0:
        *x->field = NULL;
        break;
    case 1:
        x->t.data = NULL;
        break;
    case 2:
        x->t.shape = NULL;
        break;
    case 3:
        x->t.dtype = any_type(r);
        break;
    case 4:
        x->t.ndim = ranks[pick(r, 9)];
        break;
    case 5:
        x->shape[d] = hostile(r);
        break;
    case 6:
        x->t.strides = x->strides;
        x->strides[d] = pick(r, 2) ? hostile(r) : pick(r, 64);
        break;
    case 7:
        memcpy(&x->t.device.device_type, &devices[pick(r, 6)], sizeof devices[0]);
        break;
    case 8: /* anywhere, over anything, at any alignment */
        x->t.data = elsewhere(c, r);
        break;
    default:
        x->t.byte_offset = pick(r, 2) ? (uint64_t)hostile(r) : (uint64_t)pick(r, 64);
        break;
    }
}

/* Any value that the C type of the field has. */
static void spoil_scalar(struct call *c, const sy_field_info *field, struct reader *r)
{
    static const double reals[] = {0, 1, -1, 0.5, 1e-45, 3e38, 1e300, INFINITY, -INFINITY, NAN};
    const int64_t number = hostile(r);
    const double real = reals[pick(r, (int)(sizeof reals / sizeof reals[0]))];
    void *const at = (char *)&c->args + field->offset;
    switch (field->kind) {
    case SY_KIND_BOOL:
        memcpy(at, &(bool){number & 1}, sizeof(bool));
        break;
    case SY_KIND_INT:
    case SY_KIND_ENUM:
    case SY_KIND_U32:
        memcpy(at, &number, 4); /* little-endian: its lower half */
        break;
    case SY_KIND_I64:
    case SY_KIND_U64:
        memcpy(at, &number, sizeof number);
        break;
    case SY_KIND_SIZE: /* of planes: one that could be right would make pointers of other bytes */
        if (number <= 0 || number > 4096)
            memcpy(at, &number, sizeof number);
        break;
    case SY_KIND_F32:
        memcpy(at, &(float){real > 3.4e38 ? INFINITY : (float)real}, sizeof(float));
        break;
    case SY_KIND_F64:
        memcpy(at, &real, sizeof real);
        break;
    default: /* pointers: what they point to is spoiled as a tensor */
        break;
    }
}

void spoil(struct call *c, struct reader *r)
{
    const int kind = pick(r, 6);
    const sy_op_info *info = sy_op_find(fuzz_ops[c->op].name);
    const int n_scalars = info->n_fields - info->n_tensors;
    if (kind < 2 && n_scalars > 0) {
        spoil_scalar(c, sy_op_field(info, info->n_tensors + pick(r, n_scalars)), r);
    } else if (kind == 2 && c->count > 0) { /* one tensor in place of another */
        struct item *x = &c->items[pick(r, c->count)], *y = &c->items[pick(r, c->count)];
        *x->field = &y->t;
    } else {
        spoil_tensor(c, r);
    }
}

/* clang's overflow check of 128-bit products needs a function that libgcc lacks; none of them can overflow here. */
#define WIDE_ARITHMETIC __attribute__((no_sanitize("signed-integer-overflow")))
__extension__ typedef __int128 wide;

/* Far outside is far enough: sums of products of such numbers fit. */
static wide tame(wide x)
{
    const wide most = (wide)1 << 40;
    return x > most ? most : x < -most ? -most : x;
}

WIDE_ARITHMETIC bool range_of(const DLTensor *t, const void *memory, size_t bytes, int64_t *from, int64_t *to,
                              bool *empty)
{
    const wide element = (wide)element_bytes(t->dtype);
    wide low = 0, high = 0, compact = 1;
    *empty = false;
    if (t->shape == NULL && t->ndim > 0)
        return false; /* of a tensor that the call did not look at */
    for (int d = t->ndim - 1; d >= 0; d--) {
        const wide stride = t->strides ? tame(t->strides[d]) : compact, last = tame(t->shape[d]) - 1;
        if (t->shape[d] <= 0)
            *empty = true;
        else if (stride < 0)
            low += last * stride;
        else
            high += last * stride;
        if (t->strides == NULL)
            compact = tame(compact * (t->shape[d] > 0 ? t->shape[d] : 0));
    }
    const wide base =
        (wide)(intptr_t)((const uint8_t *)t->data - (const uint8_t *)memory) + (wide)t->byte_offset;
    const wide first = base + low * element, end = base + (high + 1) * element;
    *from = (int64_t)tame(first);
    *to = (int64_t)tame(end);
    return first >= 0 && end <= (wide)bytes;
}
