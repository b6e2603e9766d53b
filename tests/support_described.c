/*
 * Rejections and acceptances that follow from an operator's description alone.
 */
#include "support.h"

/* A row of its own for every test; kept reachable, so that a leak checker stays quiet. */
struct made_row {
    struct made_row *next;
    struct rejection row;
    char blame[512], found[32], name[96];
};

static struct made_row *new_row(const char *argument, sy_status want, bool query)
{
    static struct made_row *rows;
    struct made_row *made = calloc(1, sizeof *made);
    if (made == NULL)
        abort();
    made->next = rows;
    made->row =
        (struct rejection){.name = made->name, .spoil.argument = argument, .want = want, .query = query};
    return rows = made;
}

struct subject {
    struct test_list *list;
    void (*make)(struct test_call *call);
    const sy_op_info *info;
    const struct test_call *call;
    int i; /* the tensor of the call */
    const sy_field_info *field;
    bool input;
};

static void add(const struct subject *s, struct made_row *made)
{
    test_add_rejections(s->list, s->make, &made->row, 1);
}

static const sy_field_info *field_of(const sy_op_info *info, const char *name)
{
    for (int i = 0; i < info->n_tensors; i++)
        if (strcmp(sy_op_field(info, i)->name, name) == 0)
            return sy_op_field(info, i);
    return NULL;
}

static void add_null(const struct subject *s)
{
    static const enum spoil_kind kinds[] = {SPOIL_TENSOR, SPOIL_SHAPE, SPOIL_DATA};
    static const char *const what[] = {"no %s", "%s without shape", "%s without data"};
    static const char *const found[] = {"is missing", "no shape", "no data"};
    for (int k = 0; k < 3; k++) {
        const bool optional = s->field->flags & SY_FIELD_OPTIONAL, empty = s->call->tensors[s->i].bytes == 0;
        if ((k == 0 && optional) || (k == 2 && empty))
            continue;
        struct made_row *made = new_row(s->field->name, SY_ERR_NULL, s->input && k < 2);
        snprintf(made->name, sizeof made->name, what[k], s->field->name);
        made->row.spoil.kind = kinds[k];
        made->row.found = found[k];
        add(s, made);
    }
}

/* The tensor itself is named, or one that must have its type. */
static void blame_type(const struct subject *s, struct made_row *made)
{
    size_t used = (size_t)snprintf(made->blame, sizeof made->blame, "%s", s->field->name);
    for (int i = 0; i < s->info->n_tensors; i++) {
        const sy_field_info *other = sy_op_field(s->info, i);
        if (other->like > 0 && sy_op_field(s->info, other->like - 1) == s->field)
            used += (size_t)snprintf(made->blame + used, sizeof made->blame - used, "|%s", other->name);
    }
    made->row.blame = made->blame;
}

static bool accepted(const struct subject *s, int type, DLDataType dtype)
{
    const size_t bits = (size_t)dtype.bits * dtype.lanes;
    const bool word = dtype.lanes == 1 && (bits == 8 || bits == 16 || bits == 32 || bits == 64);
    if (s->field->flags & SY_FIELD_ANY_WORD)
        return word;
    if (s->field->flags & SY_FIELD_ANY_BYTES)
        return bits % 8 == 0 && bits > 0;
    if (type > 0 && (s->field->types >> type & 1u))
        return true;
    if (s->field->like == 0)
        return false;
    const char *like = sy_op_field(s->info, s->field->like - 1)->name;
    for (int i = 0; i < s->call->count; i++) {
        const DLDataType other = s->call->tensors[i].t.dtype;
        if (strcmp(s->call->names[i], like) == 0)
            return other.code == dtype.code && other.bits == dtype.bits && other.lanes == dtype.lanes;
    }
    return false;
}

