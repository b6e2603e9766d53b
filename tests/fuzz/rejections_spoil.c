/*
 * Makes a valid call wrong in one place of any kind. Scalars, absent tensors and formats are found in the operator's
 * description, so every field of every operator is treated the same.
 */
#include "rejections.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define ANY_OF(list) (list)[below((int64_t)(sizeof(list) / sizeof *(list)))]

static void note(struct trial *t, const char *name, const char *how)
{
    const size_t used = strlen(t->what);
    snprintf(t->what + used, sizeof t->what - used, "%s%s:%s", used > 0 ? " " : "", name, how);
}

static struct item *any_item(struct trial *t)
{
    return &t->c.items[below(t->c.count)];
}

/* The extents it has; a wrong rank may hide them. */
static int rank_of(const struct item *x)
{
    return x->t.ndim > 0 && x->t.ndim < MOST_RANK ? x->t.ndim : 1;
}

static int64_t any_extent(struct trial *t)
{
    const struct item *const x = any_item(t);
    return x->shape[below(rank_of(x))];
}

/* A number in the place of `v`: a neighbour, an extent of the call, a limit of some type. */
static int64_t other_number(struct trial *t, int64_t v)
{
    const int64_t near[] = {v < INT64_MAX ? v + 1 : v, v > INT64_MIN ? v - 1 : v, 0, -1, 1, below(6)};
    const int64_t limits[] = {INT32_MAX, (int64_t)INT32_MAX + 1, INT32_MIN, 65535, 65536, 32767, 4096};
    return chance(2) ? ANY_OF(near) : chance(3) ? any_extent(t) : chance(3) ? ANY_OF(limits) : hostile(NULL);
}

static double other_real(double v)
{
    const double reals[] = {0, -0.0, 1, -1, 0.5, 1e-45, 1e-300, 3e38, 1e39, INFINITY, -INFINITY, NAN};
    return chance(4) ? nextafter(v, chance(2) ? INFINITY : -INFINITY) : ANY_OF(reals);
}

static DLDataType other_type(struct trial *t)
{
    static const uint8_t bits[] = {0, 1, 4, 8, 16, 24, 32, 64, 128, 255};
    static const uint16_t lanes[] = {0, 1, 1, 1, 2, 4, UINT16_MAX};
    if (t->c.count > 0 && chance(3))
        return any_item(t)->t.dtype;
    if (chance(4))
        return (DLDataType){(uint8_t)(chance(9) ? 255 : below(19)), ANY_OF(bits), ANY_OF(lanes)};
    return sy_dtype((sy_type)below(SY_N_TYPES));
}

/* ---- Tensors ------------------------------------------------------------------------------------------------ */

static void prepend_one(struct item *x)
{
    const int rank = rank_of(x);
    memmove(x->shape + 1, x->shape, (size_t)rank * sizeof *x->shape);
    x->shape[0] = 1;
    x->t.ndim = rank + 1;
}

static void spoil_rank(struct item *x)
{
    const int rank = rank_of(x), ranks[] = {rank + 1, rank + 2, rank - 1, 0, 1, 16, 17, 33, -1, INT_MIN};
    if (chance(5))
        prepend_one(x);
    else
        x->t.ndim = ANY_OF(ranks);
}

static void spoil_stride(struct trial *t, struct item *x)
{
    const int rank = rank_of(x);
    int64_t *const stride = &x->strides[below(rank)];
    if (x->t.strides == NULL && rank > 1 && chance(4)) { /* a gap between rows, which is right */
        const int64_t row = x->strides[rank - 2], gap = 1 + below(3);
        for (int d = 0; d < rank - 1 && row > 0; d++)
            x->strides[d] = x->strides[d] / row * (row + gap);
    } else if (chance(3))
        *stride = chance(2) && *stride > 0 ? -*stride : 0;
    else
        *stride = chance(3) ? hostile(NULL) : other_number(t, *stride);
    x->t.strides = x->strides;
}

