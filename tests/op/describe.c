/*
 * The operators by number and by name: lookups, calls by description, and what is rejected.
 */
#include "support.h"

#include <ctype.h>

TEST(numbers_and_names)
{
    assert_true(sy_op_count() >= 30);
    for (int i = 0; i < sy_op_count(); i++) {
        const sy_op_info *op = sy_op_at(i);
        assert_non_null(op);
        assert_int_equal(op->number, i);
        assert_ptr_equal(sy_op_find(op->name), op);
        assert_true(op->summary[0] != '\0');
        assert_in_range(op->args_bytes, 1, sizeof(union test_args));
        assert_in_range(op->n_fields, 1, SY_MAX_FIELDS);
        for (int f = 0; f < op->n_fields; f++)
            assert_int_equal(sy_op_field(op, f)->kind == SY_KIND_TENSOR, f < op->n_tensors);
    }
    assert_null(sy_op_at(-1));
    assert_null(sy_op_at(sy_op_count()));
    assert_null(sy_op_find(NULL));
    assert_null(sy_op_find(""));
    assert_null(sy_op_find("moe_permut"));
    assert_null(sy_op_find("moe_permute "));
}

TEST(types_and_kinds)
{
    assert_string_equal(sy_type_name(SY_TYPE_BF16), "bf16");
    assert_string_equal(sy_type_name((sy_type)SY_N_TYPES), "another type");
    assert_string_equal(sy_type_name((sy_type)-1), "another type");
    const DLDataType types[SY_N_TYPES] = {
        [SY_TYPE_I8] = SY_I8,          [SY_TYPE_I16] = SY_I16,         [SY_TYPE_I32] = SY_I32,
        [SY_TYPE_I64] = SY_I64,        [SY_TYPE_U8] = SY_U8,           [SY_TYPE_U16] = SY_U16,
        [SY_TYPE_U32] = SY_U32,        [SY_TYPE_U64] = SY_U64,         [SY_TYPE_F16] = SY_F16,
        [SY_TYPE_F32] = SY_F32,        [SY_TYPE_F64] = SY_F64,         [SY_TYPE_BF16] = SY_BF16,
        [SY_TYPE_BOOL] = SY_BOOL,      [SY_TYPE_F8_E4M3] = SY_F8_E4M3, [SY_TYPE_F8_E5M2] = SY_F8_E5M2,
        [SY_TYPE_F8_E8M0] = SY_F8_E8M0};
    for (int i = 1; i < SY_N_TYPES; i++) {
        const DLDataType type = sy_dtype((sy_type)i);
        assert_memory_equal(&type, &types[i], sizeof type);
        assert_int_equal(sy_type_of(type), i);
    }
    for (int i = -1; i <= SY_N_TYPES; i += SY_N_TYPES + 1) /* no type has these numbers */
        assert_int_equal(sy_type_of(sy_dtype((sy_type)i)), SY_TYPE_OTHER);
    assert_int_equal(sy_type_of(sy_dtype(SY_TYPE_OTHER)), SY_TYPE_OTHER);
    assert_int_equal(sy_type_of((DLDataType){4, 16, 2}), SY_TYPE_OTHER);
    assert_string_equal(sy_kind_name(SY_KIND_ROUTING), "routing");
    assert_string_equal(sy_kind_name(SY_KIND_SIZE), "size");
    assert_string_equal(sy_kind_name((sy_kind)-1), "another kind");
}

static void expect(sy_ctx *ctx, sy_status got, sy_status want, const char *sentence)
{
    sy_fault fault;
    expect_status(ctx, got, want);
    assert_string_equal(sy_ctx_error(ctx), sentence);
    assert_int_equal(sy_ctx_fault(ctx, &fault), SY_OK);
    assert_int_equal(fault.status, want);
}

