/*
 * kv_gather: what tests/examples cannot express: tensors without data, pages with gaps between them, elements of unusual
 * sizes.
 */
#include "support.h"

/* k = 0 or B = 0 succeeds whatever the other arrays hold, and needs no data. */
static void nothing_asked(void **state)
{
    (void)state;
    sy_ctx *ctx = test_ctx(2, NULL);
    for (int i = 0; i < 2; i++) {
        const int64_t b = i ? 0 : 3, k = i ? 4 : 0;
        int64_t cache_shape[] = {4, 2}, index_shape[] = {b, k}, table_shape[] = {b, 2},
                out_shape[] = {b, k, 2};
        float cache_data[8] = {0};
        int32_t table_data[6] = {-1, -1, -1, -1, -1, -1};
        const DLTensor cache = sy_tensor(cache_data, SY_F32, 2, cache_shape),
                       indices = sy_tensor(NULL, SY_I32, 2, index_shape),
                       table = sy_tensor(i ? NULL : table_data, SY_I32, 2, table_shape),
                       out = sy_tensor(NULL, SY_F32, 3, out_shape);
        sy_query query;
        const sy_kv_gather_args args = {
            .cache = &cache, .indices = &indices, .block_table = &table, .block_size = 2, .out = &out};
        expect_status(ctx, sy_kv_gather_query(ctx, &args, &query), SY_OK);
        assert_int_equal(query.rows, 0);
        expect_status(ctx, sy_kv_gather(ctx, &args), SY_OK);
    }
    sy_ctx_destroy(ctx);
}

/* [blocks, S, D1, D2] with pages of another layer between ours, indices [2, 2, k], out [2, 2, k, D1, D2]. */
static void paged_cache_and_leading_dimensions(void **state)
{
    (void)state;
    sy_ctx *ctx = test_ctx(2, NULL);
    struct tensor cache, indices, table, req, out;
    int32_t rows[3 * 2 * 4], want[4 * 3 * 4];
    const int32_t index[] = {0, 1, 2, 3, 3, 0, 2, 2, 1, 1, 3, 0}, blocks[] = {2, 0, 1, 2},
                  ids[] = {1, 0, 1, 1};
    const int picked[] = {2, 3, 4, 1, 1, 4,
                          4, 4, 3, 3, 5, 2}; /* request 0 has blocks 2, 0, request 1 has 1, 2 */
    for (int i = 0; i < 24; i++)
        rows[i] = 1000 + i;
    for (int i = 0; i < 12; i++)
        memcpy(want + 4 * i, rows + 4 * picked[i], 16);
    tensor_make(&cache, SY_I32, 4, (int64_t[]){3, 2, 2, 2},
                &(struct layout){.inner = 2, .row_gap = 3, .outer_gap = 17, .byte_offset = 8, .misalign = 3});
    tensor_make(&indices, SY_I32, 3, (int64_t[]){2, 2, 3}, &(struct layout){.row_gap = 2});
    tensor_make(&table, SY_I32, 2, (int64_t[]){2, 2}, &(struct layout){.row_gap = 4});
    tensor_make(&req, SY_I32, 1, (int64_t[]){4}, NULL);
    tensor_make(&out, SY_I32, 5, (int64_t[]){2, 2, 3, 2, 2},
                &(struct layout){.inner = 2, .row_gap = 1, .byte_offset = 4});
    tensor_put(&cache, rows);
    tensor_put(&indices, index);
    tensor_put(&table, blocks);
    tensor_put(&req, ids);
    unsigned char *before = tensor_snapshot(&out);
    expect_status(ctx,
                  sy_kv_gather(ctx, &(sy_kv_gather_args){.cache = &cache.t,
                                                         .indices = &indices.t,
                                                         .block_table = &table.t,
                                                         .req_id = &req.t,
                                                         .block_size = 2,
                                                         .out = &out.t}),
                  SY_OK);
    tensor_expect(&out, want, before, "out");
    free(before);
    tensor_free(&cache);
    tensor_free(&indices);
    tensor_free(&table);
    tensor_free(&req);
    tensor_free(&out);
    sy_ctx_destroy(ctx);
}

/* Elements of any whole number of bytes are copied as bytes. */
static void element_sizes(void **state)
{
    const DLDataType type = *(const DLDataType *)*state;
    sy_ctx *ctx = test_ctx(1, NULL);
    struct tensor cache, out;
    uint64_t rng = type.bits;
    int32_t index[] = {2, 0}, blocks[] = {1, 0};
    int64_t index_shape[] = {2};
    const DLTensor indices = sy_tensor(index, SY_I32, 1, index_shape),
                   table = sy_tensor(blocks, SY_I32, 1, index_shape);
    tensor_make(&cache, type, 2, (int64_t[]){4, 5}, NULL);
    tensor_make(&out, type, 2, (int64_t[]){2, 5}, NULL);
    rng_fill(&rng, cache.mem, cache.bytes);
    expect_status(ctx,
                  sy_kv_gather(ctx, &(sy_kv_gather_args){.cache = &cache.t,
                                                         .indices = &indices,
                                                         .block_table = &table,
                                                         .block_size = 2,
                                                         .out = &out.t}),
                  SY_OK);
    expect_bytes(out.mem, cache.mem, 5 * type_bytes(type));
    expect_bytes(out.mem + 5 * type_bytes(type), cache.mem + 10 * type_bytes(type), 5 * type_bytes(type));
    tensor_free(&cache);
    tensor_free(&out);
    sy_ctx_destroy(ctx);
}

int main(void)
{
    static DLDataType sizes[] = {{kDLInt, 8, 1},    {6, 8, 1},           {12, 8, 1},
                                 {kDLFloat, 16, 1}, {kDLUInt, 24, 1},    {kDLFloat, 32, 1},
                                 {kDLFloat, 64, 1}, {kDLComplex, 128, 1}};
    struct test_list list = {0};
    test_add(&list, "nothing_asked", nothing_asked, NULL);
    test_add(&list, "paged_cache_and_leading_dimensions", paged_cache_and_leading_dimensions, NULL);
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        test_add(&list, test_name("elements_of_type_code_%d_with_%d_bits", sizes[i].code, sizes[i].bits),
                 element_sizes, &sizes[i]);
    return test_run(&list, "op_kv_gather");
}
