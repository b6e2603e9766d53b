/*
 * Errors and memory: a rejected call with its sentence and numbers and unchanged outputs, a query of all sizes,
 * scratch memory from the caller, and a trace of every call.
 */
#include <stdio.h>
#include <switchyard.h>

static void trace(void *user, const sy_trace *t)
{
    (void)user;
    printf("  trace: %s on %s: %s, %d tensors, %llu bytes\n", t->op, t->isa, sy_status_name(t->status),
           t->n_tensors, (unsigned long long)t->bytes);
}

static bool all_zero(float rows[12][2])
{
    bool zero = true;
    for (int i = 0; i < 12; i++)
        zero = zero && rows[i][0] == 0 && rows[i][1] == 0;
    return zero;
}

int main(void)
{
    float tokens[4][2] = {{10, 11}, {20, 21}, {30, 31}, {40, 41}};
    uint8_t map[4][3] = {{1, 0, 1}, {1, 1, 1}, {1, 1, 0}, {1, 0, 1}}; /* token 1 names all three experts */
    float rows[12][2] = {{0}};
    int32_t place[12] = {0};
    sy_view x, m, y, at;
    sy_moe_permute_args args = {.tokens = sy_mat(&x, tokens, SY_F32, 4, 2),
                                .routing_map = sy_mat(&m, map, SY_BOOL, 4, 3),
                                .num_out_tokens = 8,
                                .permuted_tokens = sy_mat(&y, rows, SY_F32, 8, 2),
                                .sorted_indices = sy_vec(&at, place, SY_I32, 8)};

    /* If a context cannot be made, the error is written to a buffer of its options. */
    char text[128] = "";
    sy_ctx *ctx = NULL;
    const sy_ctx_options impossible = {.threads = -1, .error = text, .error_bytes = sizeof text};
    if (sy_ctx_create(&ctx, &impossible) != SY_OK)
        printf("no context: %s\n", text);
    const sy_ctx_options options = {.threads = 1, .trace = trace};
    if (sy_ctx_create(&ctx, &options) != SY_OK)
        return 1;

    /* Two slots per token are not enough for token 1: a sentence for people, numbers for programs. */
    printf("8 rows:\n");
    const sy_status status = sy_moe_permute(ctx, &args);
    sy_fault fault;
    sy_ctx_fault(ctx, &fault);
    printf("  %s: %s\n", sy_status_name(status), sy_ctx_error(ctx));
    printf("  fault: %s in %s, position %lld, value %lld, limit %lld\n", sy_fault_name(fault.code),
           fault.argument, (long long)fault.position, (long long)fault.value, (long long)fault.limit);
    printf("  outputs untouched: %s\n", all_zero(rows) ? "yes" : "no");

    /* A query needs neither data nor outputs and returns all sizes. */
    sy_query need;
    args.num_out_tokens = 12;
    if (sy_moe_permute_query(ctx, &args, &need) != SY_OK)
        return 1;
    printf("12 rows: %lld rows, %lld slots per token, %zu bytes of scratch\n", (long long)need.rows,
           (long long)need.slots, need.workspace_bytes);
    sy_mat(&y, rows, SY_F32, need.rows, 2); /* args points to them already */
    sy_vec(&at, place, SY_I32, need.rows);

    /* Scratch from the caller: the context allocates nothing more, and a call that needs more is an error. */
    static _Alignas(64) unsigned char scratch[1024];
    sy_ctx_set_workspace(ctx, scratch, 64);
    if (sy_moe_permute(ctx, &args) == SY_ERR_NOMEM)
        printf("  %s\n", sy_ctx_error(ctx));
    if (need.workspace_bytes > sizeof scratch)
        return 1;
    sy_ctx_set_workspace(ctx, scratch, sizeof scratch);
    const sy_status done = sy_moe_permute(ctx, &args);
    printf("  %s: expert 0 begins with row [%g %g]\n", sy_status_name(done), rows[0][0], rows[0][1]);
    sy_ctx_destroy(ctx); /* the scratch still belongs to us */
    return status == SY_ERR_ROUTING && done == SY_OK ? 0 : 1;
}
