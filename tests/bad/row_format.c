/*
 * Operators with a row_format reject: one valid call of each, what the format and the scales add to the rejections of the
 * operator, the status, the sentence and untouched outputs. Formats themselves are those of bad_quantize_rows.
 */
#include "support.h"

enum { TOKENS = 3, GROUP = 4, GROUPS = 2, HIDDEN = GROUP * GROUPS, SLOTS = 2, ROWS = TOKENS * SLOTS };

static sy_row_format format; /* of the call, to be spoiled */

static const sy_row_format floats = {.bytes = sizeof floats,
                                     .q_type = {10, 8, 1},
                                     .scale_type = {2, 32, 1},
                                     .group = GROUP,
                                     .scale_math = SY_SCALE_MATH_DIV};

static void make_dispatch(struct test_call *c)
{
    sy_moe_dispatch_args *a = &c->args.dispatch;
    *c = (struct test_call){.op = "moe_dispatch", .first_output = 3};
    format = floats;
    a->row_format = &format;
    a->num_experts = SLOTS;
    a->capacity = TOKENS;
    test_call_add(c, "indices", &a->indices, SY_I32, 1, (int64_t[]){TOKENS});
    test_call_add(c, "locations", &a->locations, SY_I32, 1, (int64_t[]){TOKENS});
    test_call_add(c, "input", &a->input, SY_F16, 2, (int64_t[]){TOKENS, HIDDEN});
    test_call_add(c, "dispatch", &a->dispatch, SY_U8, 2, (int64_t[]){ROWS, HIDDEN});
    test_call_add(c, "dispatch_scales", &a->dispatch_scales, SY_F32, 2, (int64_t[]){ROWS, GROUPS});
}

/* One device with all experts; rows by expert. */
static void make_reduce(struct test_call *c)
{
    sy_local_reduce_args *a = &c->args.local_reduce;
    *c = (struct test_call){.op = "local_reduce", .first_output = 4};
    format = floats;
    a->row_format = &format;
    a->layout = SY_LAYOUT_EXPERT;
    test_call_add(c, "input", &a->input, SY_F8_E4M3, 2, (int64_t[]){ROWS, HIDDEN});
    test_call_add(c, "input_scales", &a->input_scales, SY_F32, 2, (int64_t[]){ROWS, GROUPS});
    struct tensor *table = test_call_add(c, "expert_metadata", &a->expert_metadata, SY_I32, 2,
                                         (int64_t[]){TOKENS, SLOTS}),
                  *mapping = test_call_add(c, "expert_mapping", &a->expert_mapping, SY_U16, 2,
                                           (int64_t[]){SLOTS, 1});
    test_call_add(c, "output", &a->output, SY_F32, 2, (int64_t[]){TOKENS, HIDDEN});
    for (int32_t i = 0; i < ROWS; i++)
        memcpy(table->mem + 4 * i, &(int32_t){i % SLOTS}, 4);
    for (int i = 0; i < SLOTS; i++)
        memcpy(mapping->mem + 2 * i, &(uint16_t){1}, 2);
}

SPOILER(no_bytes, format.bytes = 0)
SPOILER(of_caches, format.scale_math = SY_SCALE_MATH_CACHE)
SPOILER(group_3, format.group = 3)
SPOILER(group_less, format.group = -1)
SPOILER(dispatch_plain, c->args.dispatch.row_format = NULL)
SPOILER(reduce_plain, c->args.local_reduce.row_format = NULL)

