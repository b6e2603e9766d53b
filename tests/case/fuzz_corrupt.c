/*
 * Makes a call that is laid out wrong in one place of any kind. Scalars, absent tensors and formats are found in the
 * description, so every field of every operator is treated the same.
 */
#include "fuzz.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

#define ANY_OF(t, list) (list)[stream_below((t)->s, (int64_t)(sizeof(list) / sizeof *(list)))]

static bool chance(struct trial *t, int64_t n)
{
    return stream_chance(t->s, n);
}

static int64_t below(struct trial *t, int64_t n)
{
    return stream_below(t->s, n);
}

static void note(struct trial *t, const char *name, const char *how)
{
    const size_t used = strlen(t->what);
    snprintf(t->what + used, sizeof t->what - used, "%s%s:%s", used > 0 ? " " : "", name, how);
}

/* ---- Other values ---- */

static int64_t hostile(struct trial *t)
{
    static const int64_t values[] = {0,
                                     1,
                                     2,
                                     -1,
                                     -2,
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
    return ANY_OF(t, values);
}

static struct operand *any_operand(struct trial *t)
{
    struct operand *x;
    do
        x = &t->c->operand[below(t, t->c->n_operands)];
    while (!x->given);
    return x;
}

/* The extents it has; a wrong rank may hide them. */
static int rank_of(const struct operand *x)
{
    return x->t.ndim > 0 && x->t.ndim < CASE_RANK ? x->t.ndim : 1;
}

static int64_t any_extent(struct trial *t)
{
    const struct operand *const x = any_operand(t);
    return x->now_shape[below(t, rank_of(x))];
}

/* A number in the place of `v`: a neighbour, an extent of the call, a limit of some type. */
static int64_t other_number(struct trial *t, int64_t v)
{
    const int64_t near[] = {v < INT64_MAX ? v + 1 : v, v > INT64_MIN ? v - 1 : v, 0, -1, 1, below(t, 6)};
    const int64_t limits[] = {INT32_MAX, (int64_t)INT32_MAX + 1, INT32_MIN, 65535, 65536, 32767, 4096};
    return chance(t, 2)   ? ANY_OF(t, near)
           : chance(t, 3) ? any_extent(t)
           : chance(t, 3) ? ANY_OF(t, limits)
                          : hostile(t);
}

static double other_real(struct trial *t, double v)
{
    const double reals[] = {0, -0.0, 1, -1, 0.5, 1e-45, 1e-300, 3e38, 1e39, INFINITY, -INFINITY, NAN};
    return chance(t, 4) ? nextafter(v, chance(t, 2) ? INFINITY : -INFINITY) : ANY_OF(t, reals);
}

static DLDataType other_type(struct trial *t)
{
    static const uint8_t bits[] = {0, 1, 4, 8, 16, 24, 32, 64, 128, 255};
    static const uint16_t lanes[] = {0, 1, 1, 1, 2, 4, UINT16_MAX};
    if (chance(t, 3))
        return any_operand(t)->t.dtype;
    if (!chance(t, 4))
        return sy_dtype((sy_type)below(t, SY_N_TYPES));
    const uint8_t code = (uint8_t)(chance(t, 9) ? 255 : below(t, 19)), width = ANY_OF(t, bits);
    return (DLDataType){code, width, ANY_OF(t, lanes)};
}

/* ---- Tensors ---- */

static void prepend_one(struct operand *x)
{
    const int rank = rank_of(x);
    memmove(x->now_shape + 1, x->now_shape, (size_t)rank * sizeof *x->now_shape);
    x->now_shape[0] = 1;
    x->t.ndim = rank + 1;
}

static void spoil_rank(struct trial *t, struct operand *x)
{
    const int rank = rank_of(x), ranks[] = {rank + 1, rank + 2, rank - 1, 0, 1, 16, 17, 33, -1, INT_MIN};
    if (chance(t, 5))
        prepend_one(x);
    else
        x->t.ndim = ANY_OF(t, ranks);
}

static void spoil_stride(struct trial *t, struct operand *x)
{
    int64_t *const stride = &x->now_strides[below(t, rank_of(x))];
    if (chance(t, 3))
        *stride = chance(t, 2) && *stride > 0 ? -*stride : 0;
    else
        *stride = chance(t, 3) ? hostile(t) : other_number(t, *stride);
    x->t.strides = x->now_strides;
}

static void spoil_device(struct trial *t, DLDevice *device)
{
    static const int types[] = {kDLCPU, kDLCUDAHost, kDLCUDA, kDLCUDAManaged, 0, -1, 77};
    if (chance(t, 4))
        device->device_id = (int32_t)other_number(t, 0);
    else
        memcpy(&device->device_type, &ANY_OF(t, types), sizeof types[0]);
}

static void spoil_tensor(struct trial *t)
{
    static const char *const names[] = {"missing", "no data", "no shape", "type",        "rank",   "extent",
                                        "extent",  "stride",  "device",   "byte_offset", "tensor", "place"};
    const int64_t how = below(t, (int64_t)(sizeof names / sizeof *names));
    struct operand *const x = any_operand(t), *const other = any_operand(t);
    int64_t *const size = &x->now_shape[below(t, rank_of(x))];
    note(t, x->field->name, names[how]);
    if (how == 0)
        *x->at = NULL;
    else if (how == 1)
        x->t.data = NULL;
    else if (how == 2)
        x->t.shape = NULL;
    else if (how == 3)
        x->t.dtype = other_type(t);
    else if (how == 4)
        spoil_rank(t, x);
    else if (how <= 6)
        *size = other_number(t, *size);
    else if (how == 7)
        spoil_stride(t, x);
    else if (how == 8)
        spoil_device(t, &x->t.device);
    else if (how == 9)
        x->t.byte_offset = (uint64_t)(chance(t, 2) ? below(t, 64) : other_number(t, 0));
    else if (how == 10)
        *x->at = &other->t;
    else if (other->t.data != NULL) /* over another tensor, or where no element is aligned */
        x->t.data = (unsigned char *)other->t.data + (chance(t, 2) ? 0 : below(t, 40));
}

/* An optional tensor that the call has not, as another one that it has. */
static void give_absent(struct trial *t)
{
    const int n = t->c->info->n_tensors;
    struct operand *const x = &t->c->operand[below(t, n)], *const other = any_operand(t);
    if (*x->at != NULL)
        return;
    for (int d = 0; d < t->c->n_devices; d++)
        *x[d * n].at = &other->t;
    note(t, x->field->name, "given");
}

/* The address of a scalar; NULL: the operator has none of that name. */
static void *scalar_at(struct trial *t, const char *name)
{
    for (int i = t->c->info->n_tensors; i < t->c->info->n_fields; i++)
        if (strcmp(sy_op_field(t->c->info, i)->name, name) == 0)
            return (char *)&t->c->args + sy_op_field(t->c->info, i)->offset;
    return NULL;
}

static void change_everywhere(struct trial *t, int64_t from, int64_t to)
{
    for (int i = 0; i < t->c->n_operands; i++)
        for (int d = 0; t->c->operand[i].given && d < rank_of(&t->c->operand[i]); d++)
            if (t->c->operand[i].now_shape[d] == from)
                t->c->operand[i].now_shape[d] = to;
    for (int i = t->c->info->n_tensors; i < t->c->info->n_fields; i++) {
        const sy_field_info *const f = sy_op_field(t->c->info, i);
        int64_t *const at = (int64_t *)(void *)((char *)&t->c->args + f->offset);
        if (f->kind == SY_KIND_I64 && *at == from && chance(t, 2))
            *at = to;
    }
}

/* An extent everywhere, scalars included: what the sizes themselves have wrong, not what two of them disagree in. Several
   so large that products overflow. */
static void spoil_everywhere(struct trial *t)
{
    static const int64_t large[] = {INT32_MAX, INT64_C(1) << 31, INT64_C(1) << 32, INT64_C(1) << 40,
                                    INT64_C(1) << 61};
    const int64_t how = below(t, 3);
    note(t, "everywhere", how == 0 ? "large" : "extent");
    for (int64_t n = 1 + below(t, 3); how == 0 && n > 0; n--) {
        const int64_t from = any_extent(t);
        change_everywhere(t, from, ANY_OF(t, large));
    }
    if (how > 0) {
        const int64_t from = any_extent(t);
        change_everywhere(t, from, chance(t, 2) ? other_number(t, from) : hostile(t));
    }
}

/* One element of an input, or two: out of range, twice, out of order. Of floats: infinite, NaN, negative. */
static void corrupt_contents(struct trial *t)
{
    struct operand *const x = any_operand(t);
    const int64_t n = case_count(x);
    if (!x->in || n == 0 || x->element > 8 || x->t.strides != NULL)
        return;
    unsigned char *const all = x->block + x->first;
    unsigned char *const at = all + (size_t)below(t, n) * x->element;
    unsigned char *const from = all + (size_t)below(t, n) * x->element;
    int64_t number = 0;
    memcpy(&number, at, x->element);
    number = other_number(t, number);
    note(t, x->field->name, "contents");
    if (chance(t, 4)) {
        unsigned char held[8];
        memcpy(held, at, x->element);
        memmove(at, from, x->element);
        memcpy(from, held, chance(t, 2) ? x->element : 0);
    } else if (x->type.code == kDLFloat && x->element == 4) {
        memcpy(at, &(float){(float)other_real(t, 1)}, x->element);
    } else {
        memcpy(at, &number, x->element);
    }
}

/* ---- Scalars, formats, planes, the struct itself ---- */

static int n_words(const char *words)
{
    int n = 1;
    for (; words != NULL && *words != '\0'; words++)
        n += *words == ' ';
    return n;
}

/* A format that the description names. */
static void named_format(struct trial *t, const sy_field_info *field, sy_kv_format *f)
{
    char name[32];
    const char *at = field->words;
    for (int64_t skip = below(t, n_words(at)); skip > 0; skip--)
        at += strcspn(at, " ") + 1;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(at, " |"), at);
    (void)sy_kv_format_named(name, f);
}