static void spoil_device(struct trial *t, DLDevice *device)
{
    static const int types[] = {kDLCPU, kDLCUDAHost, kDLCUDA, kDLCUDAManaged, 0, -1, 77};
    if (chance(4))
        device->device_id = (int32_t)other_number(t, 0);
    else
        memcpy(&device->device_type, &ANY_OF(types), sizeof types[0]);
}

static void spoil_tensor(struct trial *t)
{
    static const char *const names[] = {"missing", "no data", "no shape", "type",        "rank",   "extent",
                                        "extent",  "stride",  "device",   "byte_offset", "tensor", "place"};
    const int64_t how = below((int64_t)(sizeof names / sizeof *names));
    struct item *const x = any_item(t), *const other = any_item(t);
    int64_t *const size = &x->shape[below(rank_of(x))];
    if (t->c.count == 0)
        return;
    note(t, x->name, names[how]);
    if (how == 0)
        *x->field = NULL;
    else if (how == 1)
        x->t.data = NULL;
    else if (how == 2)
        x->t.shape = NULL;
    else if (how == 3)
        x->t.dtype = other_type(t);
    else if (how == 4)
        spoil_rank(x);
    else if (how <= 6)
        *size = other_number(t, *size);
    else if (how == 7)
        spoil_stride(t, x);
    else if (how == 8)
        spoil_device(t, &x->t.device);
    else if (how == 9)
        x->t.byte_offset = (uint64_t)(chance(2) ? below(64) : other_number(t, 0));
    else if (how == 10)
        *x->field = &other->t;
    else if (other->t.data != NULL) /* over another tensor, or where no element is aligned */
        x->t.data = (unsigned char *)other->t.data + (chance(2) ? 0 : below(40));
}

/* The address of a scalar; NULL: the operator has none of that name. */
static void *scalar_at(struct trial *t, const char *name)
{
    for (int i = t->info->n_tensors; i < t->info->n_fields; i++)
        if (strcmp(sy_op_field(t->info, i)->name, name) == 0)
            return (char *)&t->c.args + sy_op_field(t->info, i)->offset;
    return NULL;
}

static void change_everywhere(struct trial *t, int64_t from, int64_t to)
{
    for (int i = 0; i < t->c.count; i++)
        for (int d = 0; d < rank_of(&t->c.items[i]); d++)
            if (t->c.items[i].shape[d] == from)
                t->c.items[i].shape[d] = to;
    for (int i = t->info->n_tensors; i < t->info->n_fields; i++) {
        const sy_field_info *const field = sy_op_field(t->info, i);
        if (field->kind == SY_KIND_I64 && scalar_of(&t->c, field->name) == from && chance(2))
            memcpy((char *)&t->c.args + field->offset, &to, sizeof to);
    }
}

/* An extent everywhere, scalars included: what the sizes themselves do wrong, not what two of them disagree in. Several so
   large that products overflow; or one more dimension of several tensors. */
static void spoil_everywhere(struct trial *t)
{
    static const int64_t large[] = {INT32_MAX, INT64_C(1) << 31, INT64_C(1) << 32, INT64_C(1) << 40,
                                    INT64_C(1) << 61};
    const int64_t from = any_extent(t), how = below(4);
    note(t, "everywhere", how == 0 ? "rank" : how == 1 ? "large" : "extent");
    for (int i = 0; how == 0 && i < t->c.count; i++)
        if (t->c.items[i].shape[0] == from && chance(2))
            prepend_one(&t->c.items[i]);
    for (int64_t n = 1 + below(3); how == 1 && n > 0; n--)
        change_everywhere(t, any_extent(t), ANY_OF(large));
    for (int i = t->info->n_tensors; how == 1 && i < t->info->n_fields; i++)
        if (sy_op_field(t->info, i)->kind == SY_KIND_I64 && chance(3))
            memcpy((char *)&t->c.args + sy_op_field(t->info, i)->offset, &ANY_OF(large), sizeof *large);
    if (how > 1)
        change_everywhere(t, from, chance(2) ? other_number(t, from) : hostile(NULL));
}