TEST(what_is_no_operator)
{
    sy_ctx *ctx = test_ctx(1, NULL);
    sy_moe_pad_map_args args = {0};
    sy_shape shapes[SY_MAX_FIELDS];
    sy_query query;
    const sy_op_info *op = sy_op_find("moe_pad_map"), *mesh = sy_op_find("all_to_all_combine");
    const sy_op_info copy = *op;
    sy_op_info wild = *op;
    wild.number = INT32_MAX;
    assert_int_equal(sy_call(NULL, op, &args, sizeof args), SY_ERR_NULL);
    assert_int_equal(sy_infer(NULL, op, &args, sizeof args, shapes, SY_MAX_FIELDS), SY_ERR_NULL);
    expect(ctx, sy_call(ctx, NULL, &args, sizeof args), SY_ERR_NULL,
           "sy_call: op is NULL, want what sy_op_at or sy_op_find returned");
    expect(ctx, sy_call(ctx, &copy, &args, sizeof args), SY_ERR_NULL,
           "sy_call: op is no description of this library, want what sy_op_at or sy_op_find returned");
    expect(ctx, sy_call_query(ctx, &wild, &args, sizeof args, &query), SY_ERR_NULL,
           "sy_call_query: op is no description of this library, want what sy_op_at or sy_op_find returned");
    expect(ctx, sy_call(ctx, mesh, &args, sizeof args), SY_ERR_UNSUPPORTED,
           "sy_call: op is all_to_all_combine, which runs between devices, want sy_all_to_all_combine with a "
           "comm");
    expect(ctx, sy_infer(ctx, op, &args, sizeof args, NULL, 3), SY_ERR_NULL,
           "sy_infer: shapes is NULL, want room for 3");
    expect(ctx, sy_infer(ctx, op, &args, sizeof args, shapes, 2), SY_ERR_VALUE,
           "sy_infer: n is 2, want 3 or more");
    expect(ctx, sy_infer(ctx, op, &args, sizeof args, shapes, 3), SY_ERR_NULL,
           "moe_pad_map: routing_map is missing, want a tensor");
    sy_ctx_destroy(ctx);
}

/* Optional outputs that a call cannot have, and a row count that stands in the contents. */
TEST(outputs_that_depend)
{
    sy_ctx *ctx = test_ctx(1, NULL);
    sy_shape shapes[SY_MAX_FIELDS];
    float rows[6][2];
    int32_t ids[3][2] = {{0}}, table[2] = {0, 1};
    int64_t lens[3] = {0, 2, 5};
    const DLTensor x = sy_tensor(rows, SY_F32, 2, (int64_t[]){3, 2}),
                   id = sy_tensor(ids, SY_I32, 2, (int64_t[]){3, 2});
    sy_moe_permute_ids_args permute = {.tokens = &x, .ids = &id};
    const sy_op_info *op = sy_op_find("moe_permute_ids");
    expect_status(ctx, sy_infer(ctx, op, &permute, sizeof permute, shapes, SY_MAX_FIELDS), SY_OK);
    const int want[] = {-1, -1, -1, 2, 1, -1, -1, -1, -1}; /* no probs, no number of experts, no format */
    for (int i = 0; i < op->n_tensors; i++)
        assert_int_equal(shapes[i].rank, want[i]);
    assert_int_equal(shapes[3].extent[0], 6);
    permute.num_experts = 4;
    permute.probs = &x;
    expect_status(ctx, sy_infer(ctx, op, &permute, sizeof permute, shapes, SY_MAX_FIELDS), SY_OK);
    assert_int_equal(shapes[5].rank, 1);
    assert_int_equal(shapes[7].extent[0], 5);

    const DLTensor cache = sy_tensor(rows, SY_F32, 2, (int64_t[]){6, 2}),
                   blocks = sy_tensor(table, SY_I32, 2, (int64_t[]){2, 1});
    DLTensor cu_lens = sy_tensor(lens, SY_I64, 1, (int64_t[]){3});
    sy_kv_ragged_args ragged = {
        .cache = &cache, .block_table = &blocks, .cu_lens = &cu_lens, .block_size = 3};
    op = sy_op_find("kv_ragged");
    expect_status(ctx, sy_infer(ctx, op, &ragged, sizeof ragged, shapes, SY_MAX_FIELDS), SY_OK);
    assert_int_equal(shapes[op->n_tensors - 1].extent[0], 5);
    assert_int_equal(shapes[op->n_tensors - 1].extent[1], 2);
    cu_lens.data = NULL;
    expect_status(ctx, sy_infer(ctx, op, &ragged, sizeof ragged, shapes, SY_MAX_FIELDS), SY_OK);
    assert_int_equal(shapes[op->n_tensors - 1].extent[0], -1);
    sy_ctx_destroy(ctx);
}

