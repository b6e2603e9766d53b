/* A user of the installed library: permutes two tokens, prints the version. Also compiled as C++17. */
#include <stdio.h>
#include <string.h>

#include <switchyard.h>

int main(void)
{
    float tokens[2][3] = {{1, 2, 3}, {4, 5, 6}}, out[4][3];
    uint8_t map[2][2] = {{0, 1}, {1, 1}};
    int32_t index[4];
    int64_t tokens_shape[2] = {2, 3}, map_shape[2] = {2, 2}, out_shape[2] = {4, 3}, index_shape[1] = {4};
    DLTensor x = sy_tensor(tokens, SY_F32, 2, tokens_shape), r = sy_tensor(map, SY_U8, 2, map_shape);
    DLTensor y = sy_tensor(out, SY_F32, 2, out_shape), i = sy_tensor(index, SY_I32, 1, index_shape);

    sy_ctx *ctx = NULL;
    if (sy_ctx_create(&ctx, NULL) != SY_OK)
        return 1;
    sy_moe_permute_args args;
    memset(&args, 0, sizeof args);
    args.tokens = &x;
    args.routing_map = &r;
    args.num_out_tokens = 4;
    args.permuted_tokens = &y;
    args.sorted_indices = &i;
    sy_status status = sy_moe_permute(ctx, &args);
    if (status != SY_OK) {
        fprintf(stderr, "%s: %s\n", sy_status_name(status), sy_ctx_error(ctx));
        return 1;
    }
    sy_ctx_destroy(ctx);

    /* Expert 0 gets token 1, expert 1 gets tokens 0 and 1; the fourth row stays zero. */
    const float want[4][3] = {{4, 5, 6}, {1, 2, 3}, {4, 5, 6}, {0, 0, 0}};
    if (memcmp(out, want, sizeof want) != 0)
        return 1;
    printf("%s\n", sy_version());
    return 0;
}