/* The same of every operator. rows: those whose length the format decides. */
#define FORMAT_REJECTIONS(rows, scales) \
    {"no scales", NO_TENSOR(scales), .found = "is missing while row_format is given", .wanted = "a tensor"}, \
        {"a format without its size", \
         BAD_CALL(no_bytes, SY_ERR_VALUE, "row_format", "bytes 0", "sizeof(sy_kv_format), 80"), \
         .query = true}, \
        {"a format of caches", \
         BAD_CALL(of_caches, SY_ERR_VALUE, "row_format", "scale_math 0", "other formats are of caches"), \
         .query = true}, \
        {"groups of less", BAD_CALL(group_less, SY_ERR_VALUE, "row_format", "group -1", "1 or more"), \
         .query = true}, \
        {"groups of three", \
         BAD_CALL(group_3, SY_ERR_SHAPE, rows, "rows of 8", "a multiple of 3 as row_format says"), \
         .query = true}, \
    { \
        "scales of e8m0", BAD_TYPE(scales, 14, 8, 1), .found = "f8_e8m0", .wanted = "f32" \
    }

/* Of those that make codes; rows, codes and scales have other names. */
#define REJECTIONS(rows, codes, scales, plain) \
    FORMAT_REJECTIONS(rows, scales), \
        {"rows of integers", BAD_TYPE(rows, kDLInt, 32, 1), .found = "i32", .wanted = "f16, f32 or bf16", \
         .query = true}, \
        {"rows as they are", BAD_TYPE(codes, kDLFloat, 16, 1), .found = "f16"}, \
        {"codes of another format", BAD_TYPE(codes, 12, 8, 1), .found = "f8_e5m2", \
         .wanted = "f8_e4m3 or u8"}, \
        {"codes one long", BAD_EXTENT(codes, 1, 9, "[6,9]", "[6,8]")}, \
        {"scales one row short", BAD_EXTENT(scales, 0, 5, "[5,2]", "[6,2]")}, \
        {"scales one short", BAD_EXTENT(scales, 1, 1, "[6,1]", "[6,2]")}, \
        {"scales with overlapping rows", BAD_STRIDE(scales, 0, 1, "1", "2")}, \
        {"codes upon the rows", BAD_OVER(codes, rows, 0)}, \
        {"scales upon the rows", BAD_OVER(scales, rows, 0)}, \
    { \
        "codes without a format", BAD_CALL(plain, SY_ERR_DTYPE, codes, NULL, NULL) \
    }

/* Of those that add numbers of codes. */
#define SUM_REJECTIONS(codes, scales, sums, plain) \
    FORMAT_REJECTIONS(codes, scales), \
        {"codes as numbers", BAD_TYPE(codes, kDLFloat, 16, 1), .found = "f16", .query = true}, \
        {"codes of another format", BAD_TYPE(codes, 12, 8, 1), .found = "f8_e5m2", \
         .wanted = "f8_e4m3 or u8", .query = true}, \
        {"scales one row short", BAD_EXTENT(scales, 0, 5, "[5,2]", "[6,2]"), .query = true}, \
        {"scales one short", BAD_EXTENT(scales, 1, 1, "[6,1]", "[6,2]"), .query = true}, \
        {"scales with inner stride 2", BAD_STRIDE(scales, 1, 2, "2", "contiguous"), .query = true}, \
        {"sums of codes", BAD_TYPE(sums, kDLInt, 8, 1), .found = "i8", .wanted = "f16, f32 or bf16"}, \
        {"sums one long", BAD_EXTENT(sums, 1, 9, "[3,9]", "[3,8]")}, \
        {"sums upon the codes", BAD_OVER(sums, codes, 0)}, \
        {"sums upon the scales", BAD_OVER(sums, scales, 0)}, \
    { \
        "codes without a format", BAD_CALL(plain, SY_ERR_DTYPE, codes, NULL, NULL) \
    }

static const struct rejection dispatch[] = {
    REJECTIONS("input", "dispatch", "dispatch_scales", dispatch_plain)};

static const struct rejection reduce[] = {SUM_REJECTIONS("input", "input_scales", "output", reduce_plain)};

int main(void)
{
    struct test_list list = {0};
    test_add_rejections(&list, make_dispatch, dispatch, COUNT_OF(dispatch));
    test_add_rejections(&list, make_reduce, reduce, COUNT_OF(reduce));
    return test_run(&list, "bad_row_format");
}