/* ---- The texts that are executed ---- */

/* Removes one extent from the front of a text: "T", "E+1", "2E+1", "ceil(V/32)". Its plain letter goes to *name. */
static bool take_extent(const char **s, char *name)
{
    const char *const from = *s;
    for (int term = 0; term < 2; term++) {
        const char *const at = *s;
        int letter = 0, used = 0;
        if (sscanf(*s, "ceil(%*[A-Za-z]/%*d)%n", &used) == 0 && used > 0) {
            *s += used;
        } else {
            *s += strspn(*s, "0123456789");
            letter = isalpha((unsigned char)**s) != 0;
            *s += letter;
        }
        if (*s == at)
            return false;
        if (**s == '\0' || strchr("+-*/", **s) == NULL)
            break;
        ++*s;
    }
    *name = *s == from + 1 && isalpha((unsigned char)*from) ? *from : '\0';
    return true;
}

/* The letters that a shape states by themselves, by bit; a text that is no shape fails. */
static uint32_t letters_of(const char *op, const sy_field_info *field)
{
    uint32_t letters = 0;
    for (const char *s = field->shape; *s != '\0';) {
        char name = '\0';
        if (!take_extent(&s, &name) || (*s != '\0' && *s != ' '))
            fail_msg("%s: %s: the shape \"%s\" cannot be read at \"%s\"", op, field->name, field->shape, s);
        letters |= name != '\0' ? 1u << (name & 31) : 0;
        s += *s == ' ';
        s += strncmp(s, "| ", 2) == 0 ? 2 : 0;
    }
    return letters;
}

static void read_range(const char *op, const sy_field_info *field, uint32_t *stated)
{
    const char *s = field->range;
    char name = '\0';
    assert_true(field->kind == SY_KIND_I64 || field->kind == SY_KIND_F32 || field->kind == SY_KIND_F64);
    if (s[1] == ':') {
        *stated |= 1u << (*s & 31);
        s += 3;
    }
    if (strcmp(s, "finite") == 0)
        return;
    const bool low = take_extent(&s, &name) && strncmp(s, "..", 2) == 0;
    s += low ? 2 : 0;
    const bool high = *s == '\0' || strcmp(s, "i32") == 0 || strcmp(s, "finite") == 0 ||
                      (take_extent(&s, &name) && *s == '\0');
    if (!low || !high)
        fail_msg("%s: %s: the range \"%s\" cannot be read", op, field->name, field->range);
}

/* Operators on caches and between devices, and these, validate shapes in C. */
static bool is_executed(const sy_op_info *op)
{
    static const char *const own_check[] = {"kv_",
                                            "all_to_all_",
                                            "local_reduce",
                                            "quantize_rows",
                                            "dequantize_rows",
                                            "moe_reorder_chunks",
                                            "moe_convert_indices",
                                            "moe_unpermute_ids",
                                            "sample_verify",
                                            "sample_overrides"};
    for (size_t i = 0; i < COUNT_OF(own_check); i++)
        if (strncmp(op->name, own_check[i], strlen(own_check[i])) == 0)
            return false;
    return true;
}

