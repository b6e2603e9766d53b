/* Four tokens, three experts, two experts per token: the rows are grouped by expert. */
#include <stdio.h>
#include <switchyard.h>

int main(void)
{
    float tokens[4][2] = {{10, 11}, {20, 21}, {30, 31}, {40, 41}};
    uint8_t map[4][3] = {{1, 0, 1}, {0, 1, 1}, {1, 1, 0}, {1, 0, 1}}; /* token x expert */
    float rows[8][2];
    int32_t place[8];
    sy_view x, m, y, at;
    const sy_moe_permute_args args = {.tokens = sy_mat(&x, tokens, SY_F32, 4, 2),
                                      .routing_map = sy_mat(&m, map, SY_BOOL, 4, 3),
                                      .num_out_tokens = 8,
                                      .permuted_tokens = sy_mat(&y, rows, SY_F32, 8, 2),
                                      .sorted_indices = sy_vec(&at, place, SY_I32, 8)};

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