/* The extent of a name such as E or E+1, from a tensor that is there; else a small one. */
static int64_t named_extent(struct trial *t, const char *name)
{
    for (int i = 0; i < t->info->n_tensors; i++) {
        const sy_field_info *const field = sy_op_field(t->info, i);
        const DLTensor *tensor;
        memcpy(&tensor, (const char *)&t->c.args + field->offset, sizeof tensor);
        if (tensor == NULL || tensor->shape == NULL)
            continue;
        const char *at = field->shape;
        for (int d = 0; at != NULL && d < tensor->ndim && *at != '\0' && *at != '|'; d++) {
            const size_t word = strcspn(at, " +");
            if (word == strcspn(name, " +") && strncmp(at, name, word) == 0 && tensor->shape[d] >= 0 &&
                tensor->shape[d] < 64)
                return tensor->shape[d] - (at[word] == '+') + (name[word] == '+');
            at += strcspn(at, " ");
            at += strspn(at, " ");
        }
    }
    return 1 + below(3);
}

/* Of operators between devices: like some other tensor, on both. */
static void give_absent_mesh(struct trial *t)
{
    const int64_t field = below(t->info->n_tensors);
    const struct item like = *any_item(t);
    if ((sy_op_field(t->info, (int)field)->flags & SY_FIELD_SHARED) || t->c.mesh[field][0] != NULL ||
        t->c.count + 2 > MOST_ITEMS || like.t.ndim < 1 || like.t.ndim > 3)
        return;
    for (int i = 0; i < 2; i++)
        add(&t->c, "absent", &t->c.mesh[field][i], like.t.dtype, like.t.ndim, below(5), like.shape[1],
            like.shape[2]);
    note(t, "absent", "given");
}

/* A tensor that the call does without, of a type and the shape that its description tells. */
static void give_absent(struct trial *t)
{
    const sy_field_info *const field = sy_op_field(t->info, (int)below(t->info->n_tensors));
    const DLTensor **const at = (const DLTensor **)(void *)((char *)&t->c.args + field->offset);
    int64_t shape[3] = {1, 1, 1};
    DLDataType type = other_type(t);
    int rank = 0, types = 0;
    if (*at != NULL || t->c.count >= MOST_ITEMS)
        return;
    for (const char *name = field->shape; name != NULL && rank < 3 && *name != '\0' && *name != '|';) {
        shape[rank++] = named_extent(t, name);
        name += strcspn(name, " ");
        name += strspn(name, " ");
    }
    for (int n = 0; n < SY_N_TYPES; n++)
        if (field->types >> n & 1u && chance(++types))
            type = sy_dtype((sy_type)n);
    add(&t->c, field->name, at, type, rank > 0 ? rank : 1, shape[0], shape[1], shape[2]);
    note(t, field->name, "given");
}

/* One element of the indices, or two: out of range, twice, out of order. Of floats: infinite, NaN, negative. */
static void spoil_contents(struct trial *t)
{
    const struct item *const x = any_item(t);
    const size_t size = element_bytes(x->t.dtype);
    bool empty = true;
    int64_t n = 1;
    if (t->c.count == 0 || x->output || x->t.strides != NULL || size == 0 || size > 8 ||
        !in_arena(&x->t, &empty) || empty)
        return;
    for (int d = 0; d < x->t.ndim; d++)
        n *= x->shape[d];
    unsigned char *const all = (unsigned char *)x->t.data + x->t.byte_offset;
    unsigned char *const at = all + (size_t)below(n) * size, *const from = all + (size_t)below(n) * size;
    int64_t number = 0;
    memcpy(&number, at, size);
    number = other_number(t, number);
    note(t, x->name, "contents");
    if (chance(4)) {
        unsigned char held[8];
        memcpy(held, at, size);
        memmove(at, from, size);
        memcpy(from, held, chance(2) ? size : 0);
    } else if (x->t.dtype.code == kDLFloat && size == 4) {
        memcpy(at, &(float){(float)other_real(1)}, size);
    } else {
        memcpy(at, &number, size);
    }
}

