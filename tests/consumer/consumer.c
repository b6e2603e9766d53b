/* A user of the installed library: permutes two tokens, prints the version. Also compiled as C++17. */
#include <stdio.h>
#include <string.h>

#include <switchyard.h>

int main(void)
{
    const float tokens[2][3] = {{1, 2, 3}, {4, 5, 6}};
    const uint8_t map[2][2] = {{0, 1}, {1, 1}};
    const int64_t out_shape[2] = {4, 3};
    float out[4][3];
    int32_t index[4];
    DLTensor y = sy_tensor(out, SY_F32, 2, out_shape);
    sy_view x, r, i;

    sy_ctx *ctx = NULL;
    if (sy_ctx_create(&ctx, NULL) != SY_OK)
        return 1;
    sy_moe_permute_args args;
    memset(&args, 0, sizeof args);
    args.tokens = sy_mat(&x, tokens, SY_F32, 2, 3);
    args.routing_map = sy_mat(&r, map, SY_U8, 2, 2);
    args.num_out_tokens = 4;
    args.permuted_tokens = &y;
    args.sorted_indices = sy_vec(&i, index, SY_I32, 4);
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
