/*
 * Caches of many planes on a small stack, with every kernel table, and a comm: tests/case has all other calls. What the C
 * library needs for a sentence is part of it.
 */
#include "case/stack.h"
#include "support.h"

/* One context of one thread after another, with every kernel table; NULL past the last. */
static sy_ctx *next_ctx(int *number)
{
    const char *isa = sy_isa_name((*number)++);
    return isa != NULL ? test_ctx(1, isa) : NULL;
}

/* The deepest of several calls, and what they were. */
struct deepest {
    size_t bytes;
    char what[96];
};

static void note(struct deepest *most, size_t bytes, const char *op, const char *what)
{
    if (bytes <= most->bytes)
        return;
    most->bytes = bytes;
    snprintf(most->what, sizeof most->what, "%s, %s", op, what);
}

static void expect_shallow(const struct deepest *most)
{
    print_message("%zu bytes of stack: %s\n", most->bytes, most->what);
    if (most->bytes > STACK_MOST)
        fail_msg("%s needs %zu bytes of stack, want at most %d", most->what, most->bytes, STACK_MOST);
}

/* ---- Caches of many planes --------------------------------------------------------------------------- */

enum { BLOCKS = 60, BLOCK_SIZE = 5, ROWS = BLOCKS * BLOCK_SIZE, WIDTH = 8, PLANES = SY_KV_MAX_PLANES + 1 };

enum rows_kind { PLAIN, HEADS, PACKED, ROWS_KINDS_OF_CACHE };

struct planes {
    DLTensor cache[PLANES], rows[PLANES], scale[PLANES], indices, table, pairs, cu_lens;
    sy_kv_plane more[PLANES - 1], caches[PLANES - 1]; /* rows too; for kv_blocks */
    sy_kv_format format;
    sy_kv_layout layout;
    unsigned char *memory;
    int32_t index[ROWS], page[BLOCKS], pair[2 * BLOCKS], ends[2];
    const sy_op_info *op;
    union test_args args;
    sy_ctx *ctx;
    sy_status status;
    sy_query query;
};

/* Every row of every cache; as many dense rows; in HND heads lie apart. */
static void planes_make(struct planes *p, enum rows_kind kind)
{
    static int64_t flat[] = {ROWS, WIDTH}, heads[] = {BLOCKS, 2, BLOCK_SIZE, WIDTH / 2};
    static int64_t by_head[] = {ROWS, 2, WIDTH / 2}, parts[] = {ROWS, 2};
    static int64_t many[] = {ROWS}, one_table[] = {1, BLOCKS}, two[] = {BLOCKS / 2, 2}, ends[] = {2};
    const size_t bytes = (size_t)ROWS * WIDTH * 4;
    const bool packed = kind == PACKED;
    memset(p, 0, sizeof *p);
    p->layout = kind == HEADS ? SY_KV_HND : SY_KV_NHD;
    p->memory = calloc(3 * PLANES, bytes);
    assert_non_null(p->memory);
    assert_int_equal(sy_kv_format_named("int8", &p->format), SY_OK);
    for (int i = 0; i < PLANES; i++) {
        unsigned char *at = p->memory + 3 * (size_t)i * bytes;
        p->cache[i] =
            sy_tensor(at, packed ? SY_I8 : SY_F32, kind == HEADS ? 4 : 2, kind == HEADS ? heads : flat);
        p->rows[i] = sy_tensor(at + bytes, SY_F32, kind == HEADS ? 3 : 2, kind == HEADS ? by_head : flat);
        p->scale[i] = sy_tensor(at + 2 * bytes, SY_F32, 2, parts);
        if (i > 0)
            p->caches[i - 1] = (sy_kv_plane){.cache = &p->cache[i]};
        if (i > 0)
            p->more[i - 1] = (sy_kv_plane){.cache = &p->cache[i],
                                           .rows = &p->rows[i],
                                           .format = packed ? &p->format : NULL,
                                           .scale = packed ? &p->scale[i] : NULL};
    }
    for (int i = 0; i < ROWS; i++) /* neighbours, and rows that are none */
        p->index[i] = i < ROWS / 2 ? i : ROWS - 1 - (i - ROWS / 2);
    for (int i = 0; i < BLOCKS; i++)
        p->page[i] = i < BLOCKS / 2 ? i : BLOCKS - 1 - (i - BLOCKS / 2);
    for (int i = 0; i < BLOCKS; i++)
        p->pair[i] = i;
    p->ends[1] = ROWS;
    p->indices = sy_tensor(p->index, SY_I32, 1, many);
    p->table = sy_tensor(p->page, SY_I32, 2, one_table);
    p->pairs = sy_tensor(p->pair, SY_I32, 2, two);
    p->cu_lens = sy_tensor(p->ends, SY_I32, 1, ends);
}