/* Every letter of an output is stated by an input, by a scalar, or bound by the operator, which this list names. */
TEST(texts_can_be_executed)
{
    static const char *const bound[][2] = {
        {"moe_permute", "MG"}, {"moe_permute_ids", "MG"}, {"moe_unpermute", "T"}, {"moe_permute_grad", "TE"},
        {"moe_dispatch", "G"}, {"moe_align_block", "P"},  {"moe_place", "PRD"},   {"sample", "M"}};
    for (int n = 0; n < sy_op_count(); n++) {
        const sy_op_info *op = sy_op_at(n);
        uint32_t stated = 0, wanted = 0;
        for (int i = 0; is_executed(op) && i < op->n_tensors; i++) {
            const sy_field_info *field = sy_op_field(op, i);
            *(field->flags & SY_FIELD_OUT ? &wanted : &stated) |= letters_of(op->name, field);
        }
        for (int i = op->n_tensors; i < op->n_fields; i++)
            if (sy_op_field(op, i)->range != NULL)
                read_range(op->name, sy_op_field(op, i), &stated);
        for (size_t i = 0; i < COUNT_OF(bound); i++)
            for (const char *c = bound[i][1]; strcmp(bound[i][0], op->name) == 0 && *c != '\0'; c++)
                stated |= 1u << (*c & 31);
        if (wanted & ~stated)
            fail_msg("%s: nothing states the extent %c of an output", op->name,
                     (char)('@' + __builtin_ctz(wanted & ~stated)));
    }
}

/* ---- Operators between devices ---- */

TEST(any_operator)
{
    sy_ctx *ctx = test_ctx(1, NULL);
    sy_comm *comm = NULL;
    sy_shape shapes[SY_MAX_FIELDS];
    sy_query query;
    uint8_t map[6] = {1, 0, 1, 0, 1, 0}, padded[6];
    const DLTensor in = sy_tensor(map, SY_U8, 2, (int64_t[]){3, 2}),
                   out = sy_tensor(padded, SY_U8, 2, (int64_t[]){3, 2});
    const sy_moe_pad_map_args args = {.routing_map = &in, .alignment = 1, .padded_map = &out};
    const sy_all_to_all_combine_args none = {0};
    const sy_op_info *op = sy_op_find("moe_pad_map"), *mesh = sy_op_find("all_to_all_combine");
    assert_int_equal(sy_comm_create_local(&comm, (sy_mesh){1, 1}, NULL), SY_OK);
    expect_status(ctx, sy_call_mesh(ctx, NULL, op, &args, sizeof args), SY_OK);
    expect_status(ctx, sy_call_mesh_query(ctx, comm, op, &args, sizeof args, &query), SY_OK);
    expect_status(ctx, sy_infer_mesh(ctx, comm, op, &args, sizeof args, shapes, SY_MAX_FIELDS), SY_OK);
    assert_int_equal(shapes[1].extent[0], 3);
    assert_int_equal(sy_call_mesh(NULL, comm, mesh, &none, sizeof none), SY_ERR_NULL);
    expect(ctx, sy_call_mesh(ctx, comm, NULL, &none, sizeof none), SY_ERR_NULL,
           "sy_call_mesh: op is NULL, want what sy_op_at or sy_op_find returned");
    expect(ctx, sy_call_mesh_query(ctx, NULL, mesh, &none, sizeof none, &query), SY_ERR_NULL,
           "all_to_all_combine: comm is NULL, want a comm");
    expect(ctx, sy_call_mesh(ctx, NULL, mesh, &none, sizeof none), SY_ERR_NULL,
           "all_to_all_combine: comm is NULL, want a comm");
    expect(ctx, sy_infer_mesh(ctx, NULL, mesh, &none, sizeof none, shapes, SY_MAX_FIELDS), SY_ERR_NULL,
           "all_to_all_combine: comm is NULL, want a comm");
    expect(ctx, sy_infer_mesh(ctx, comm, mesh, &none, sizeof none, shapes, 2), SY_ERR_VALUE,
           "sy_infer_mesh: n is 2, want 8 or more");
    expect(ctx, sy_infer_mesh(ctx, comm, mesh, &none, sizeof none, shapes, 8), SY_ERR_NULL,
           "all_to_all_combine: input of device 0 is missing, want a tensor");
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
}