/* ---- Scalars, formats, planes, the struct itself ------------------------------------------------------------- */

static int n_words(const char *words)
{
    int n = 1;
    for (; words != NULL && *words != '\0'; words++)
        n += *words == ' ';
    return n;
}

/* A format that the description names. */
static void named_format(const sy_op_info *info, sy_kv_format *f)
{
    for (int i = info->n_tensors; i < info->n_fields; i++) {
        const sy_field_info *const field = sy_op_field(info, i);
        char name[32];
        if (field->kind != SY_KIND_FORMAT)
            continue;
        const char *at = field->words;
        for (int64_t skip = below(n_words(at)); skip > 0; skip--)
            at += strcspn(at, " ") + 1;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, " |"), at);
        (void)sy_kv_format_named(name, f);
    }
}

/* One format in the place of another, with a field that is anything, or of another size. */
static void spoil_format(struct trial *t, const char *name, const sy_kv_format **field)
{
    sy_kv_format *const f = &t->format.is;
    const sy_kv_format *const old = *field;
    static const size_t sizes[] = {0, 7, 8, 24, 40, 56, 64, 72, sizeof *f + 8, sizeof *f + 16, SIZE_MAX};
    if (old != NULL && chance(6)) {
        *field = NULL;
        note(t, name, "missing");
        return;
    }
    if (old == NULL || chance(4))
        named_format(t->info, f);
    else if (old != f)
        *f = *old;
    *field = f;
    if (old == NULL && chance(2)) {
        note(t, name, "given");
        return;
    }
    const size_t word = 8 + 4 * (size_t)below((int64_t)(sizeof *f - 8) / 4);
    char how[16];
    snprintf(how, sizeof how, "@%zu", word);
    int32_t number;
    memcpy(&number, (char *)f + word, sizeof number);
    number = (int32_t)other_number(t, number);
    if (chance(6)) {
        f->bytes = ANY_OF(sizes);
        t->format.more[below(16)] = (unsigned char)below(2);
        snprintf(how, sizeof how, "bytes");
    } else if (word < offsetof(sy_kv_format, scales))
        *(word < offsetof(sy_kv_format, scale_type) ? &f->q_type : &f->scale_type) = other_type(t);
    else if (word >= offsetof(sy_kv_format, a_min) && word < offsetof(sy_kv_format, scale_math))
        f->a_min = other_real(f->a_min);
    else
        memcpy((char *)f + word, &number, sizeof number);
    note(t, name, how);
}

/* Fields of a plane, or many planes like the first. */
static void spoil_planes(struct trial *t, const sy_kv_plane **planes)
{
    int64_t n = scalar_of(&t->c, "num_planes");
    sy_kv_plane *const plane = &t->c.planes[below(n > 0 && n <= SY_KV_MAX_PLANES ? n : 1)];
    const int64_t how = below(5);
    const DLTensor *const other = t->c.count > 0 ? &any_item(t)->t : NULL;
    if (how == 0) {
        *planes = NULL;
        note(t, "planes", "missing");
    } else if (how == 1) {
        spoil_format(t, "plane.format", &plane->format);
    } else if (how == 2) {
        *(chance(2) ? &plane->scale : &plane->global_scale) = other;
        note(t, "plane.scale", "given");
    } else {
        n = 1 + below(chance(2) ? 6 : SY_KV_MAX_PLANES);
        for (int64_t i = 1; i < n; i++)
            t->c.planes[i] = t->c.planes[0];
        if (how == 3) /* another tensor in the last of them */
            *(chance(2) ? &t->c.planes[n - 1].cache : &t->c.planes[n - 1].rows) = other;
        memcpy(scalar_at(t, "num_planes"), &n, sizeof n);
        note(t, "planes", "many");
    }
}