/* The arguments of an operator, by their names; those it has not are left out. */
static void planes_call(struct planes *p, const char *op, bool packed)
{
    const bool blocks = strcmp(op, "kv_blocks") == 0; /* whose src is another cache */
    const DLTensor *const cache = &p->cache[0], *const rows = &p->rows[0], *const indices = &p->indices,
                          *const table = &p->table, *const pairs = &p->pairs, *const cu_lens = &p->cu_lens,
                          *const scale = packed ? &p->scale[0] : NULL, *const src = blocks ? NULL : rows;
    const sy_kv_format *const format = packed ? &p->format : NULL;
    const sy_kv_plane *const planes = blocks ? p->caches : p->more;
    const size_t plane_bytes = sizeof *planes;
    const int64_t num_planes = SY_KV_MAX_PLANES, block_size = BLOCK_SIZE;
    const bool check_unique = true;
    const struct {
        const char *name;
        const void *value;
        size_t bytes;
    } fields[] = {{"cache", &cache, sizeof cache},
                  {"src", &src, sizeof src},
                  {"out", &rows, sizeof rows},
                  {"indices", &indices, sizeof indices},
                  {"slots", &indices, sizeof indices},
                  {"block_table", &table, sizeof table},
                  {"pairs", &pairs, sizeof pairs},
                  {"cu_lens", &cu_lens, sizeof cu_lens},
                  {"scale", &scale, sizeof scale},
                  {"format", &format, sizeof format},
                  {"planes", &planes, sizeof planes},
                  {"plane_bytes", &plane_bytes, sizeof plane_bytes},
                  {"num_planes", &num_planes, sizeof num_planes},
                  {"block_size", &block_size, sizeof block_size},
                  {"layout", &p->layout, sizeof p->layout},
                  {"check_unique", &check_unique, sizeof check_unique}};
    p->op = sy_op_find(op);
    for (int i = 0; i < p->op->n_fields; i++)
        for (size_t k = 0; k < COUNT_OF(fields); k++)
            if (strcmp(sy_op_field(p->op, i)->name, fields[k].name) == 0)
                memcpy((char *)&p->args + sy_op_field(p->op, i)->offset, fields[k].value, fields[k].bytes);
}

static void ask_and_call(void *data)
{
    struct planes *const p = data;
    p->status = sy_call_query(p->ctx, p->op, &p->args, p->op->args_bytes, &p->query);
    if (p->status == SY_OK)
        p->status = sy_call(p->ctx, p->op, &p->args, p->op->args_bytes);
}

TEST(many_planes)
{
    static const char *const ops[] = {"kv_gather", "kv_scatter", "kv_ragged", "kv_blocks"};
    static const char *const kinds[] = {"of plain rows", "of heads", "of packed rows"};
    struct planes *p = malloc(sizeof *p);
    struct deepest most = {0};
    int number = 0;
    assert_non_null(p);
    for (sy_ctx *ctx; (ctx = next_ctx(&number)) != NULL; sy_ctx_destroy(ctx))
        for (int kind = 0; kind < ROWS_KINDS_OF_CACHE; kind++)
            for (size_t op = 0; op < COUNT_OF(ops); op++) {
                planes_make(p, (enum rows_kind)kind);
                planes_call(p, ops[op], kind == PACKED);
                p->ctx = ctx;
                note(&most, stack_of(ask_and_call, p), ops[op], kinds[kind]);
                expect_status(ctx, p->status, SY_OK);
                p->rows[PLANES - 1].data = p->cache[3].data; /* the last one is compared, too */
                p->cache[PLANES - 1].data = p->cache[3].data;
                note(&most, stack_of(ask_and_call, p), ops[op], "overlap");
                expect_status(ctx, p->status, SY_ERR_ALIAS);
                free(p->memory);
            }
    free(p);
    expect_shallow(&most);
}

/* ---- A mesh ------------------------------------------------------------------------------------------ */

static void create_comm(void *data)
{
    if (sy_comm_create_local((sy_comm **)data, (sy_mesh){2, 2}, NULL) != SY_OK)
        abort();
}

TEST(a_comm)
{
    struct deepest most = {0};
    sy_comm *comm = NULL;
    note(&most, stack_of(create_comm, (void *)&comm), "sy_comm_create_local", "valid");
    sy_comm_destroy(comm);
    expect_shallow(&most);
}

TEST(skipped)
{
    skip_because("sanitizers make frames larger");
}

TEST_GROUP(stack)
{
    struct test_list list = {0};
    if (STACK_UNKNOWN) {
        test_add(&list, "calls on a small stack", skipped, NULL);
    } else {
        test_add(&list, "many planes on a small stack", many_planes, NULL);
        test_add(&list, "a comm on a small stack", a_comm, NULL);
    }
    return test_run(&list, "op_stack");
}