/* Experts 0 and 2 on device 0, 1 on device 1; 2 and 3 tokens of 2 choices. */
TEST(rows_that_depend)
{
    enum { INPUT, INDICES, MAPPING, TOKENS = 6, METADATA, PLANE_TOKENS, PRESENT = 11, SRC, COUNTS, OFFSETS };
    sy_ctx *ctx = test_ctx(1, NULL);
    sy_comm *comm = NULL;
    sy_shape shapes[40];
    uint16_t hosts[6] = {1, 0, 0, 1, 1, 0}, chosen[6] = {0};
    float rows[12];
    int64_t sizes[4][2] = {{2, 4}, {3, 4}, {2, 2}, {3, 2}};
    const DLTensor x[] = {sy_tensor(rows, SY_F32, 2, sizes[0]), sy_tensor(rows, SY_F32, 2, sizes[1])},
                   id[] = {sy_tensor(chosen, SY_U16, 2, sizes[2]), sy_tensor(chosen, SY_U16, 2, sizes[3])};
    DLTensor mapping = sy_tensor(hosts, SY_U16, 2, (int64_t[]){3, 2});
    const sy_op_info *op = sy_op_find("all_to_all_dispatch"), *back = sy_op_find("all_to_all_combine");
    sy_all_to_all_dispatch_args args = {.input = x,
                                        .expert_indices = id,
                                        .expert_mapping = &mapping,
                                        .max_tokens = 4,
                                        .align = 4,
                                        .layout = SY_LAYOUT_EXPERT};
    const sy_shape *second = shapes + op->n_tensors;
    assert_int_equal(sy_comm_create_local(&comm, (sy_mesh){1, 2}, NULL), SY_OK);
    expect_status(ctx, sy_infer_mesh(ctx, comm, op, &args, sizeof args, shapes, 40), SY_OK);
    assert_int_equal(shapes[TOKENS].extent[0],
                     5 * 2 + 2 * 3); /* 5 tokens, 2 experts, 3 rows of padding each */
    assert_int_equal(shapes[TOKENS].extent[1], 4);
    assert_int_equal(second[TOKENS].extent[0], 5 * 1 + 1 * 3);
    assert_int_equal(second[SRC].extent[0], 5 * 1 + 1 * 3);
    assert_int_equal(second[SRC].extent[1], 3);
    assert_int_equal(shapes[METADATA].extent[0], 5);
    assert_int_equal(shapes[COUNTS].extent[0], 2);
    assert_int_equal(second[OFFSETS].extent[0], 2);
    for (int i = 0; i < op->n_tensors; i++)
        if (i <= MAPPING || i == PLANE_TOKENS || i == PRESENT)
            assert_int_equal(shapes[i].rank, -1);
    mapping.data = NULL; /* all experts may be here */
    expect_status(ctx, sy_infer_mesh(ctx, comm, op, &args, sizeof args, shapes, 40), SY_OK);
    assert_int_equal(second[TOKENS].extent[0], (5 * 2 + 3 * 3) / 4 * 4);
    assert_int_equal(second[COUNTS].extent[0], -1);
    assert_int_equal(second[OFFSETS].extent[0], -1);

    const sy_all_to_all_combine_args home = {.input = x,
                                             .expert_metadata = id,
                                             .expert_mapping = &mapping,
                                             .max_tokens = 4,
                                             .layout = SY_LAYOUT_EXPERT};
    expect_status(ctx, sy_infer_mesh(ctx, comm, back, &home, sizeof home, shapes, 15), SY_OK);
    assert_int_equal(shapes[5].rank, 3);
    assert_int_equal(shapes[5].extent[0], 2);
    assert_int_equal(shapes[5].extent[1], -1); /* the caller's */
    assert_int_equal(shapes[5].extent[2], 4);
    assert_int_equal(shapes[8 + 5].rank, -1); /* no room for the whole device */
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
}

TESTS(describe, "op_describe")