static void change_format(struct trial *t, sy_kv_format *f)
{
    static const size_t sizes[] = {0, 7, 8, 24, 40, 56, 64, 72, sizeof *f + 8, sizeof *f + 16, SIZE_MAX};
    const size_t word = 8 + 4 * (size_t)below(t, (int64_t)(sizeof *f - 8) / 4);
    int32_t number;
    memcpy(&number, (char *)f + word, sizeof number);
    number = (int32_t)other_number(t, number);
    if (chance(t, 6)) {
        f->bytes = ANY_OF(t, sizes);
        const int64_t at = below(t, 16);
        t->format.more[at] = (unsigned char)below(t, 2);
    } else if (word < offsetof(sy_kv_format, scales))
        *(word < offsetof(sy_kv_format, scale_type) ? &f->q_type : &f->scale_type) = other_type(t);
    else if (word >= offsetof(sy_kv_format, a_min) && word < offsetof(sy_kv_format, scale_math))
        f->a_min = other_real(t, f->a_min);
    else
        memcpy((char *)f + word, &number, sizeof number);
}

/* One format in the place of another, or with a field that is anything, or of another size. */
static void spoil_format(struct trial *t, const sy_field_info *field, const sy_kv_format **at)
{
    sy_kv_format *const f = &t->format.is;
    const sy_kv_format *const old = *at;
    note(t, field->name, old == NULL ? "given" : "format");
    if (old != NULL && chance(t, 6)) {
        *at = NULL;
        return;
    }
    if (old == NULL || chance(t, 4))
        named_format(t, field, f);
    else if (old != f)
        *f = *old;
    *at = f;
    if (old != NULL || chance(t, 2))
        change_format(t, f);
}