static void add_types(const struct subject *s)
{
    static const struct {
        int type;
        DLDataType dtype;
    } types[] = {{SY_TYPE_I8, {0, 8, 1}},
                 {SY_TYPE_I16, {0, 16, 1}},
                 {SY_TYPE_I32, {0, 32, 1}},
                 {SY_TYPE_I64, {0, 64, 1}},
                 {SY_TYPE_U8, {1, 8, 1}},
                 {SY_TYPE_U16, {1, 16, 1}},
                 {SY_TYPE_U32, {1, 32, 1}},
                 {SY_TYPE_U64, {1, 64, 1}},
                 {SY_TYPE_F16, {2, 16, 1}},
                 {SY_TYPE_F32, {2, 32, 1}},
                 {SY_TYPE_F64, {2, 64, 1}},
                 {SY_TYPE_BF16, {4, 16, 1}},
                 {SY_TYPE_BOOL, {6, 8, 1}},
                 {SY_TYPE_F8_E4M3, {10, 8, 1}},
                 {SY_TYPE_F8_E5M2, {12, 8, 1}},
                 {SY_TYPE_F8_E8M0, {14, 8, 1}},
                 {0, {2, 32, 2}},
                 {0, {0, 4, 1}},
                 {0, {5, 128, 1}},
                 {0, {1, 1, 1}}};
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        if (accepted(s, types[t].type, types[t].dtype))
            continue;
        struct made_row *made = new_row(s->field->name, SY_ERR_DTYPE, s->input);
        const DLDataType d = types[t].dtype;
        snprintf(made->name, sizeof made->name, "%s of code %d, %d bits, %d lanes", s->field->name, d.code,
                 d.bits, d.lanes);
        made->row.spoil.kind = SPOIL_TYPE;
        made->row.spoil.type = d;
        blame_type(s, made);
        add(s, made);
    }
}

static void add_ranks(const struct subject *s)
{
    const int ranks[] = {0, s->field->min_rank - 1, s->field->max_rank + 1};
    for (int r = s->field->min_rank == 1 ? 1 : 0; r < 3; r++) {
        if (ranks[r] > TENSOR_MAX_RANK)
            continue;
        struct made_row *made = new_row(s->field->name, SY_ERR_SHAPE, s->input);
        snprintf(made->name, sizeof made->name, "%s of rank %d", s->field->name, ranks[r]);
        snprintf(made->found, sizeof made->found, "has rank %d", ranks[r]);
        made->row.found = made->found;
        made->row.spoil.kind = SPOIL_RANK;
        made->row.spoil.value = ranks[r];
        add(s, made);
    }
    for (int d = 0; d < s->call->tensors[s->i].t.ndim; d++) {
        struct made_row *made = new_row(s->field->name, SY_ERR_SHAPE, s->input);
        snprintf(made->name, sizeof made->name, "%s with -3 in dimension %d", s->field->name, d);
        made->row.found = "no negative extent";
        made->row.spoil.kind = SPOIL_EXTENT;
        made->row.spoil.dim = d;
        made->row.spoil.value = -3;
        add(s, made);
    }
}

static void add_device(const struct subject *s)
{
    struct made_row *made = new_row(s->field->name, SY_ERR_DEVICE, s->input);
    snprintf(made->name, sizeof made->name, "%s on CUDA", s->field->name);
    made->row.spoil.kind = SPOIL_DEVICE;
    made->row.spoil.value = kDLCUDA;
    add(s, made);
}

static void blame_all(const struct subject *s, struct made_row *made)
{
    size_t used = 0;
    for (int i = 0; i < s->call->count; i++)
        used += (size_t)snprintf(made->blame + used, sizeof made->blame - used, "%s%s", i > 0 ? "|" : "",
                                 s->call->names[i]);
    made->row.blame = made->blame;
}

/* One byte into another tensor: even those that may be the same rows may not overlap so. */
static void add_aliases(const struct subject *s)
{
    for (int j = 0; j < s->call->count; j++) {
        const size_t bytes = s->call->tensors[j].bytes;
        if (j == s->i || bytes < 2 || s->call->tensors[s->i].bytes == 0 ||
            s->call->tensors[j].t.byte_offset > 0)
            continue;
        struct made_row *made = new_row(s->field->name, SY_ERR_ALIAS, false);
        snprintf(made->name, sizeof made->name, "%s a byte into %s", s->field->name, s->call->names[j]);
        blame_all(s, made); /* it may reach into the tensors behind */
        made->row.spoil.kind = SPOIL_OVER;
        made->row.spoil.value = 1;
        made->row.spoil.other = s->call->names[j];
        add(s, made);
    }
}

/* ---- Calls that are fine, and NULL --------------------------------------------------------------------- */

struct maker {
    struct maker *next;
    void (*make)(struct test_call *call);
};

static void pinned(void **state)
{
    test_accepts_pinned(((const struct maker *)*state)->make);
}

static void adjacent(void **state)
{
    test_accepts_adjacent(((const struct maker *)*state)->make);
}

