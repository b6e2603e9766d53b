/* Four tokens, three experts, two experts per token: the rows are grouped by expert. */
#include <stdio.h>
#include <switchyard.h>

int main(void)
{
    float tokens[4][2] = {{10, 11}, {20, 21}, {30, 31}, {40, 41}};
    uint8_t map[4][3] = {{1, 0, 1}, {0, 1, 1}, {1, 1, 0}, {1, 0, 1}}; /* token x expert */
    float rows[8][2];
    int32_t slots[8];
    DLTensor x = sy_tensor(tokens, SY_F32, 2, (int64_t[]){4, 2});
    DLTensor m = sy_tensor(map, SY_BOOL, 2, (int64_t[]){4, 3});
    DLTensor y = sy_tensor(rows, SY_F32, 2, (int64_t[]){8, 2});
    DLTensor s = sy_tensor(slots, SY_I32, 1, (int64_t[]){8});
    const sy_moe_permute_args args = {
        .tokens = &x, .routing_map = &m, .num_out_tokens = 8, .permuted_tokens = &y, .sorted_indices = &s};

    sy_ctx *ctx = NULL;
    sy_status status = sy_ctx_create(&ctx, NULL);
    if (status == SY_OK)
        status = sy_moe_permute(ctx, &args);
    if (status != SY_OK)
        fprintf(stderr, "%s\n", sy_ctx_error(ctx));
    for (int i = 0; status == SY_OK && i < 8; i++)
        printf("row %d: %g %g\n", i, rows[i][0], rows[i][1]);
    sy_ctx_destroy(ctx);
    return status == SY_OK ? 0 : 1;
}