/* Fields of a plane, or more planes than there are. */
static void spoil_planes(struct trial *t, const sy_kv_plane **planes)
{
    int64_t *const n = scalar_at(t, "num_planes");
    const int64_t how = below(t, 4);
    const DLTensor *const other = &any_operand(t)->t;
    sy_kv_plane *const last = &t->planes[*n > 0 && *n <= CASE_PLANES ? *n - 1 : 0];
    note(t, "planes", "other");
    if (*planes != NULL && *planes != t->planes)
        memcpy(t->planes, *planes, (size_t)(*n > 0 && *n <= CASE_PLANES ? *n : 0) * sizeof *last);
    *planes = how == 0 ? NULL : t->planes;
    if (how == 1)
        *(chance(t, 2) ? &last->scale : &last->global_scale) = other;
    else if (how == 2)
        *(chance(t, 2) ? &last->cache : &last->rows) = other;
    else if (how == 3 && *n >= 0 && *n < CASE_PLANES) {
        t->planes[*n] = t->planes[0];
        ++*n;
    }
}

/* Any value that the C type of the field has. */
static void spoil_scalar(struct trial *t, const sy_field_info *field)
{
    static const size_t sizes[] = {0, 7, SIZE_MAX, SIZE_MAX / 255};
    void *const at = (char *)&t->c->args + field->offset;
    int64_t number = 0;
    const int n = n_words(field->words), odd[] = {-1, n, n + 1, INT_MAX, INT_MIN};
    if (field->kind == SY_KIND_FORMAT || field->kind == SY_KIND_PLANES) {
        field->kind == SY_KIND_FORMAT ? spoil_format(t, field, at) : spoil_planes(t, at);
        return;
    }
    if (field->kind == SY_KIND_ROUTING) {
        t->c->op->reroute(t->c, below(t, 4));
        note(t, field->name, "other");
        return;
    }
    const bool wide = field->kind == SY_KIND_I64 || field->kind == SY_KIND_U64;
    memcpy(&number, at, wide ? 8 : field->kind == SY_KIND_BOOL ? 1 : 4);
    number = other_number(t, number);
    note(t, field->name, "value");
    if (field->kind == SY_KIND_BOOL)
        *(bool *)at = !*(bool *)at;
    else if (field->kind == SY_KIND_ENUM)
        memcpy(at, &(int){chance(t, 2) ? (int)below(t, n) : ANY_OF(t, odd)}, sizeof(int));
    else if (field->kind == SY_KIND_INT || field->kind == SY_KIND_U32)
        memcpy(at, &(int32_t){(int32_t)number}, sizeof(int32_t));
    else if (wide)
        memcpy(at, &number, sizeof number);
    else if (field->kind == SY_KIND_F32)
        *(float *)at =
            chance(t, 4) ? nextafterf(*(float *)at, 9) : (float)other_real(t, (double)*(float *)at);
    else if (field->kind == SY_KIND_F64)
        *(double *)at = other_real(t, *(double *)at);
    else if (field->kind == SY_KIND_SIZE)
        memcpy(at, &ANY_OF(t, sizes), sizeof(size_t));
}