static void missing_arguments(void **state)
{
    struct test_call call = {0};
    sy_query query;
    sy_ctx *ctx = test_ctx(1, NULL);
    ((const struct maker *)*state)->make(&call);
    const sy_op_info *info = sy_op_find(call.op);
    assert_int_equal(sy_call(NULL, info, NULL, info->args_bytes), SY_ERR_NULL);
    assert_int_equal(sy_call(ctx, info, NULL, info->args_bytes), SY_ERR_NULL);
    assert_non_null(strstr(sy_ctx_error(ctx), "args is NULL"));
    assert_int_equal(sy_call_query(ctx, info, NULL, info->args_bytes, &query), SY_ERR_NULL);
    assert_int_equal(sy_call_query(ctx, info, &call.args, info->args_bytes, NULL), SY_ERR_NULL);
    assert_non_null(strstr(sy_ctx_error(ctx), "query is NULL"));
    assert_int_equal(sy_call_query(NULL, info, &call.args, info->args_bytes, &query), SY_ERR_NULL);
    expect_status(ctx, sy_call_query(ctx, info, &call.args, info->args_bytes, &query), SY_OK);
    assert_string_equal(sy_ctx_error(ctx), "");
    test_call_free(&call);
    sy_ctx_destroy(ctx);
}

/* A call accepts outputs of the shapes and types that sy_infer gives for it, and only outputs have one. */
static void inferred(void **state)
{
    struct test_call call = {0};
    sy_shape shapes[SY_MAX_FIELDS];
    DLTensor outputs[SY_MAX_FIELDS];
    void *memory[SY_MAX_FIELDS] = {NULL};
    sy_ctx *ctx = test_ctx(1, NULL);
    ((const struct maker *)*state)->make(&call);
    const sy_op_info *info = sy_op_find(call.op);
    expect_status(ctx, sy_infer(ctx, info, &call.args, info->args_bytes, shapes, SY_MAX_FIELDS), SY_OK);
    for (int i = 0; i < info->n_tensors; i++) {
        const sy_field_info *field = sy_op_field(info, i);
        const DLTensor *t, *own = &outputs[i];
        memcpy(&t, (const char *)&call.args + field->offset, sizeof t);
        if ((field->flags & (SY_FIELD_OUT | SY_FIELD_INOUT)) != SY_FIELD_OUT) {
            assert_int_equal(shapes[i].rank, -1);
            continue;
        }
        if (t == NULL)
            continue;
        size_t bytes = type_bytes(shapes[i].type);
        assert_in_range(shapes[i].rank, field->min_rank, field->max_rank);
        for (int d = 0; d < shapes[i].rank; d++)
            bytes *= (size_t)shapes[i].extent[d];
        memory[i] = buf_new(bytes, 0);
        outputs[i] = sy_tensor(memory[i], shapes[i].type, shapes[i].rank, shapes[i].extent);
        memcpy((char *)&call.args + field->offset, &own, sizeof own);
    }
    expect_status(ctx, test_call_run(ctx, &call), SY_OK);
    for (int i = 0; i < info->n_tensors; i++)
        if (memory[i] != NULL)
            buf_free(memory[i]);
    test_call_free(&call);
    sy_ctx_destroy(ctx);
}

static void add_fine(struct test_list *list, void (*make)(struct test_call *call))
{
    static struct maker *makers;
    struct maker *maker = malloc(sizeof *maker);
    if (maker == NULL)
        abort();
    *maker = (struct maker){makers, make};
    makers = maker;
    test_add(list, "pinned host memory is host memory", pinned, maker);
    test_add(list, "adjacent tensors do not overlap", adjacent, maker);
    test_add(list, "missing arguments", missing_arguments, maker);
    test_add(list, "outputs as sy_infer wants them are accepted", inferred, maker);
}

void test_add_described(struct test_list *list, void (*make)(struct test_call *call))
{
    static struct test_call call;
    call = (struct test_call){0};
    make(&call);
    struct subject s = {list, make, sy_op_find(call.op), &call, 0, NULL, false};
    for (s.i = 0; s.i < call.count; s.i++) {
        s.field = field_of(s.info, call.names[s.i]);
        if (s.field == NULL)
            continue; /* of a further plane */
        s.input = !(s.field->flags & SY_FIELD_OUT);
        add_null(&s);
        add_types(&s);
        add_ranks(&s);
        add_device(&s);
        if (s.field->flags & SY_FIELD_OUT)
            add_aliases(&s);
    }
    add_fine(list, make);
    test_call_free(&call);
}