/* Any value that the C type of the field has. */
static void spoil_scalar(struct trial *t, const sy_field_info *field)
{
    static const size_t sizes[] = {0, 7, 8, 16, 24, 32, 40, 48, 56, 80, SIZE_MAX, SIZE_MAX / 255};
    void *const at = (char *)&t->c.args + field->offset;
    const int64_t number = other_number(t, scalar_of(&t->c, field->name));
    const int n = n_words(field->words), odd[] = {-1, n, n + 1, INT_MAX, INT_MIN};
    if (field->kind == SY_KIND_FORMAT || field->kind == SY_KIND_PLANES) {
        field->kind == SY_KIND_FORMAT ? spoil_format(t, field->name, at) : spoil_planes(t, at);
        return;
    }
    note(t, field->name, "value");
    if (field->kind == SY_KIND_BOOL)
        *(bool *)at = !*(bool *)at;
    else if (field->kind == SY_KIND_ENUM)
        memcpy(at, &(int){chance(2) ? (int)below(n) : ANY_OF(odd)}, sizeof(int));
    else if (field->kind == SY_KIND_INT || field->kind == SY_KIND_U32)
        memcpy(at, &(int32_t){(int32_t)number}, sizeof(int32_t));
    else if (field->kind == SY_KIND_I64 || field->kind == SY_KIND_U64)
        memcpy(at, &number, sizeof number);
    else if (field->kind == SY_KIND_F32)
        *(float *)at = chance(4) ? nextafterf(*(float *)at, 9) : (float)other_real((double)*(float *)at);
    else if (field->kind == SY_KIND_F64)
        *(double *)at = other_real(*(double *)at);
    else if (field->kind == SY_KIND_SIZE)
        memcpy(at, &ANY_OF(sizes), sizeof(size_t));
}

/* Several planes of another size would be pointers made of other bytes: no library can know. */
static void settle_planes(struct trial *t)
{
    size_t *const bytes = scalar_at(t, "plane_bytes");
    const int64_t n = scalar_of(&t->c, "num_planes");
    if (bytes == NULL || *bytes == 0 || *bytes > 4096)
        return;
    if (n > 1)
        *bytes = sizeof(sy_kv_plane);
    else /* what a newer header would have set */
        t->c.planes[1] = (sy_kv_plane){.cache = (const DLTensor *)(uintptr_t)(*bytes & 8)};
}

/* The struct as an older or a newer header has it; a workspace that is too small, or where a tensor is. */
static void spoil_outside(struct trial *t)
{
    const int64_t how = below(6);
    const struct item *const x = any_item(t);
    bool empty;
    if (how == 0 && !t->info->mesh) {
        t->no_args = true;
        note(t, "args", "missing");
    } else if (how == 1 && !t->info->mesh) {
        t->args_bytes = sy_op_field(t->info, (int)below(t->info->n_fields))->offset;
        note(t, "args", "older");
    } else if (how == 2 && !t->info->mesh) {
        t->args_bytes += 8 * (size_t)(1 + below(8));
        t->args[t->info->args_bytes + (size_t)below(64)] = (unsigned char)below(2);
        note(t, "args", "newer");
    } else if (how == 3) {
        t->no_query = true;
        note(t, "query", "missing");
    } else if (how == 4 || t->c.count == 0 || !in_arena(&x->t, &empty) || empty) {
        static const size_t sizes[] = {64, 128, 1024, LENT_BYTES};
        t->workspace = lent;
        t->workspace_bytes = ANY_OF(sizes);
        note(t, "workspace", "lent");
    } else {
        t->workspace = arena + ((unsigned char *)x->t.data + x->t.byte_offset - arena) / 64 * 64;
        t->workspace_bytes = 64;
        note(t, "workspace", "over a tensor");
    }
}