/* Planes beyond those that there are would be other bytes taken for pointers: no library can know. */
static void settle_planes(struct trial *t)
{
    int64_t *const n = scalar_at(t, "num_planes");
    const size_t *const bytes = scalar_at(t, "plane_bytes");
    const int64_t most = bytes != NULL && *bytes == sizeof(sy_kv_plane) ? CASE_PLANES : 1;
    if (bytes != NULL && *n > most && *bytes <= sizeof(sy_kv_plane) && *n <= SY_KV_MAX_PLANES)
        *n = most;
}

/* The struct as an older or a newer header has it; a workspace that is too small, or where a tensor is. */
static void spoil_outside(struct trial *t)
{
    static const size_t sizes[] = {64, 128, 1024, sizeof t->lent};
    const int64_t how = below(t, 5);
    const sy_op_info *const info = t->c->info;
    const struct operand *const x = any_operand(t);
    note(t, "outside", how == 0 ? "no args" : how == 1 ? "older" : how == 2 ? "newer" : "workspace");
    t->no_args = t->no_args || how == 0;
    if (how == 1)
        t->args_bytes = sy_op_field(info, (int)below(t, info->n_fields))->offset;
    if (how == 2) {
        t->args_bytes = info->args_bytes + 8 * (size_t)(1 + below(t, 8));
        t->newer = info->args_bytes + (size_t)below(t, 64);
    }
    if (how > 2) {
        t->workspace = how == 3 || x->bytes < 128 ? t->lent : x->block + CASE_GUARD;
        t->workspace_bytes = t->workspace == t->lent ? ANY_OF(t, sizes) : 64;
    }
}

static void spoil_one(struct trial *t)
{
    const int64_t how = below(t, 100);
    const sy_op_info *const info = t->c->info;
    const int n_scalars = info->n_fields - info->n_tensors;
    if (how < 45 || (how < 70 && n_scalars == 0))
        spoil_tensor(t);
    else if (how < 70)
        spoil_scalar(t, sy_op_field(info, info->n_tensors + (int)below(t, n_scalars)));
    else if (how < 83)
        corrupt_contents(t);
    else if (how < 89)
        give_absent(t);
    else if (how < 97)
        spoil_everywhere(t);
    else
        spoil_outside(t);
}

void corrupt_call(struct trial *t, int64_t places)
{
    for (int64_t i = 0; i < places; i++)
        for (size_t tries = 0, was = strlen(t->what); tries < 4 && strlen(t->what) == was; tries++)
            spoil_one(t); /* some choices are none for some calls */
    settle_planes(t);
}
