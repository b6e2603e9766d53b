/*
 * A program of a user of the installed library, of the first release as well: it is built with one header, as C and as C++17, and run
 * with the libraries of other releases. Prints the library's version; a wrong result ends it with 1.
 */
#include <stdio.h>
#include <string.h>

#include <switchyard.h>

int main(void)
{
    const float tokens[4][2] = {{10, 11}, {20, 21}, {30, 31}, {40, 41}};
    const float want[8] = {10, 30, 40, 20, 30, 10, 20, 40};
    const uint8_t map[4][3] = {{1, 0, 1}, {0, 1, 1}, {1, 1, 0}, {1, 0, 1}};
    float rows[8][2];
    int32_t place[8];
    sy_view x, m, y, at;
    sy_fault fault;
    sy_query query;
    char sentence[200] = "";
    sy_ctx *ctx = NULL;
    sy_ctx_options options;
    sy_moe_permute_args args;
    memset(&options, 0, sizeof options);
    options.threads = 2;
    options.error = sentence;
    options.error_bytes = sizeof sentence;
    memset(&args, 0, sizeof args);
    args.tokens = sy_mat(&x, tokens, SY_F32, 4, 2);
    args.routing_map = sy_mat(&m, map, SY_U8, 4, 3);
    args.num_out_tokens = 8;
    args.permuted_tokens = sy_mat(&y, rows, SY_F32, 8, 2);
    args.sorted_indices = sy_vec(&at, place, SY_I32, 8);
    if (sy_ctx_create(&ctx, &options) != SY_OK || sy_moe_permute_query(ctx, &args, &query) != SY_OK ||
        sy_moe_permute(ctx, &args) != SY_OK) {
        fprintf(stderr, "%s%s\n", sentence, sy_ctx_error(ctx));
        return 1;
    }
    for (int i = 0; i < 8; i++)
        if (rows[i][0] != want[i] || rows[i][1] != want[i] + 1)
            return 1;
    args.num_out_tokens = 1;
    if (sy_moe_permute(ctx, &args) == SY_OK || sy_ctx_fault(ctx, &fault) != SY_OK ||
        fault.code == SY_FAULT_NONE)
        return 1;
    sy_ctx_destroy(ctx);
    printf("%s\n", sy_version());
    return 0;
}