static void spoil_one(struct trial *t)
{
    const int64_t how = below(100);
    const int n_scalars = t->info->n_fields - t->info->n_tensors;
    const sy_field_info *const scalar =
        n_scalars > 0 ? sy_op_field(t->info, t->info->n_tensors + (int)below(n_scalars)) : NULL;
    if (how < 45 || (how < 70 && scalar == NULL))
        spoil_tensor(t);
    else if (how < 70)
        spoil_scalar(t, scalar);
    else if (how < 83)
        spoil_contents(t);
    else if (how < 89)
        t->info->mesh ? give_absent_mesh(t) : give_absent(t);
    else if (how < 97)
        spoil_everywhere(t);
    else
        spoil_outside(t);
}

void spoil_call(struct trial *t, int places)
{
    for (int i = 0; i < places; i++)
        for (size_t tries = 0, was = strlen(t->what); tries < 4 && strlen(t->what) == was; tries++)
            spoil_one(t); /* some choices are none for some calls */
    settle_planes(t);
}

/* ---- Mesh operators ------------------------------------------------------------------------------------------ */

/* [...,N,X] becomes [...,1,N,X], [...,G*N,X] becomes [...,G,N,X], with one more dimension before where two are missing. */
void lengthen(struct call *c)
{
    const bool dispatch = fuzz_ops[c->op].make == make_a2a_dispatch;
    const DLTensor *const home = c->mesh[field_number(c, dispatch ? "input" : "output")][0];
    const int64_t n = home->shape[home->ndim - 2];
    for (int i = 0; i < c->count && n > 0; i++) {
        struct item *const x = &c->items[i];
        const int rank = x->t.ndim;
        if (rank < 2 || x->shape[rank - 2] % n != 0 || strcmp(x->name, "expert_mapping") == 0 ||
            strcmp(x->name, "src") == 0)
            continue;
        const int64_t last = x->shape[rank - 1], group = x->shape[rank - 2] / n,
                      first = rank > 2 ? x->shape[0] : 1;
        memcpy(x->shape, (int64_t[]){first, group, n, last}, 4 * sizeof *x->shape);
        memcpy(x->strides, (int64_t[]){group * n * last, n * last, last, 1}, 4 * sizeof *x->strides);
        x->t.ndim = 4;
    }
}

static size_t bytes_of(sy_kind kind)
{
    return kind == SY_KIND_BOOL                                                 ? sizeof(bool)
           : kind == SY_KIND_INT || kind == SY_KIND_ENUM || kind == SY_KIND_F32 ? 4
           : kind == SY_KIND_I64                                                ? 8
                                                                                : 0;
}

void give_routing(struct trial *t, const struct call *filled_by)
{
    const sy_op_info *const from = sy_op_find(fuzz_ops[filled_by->op].name);
    const bool alike = !chance(4);
    for (int i = t->info->n_tensors; i < t->info->n_fields; i++) {
        const sy_field_info *const field = sy_op_field(t->info, i);
        char *const at = (char *)&t->c.args + field->offset;
        if (field->kind == SY_KIND_ROUTING)
            memcpy(at, &t->routing, sizeof t->routing);
        for (int k = from->n_tensors; alike && k < from->n_fields; k++)
            if (strcmp(sy_op_field(from, k)->name, field->name) == 0 &&
                strcmp(field->name, "num_planes") != 0)
                memcpy(at, (const char *)&filled_by->args + sy_op_field(from, k)->offset,
                       bytes_of(field->kind));
        if (strcmp(field->name, "reuse_routing") == 0)
            *(bool *)at = chance(2);
    }
    t->c.mesh_column = alike ? filled_by->mesh_column : t->c.mesh_column;
    note(t, "routing", "given");
}
