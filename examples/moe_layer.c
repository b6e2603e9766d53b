/*
 * A mixture-of-experts layer, forward and backward, explained step by step and checked.
 *
 * Such a layer holds E small feed-forward networks, its experts. A router scores every expert for every token
 * x; the token visits the K experts of largest score and adds up their results, each times its score:
 *
 *     s            = softmax(router x)                        E scores
 *     y            = sum of s[e] * expert_e(x)                over the K experts of largest s, as in OLMoE
 *     expert_e(x)  = down_e (silu(gate_e x) * (up_e x))       SwiGLU; silu(a) = a / (1 + exp(-a))
 *
 * Token by token, every visit would be a product of a matrix and one vector. It is far cheaper to group the
 * tokens by expert and multiply matrices. Switchyard does the grouping and the way back, a BLAS the products,
 * and plain C the rest. At the end every gradient is compared with finite differences of a slow layer in double
 * precision.
 *
 *     forward    x --moe_permute--> rows --experts--> results --moe_unpermute--> y
 *                x --product--> logits --moe_route--> map, scores, probs
 *     backward   dy --moe_unpermute_grad--> dresults, dprobs
 *                dresults --experts--> drows, dgate, dup, ddown --moe_permute_grad--> dx
 *                dprobs --softmax--> dlogits --product--> drouter, and the rest of dx
 *
 *     cc examples/moe_layer.c $(pkg-config --cflags --libs switchyard) -lopenblas -lm && ./a.out
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <cblas.h>
#include <switchyard.h>

/* T tokens of H numbers; E experts, F wide inside; K visits per token, M visits in all. */
enum { T = 14, H = 16, E = 12, F = 10, K = 2, M = T * K };

/* Input and parameters. Matrices are stored as in the frameworks: [outputs][inputs]. */
static float x[T][H], router[E][H], gate[E][F][H], up[E][F][H], down[E][H][F];
/* The gradient of each: how the loss changes with it. */
static float dx[T][H], drouter[E][H], dgate[E][F][H], dup[E][F][H], ddown[E][H][F];
/* The expected result is `target`; the loss is half the squared distance. */
static float target[T][H], y[T][H], dy[T][H];

/* Values of the forward pass that the backward pass needs again. */
static float logits[T][E], scores[T][E], probs[T][E]; /* probs: the score where the token goes, else 0 */
static uint8_t map[T][E];                             /* 1 where the token goes */
static int32_t place[M];                              /* place[t * K + j]: the row of visit j of token t */
static int64_t first[E + 1];                          /* rows first[e] .. first[e + 1] - 1 visit expert e */
static float rows[M][H], a[M][F], b[M][F], inner[M][F], results[M][H];
static sy_ctx *ctx;

/* Switchyard's tensors are DLPack's: a description of memory that we own, here valid until the end of the function. */
#define MAT(data, type, rows, cols) sy_mat(&(sy_view){0}, data, type, rows, cols)
#define VEC(data, type, n) sy_vec(&(sy_view){0}, data, type, n)

/* The sentence of a rejected call names the wrong argument; here that ends the program. */
static void must(sy_status status)
{
    if (status == SY_OK)
        return;
    fprintf(stderr, "%s: %s\n", sy_status_name(status), ctx ? sy_ctx_error(ctx) : "no context");
    exit(1);
}

/* c[m][n] = old * c + p q, the inner extent being k; a matrix marked 't' is read transposed. */
static void matmul(int m, int n, int k, char pt, const float *p, char qt, const float *q, float old, float *c)
{
    cblas_sgemm(CblasRowMajor, pt == 't' ? CblasTrans : CblasNoTrans, qt == 't' ? CblasTrans : CblasNoTrans,
                m, n, k, 1, p, pt == 't' ? m : k, q, qt == 't' ? k : n, old, c, n);
}

/* ---- 1. Forward ---- */

static float sigmoid(float v)
{
    return 1 / (1 + expf(-v));
}

static void forward(void)
{
    /* The router is one matrix. moe_route turns its logits into scores and picks the K largest of a token. */
    matmul(T, E, H, ' ', *x, 't', *router, 0, *logits);
    const sy_moe_route_args route = {.logits = MAT(logits, SY_F32, T, E),
                                     .k = K,
                                     .routing_map = MAT(map, SY_BOOL, T, E),
                                     .probs = MAT(probs, SY_F32, T, E),
                                     .scores = MAT(scores, SY_F32, T, E)};
    must(sy_moe_route(ctx, &route));

    /* One copy of a token for each of its visits, grouped by expert. expert_offsets gives the rows of each expert;
       all later calls need sorted_indices for the way back. */
    const sy_moe_permute_args to = {.tokens = MAT(x, SY_F32, T, H),
                                    .routing_map = route.routing_map,
                                    .num_out_tokens = M,
                                    .permuted_tokens = MAT(rows, SY_F32, M, H),
                                    .sorted_indices = VEC(place, SY_I32, M),
                                    .expert_offsets = VEC(first, SY_I64, E + 1)};
    must(sy_moe_permute(ctx, &to));

    /* Each expert processes its own rows: three matrix products. */
    for (int e = 0; e < E; e++) {
        const int begin = (int)first[e], n = (int)(first[e + 1] - first[e]);
        if (n == 0)
            continue; /* no rows */
        matmul(n, F, H, ' ', rows[begin], 't', *gate[e], 0, a[begin]);
        matmul(n, F, H, ' ', rows[begin], 't', *up[e], 0, b[begin]);
        for (int i = begin; i < begin + n; i++)
            for (int f = 0; f < F; f++)
                inner[i][f] = a[i][f] * sigmoid(a[i][f]) * b[i][f];
        matmul(n, H, F, ' ', inner[begin], 't', *down[e], 0, results[begin]);
    }

    /* Back to token order: the K results of a token, each times its score, added up. */
    const sy_moe_unpermute_args back = {.permuted_tokens = MAT(results, SY_F32, M, H),
                                        .sorted_indices = to.sorted_indices,
                                        .routing_map = route.routing_map,
                                        .probs = route.probs,
                                        .tokens = MAT(y, SY_F32, T, H)};
    must(sy_moe_unpermute(ctx, &back));
}

/* ---- 2. Backward ---- */

static float dresults[M][H], dinner[M][F], da[M][F], db[M][F], drows[M][H], dprobs[T][E], dlogits[T][E];

/* Expert e on its n rows from `begin` on; every line here is the gradient of one of the forward pass, in reverse. For a
   product c = p q^T the rules are dp = dc q and dq = dc^T p. */
static void expert_backward(int e, int begin, int n)
{
    matmul(n, F, H, ' ', dresults[begin], ' ', *down[e], 0, dinner[begin]);
    matmul(H, F, n, 't', dresults[begin], ' ', inner[begin], 0, *ddown[e]);
    for (int i = begin; i < begin + n; i++)
        for (int f = 0; f < F; f++) {
            const float v = a[i][f], s = sigmoid(v);
            da[i][f] = dinner[i][f] * b[i][f] * s * (1 + v * (1 - s)); /* silu'(v) = s (1 + v (1 - s)) */
            db[i][f] = dinner[i][f] * v * s;
        }
    matmul(F, H, n, 't', da[begin], ' ', rows[begin], 0, *dgate[e]);
    matmul(F, H, n, 't', db[begin], ' ', rows[begin], 0, *dup[e]);
    /* A row enters its expert in two products: their gradients are added. */
    matmul(n, H, F, ' ', da[begin], ' ', *gate[e], 0, drows[begin]);
    matmul(n, H, F, ' ', db[begin], ' ', *up[e], 1, drows[begin]);
}

/* Back through the softmax: a larger score makes all others smaller, so all E logits have a gradient. The choice has
   none, since small changes do not affect it. (With renormalize in moe_route the weights are a
   softmax of the K chosen logits, and the same lines run over the chosen experts only.) */
static void router_backward(void)
{
    for (int t = 0; t < T; t++) {
        float mean = 0;
        for (int e = 0; e < E; e++)
            mean += dprobs[t][e] * scores[t][e]; /* dprobs is 0 where the token does not go */
        for (int e = 0; e < E; e++)
            dlogits[t][e] = scores[t][e] * (dprobs[t][e] - mean);
    }
}

static void backward(void)
{
    for (int t = 0; t < T; t++) /* the loss: half the squared distance */
        for (int h = 0; h < H; h++)
            dy[t][h] = y[t][h] - target[t][h];

    /* y is a weighted sum. A result's gradient is dy times its score; a score's is the dot product of dy and the
       result it weighs. One call returns both, the first in the order of the rows. */
    const sy_moe_unpermute_grad_args spread = {.grad_tokens = MAT(dy, SY_F32, T, H),
                                               .sorted_indices = VEC(place, SY_I32, M),
                                               .permuted_tokens = MAT(results, SY_F32, M, H),
                                               .routing_map = MAT(map, SY_BOOL, T, E),
                                               .probs = MAT(probs, SY_F32, T, E),
                                               .grad_permuted_tokens = MAT(dresults, SY_F32, M, H),
                                               .grad_probs = MAT(dprobs, SY_F32, T, E)};
    must(sy_moe_unpermute_grad(ctx, &spread));
    for (int e = 0; e < E; e++)
        if (first[e + 1] > first[e])
            expert_backward(e, (int)first[e], (int)(first[e + 1] - first[e]));

    /* A token was copied K times, so its gradient is the sum over its copies. */
    const sy_moe_permute_grad_args collect = {.grad_permuted_tokens = MAT(drows, SY_F32, M, H),
                                              .sorted_indices = spread.sorted_indices,
                                              .num_experts = E,
                                              .num_tokens = T,
                                              .grad_tokens = MAT(dx, SY_F32, T, H)};
    must(sy_moe_permute_grad(ctx, &collect));

    /* The token is also the input of the router: the last part of dx is added to the rest. */
    router_backward();
    matmul(E, H, T, 't', *dlogits, ' ', *x, 0, *drouter);
    matmul(T, H, E, ' ', *dlogits, ' ', *router, 1, *dx);
}

/* ---- 3. The check ---- */

static double dot(const float *p, const float *q, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)p[i] * q[i];
    return sum;
}

/* The layer by the formula above: in double precision, token by token, without any operator. Writes y to `out` and
   returns the loss. */
static double slow_layer(double out[T][H])
{
    double loss = 0;
    for (int t = 0; t < T; t++) {
        double s[E], sum = 0;
        bool visited[E] = {false};
        for (int e = 0; e < E; e++)
            s[e] = exp(dot(router[e], x[t], H)), sum += s[e];
        for (int h = 0; h < H; h++)
            out[t][h] = 0;
        for (int k = 0; k < K; k++) {
            int best = -1;
            for (int e = 0; e < E; e++)
                if (!visited[e] && (best < 0 || s[e] > s[best]))
                    best = e;
            visited[best] = true;
            for (int f = 0; f < F; f++) {
                const double v = dot(gate[best][f], x[t], H);
                const double in = v / (1 + exp(-v)) * dot(up[best][f], x[t], H);
                for (int h = 0; h < H; h++)
                    out[t][h] += s[best] / sum * down[best][h][f] * in;
            }
        }
        for (int h = 0; h < H; h++)
            loss += 0.5 * (out[t][h] - target[t][h]) * (out[t][h] - target[t][h]);
    }
    return loss;
}

/* f32 agrees with the slow layer to about 1e-6 of the root mean square of a group; a missing term is off by 1e-2. */
static bool compare(const char *name, const double *want, const float *found, int n)
{
    double worst = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        const double off = fabs(want[i] - found[i]);
        worst = off > worst || isnan(off) ? off : worst;
        squares += want[i] * want[i];
    }
    const double error = worst / sqrt(squares / n);
    const bool good = error < 1e-4; /* false for NaN too */
    printf("  %-8s %4d values, worst relative error %.1e  %s\n", name, n, error, good ? "ok" : "WRONG");
    return good;
}

/* Moves each parameter slightly up and down and compares the slope of the loss with the gradient. */
static bool gradient_is_right(const char *name, float *values, const float *gradient, int n)
{
    static double slope[E * F * H], out[T][H];
    for (int i = 0; i < n; i++) {
        const float value = values[i], high = value + 1e-4f, low = value - 1e-4f; /* as f32 rounds them */
        values[i] = high;
        const double above = slow_layer(out);
        values[i] = low;
        slope[i] = (above - slow_layer(out)) / ((double)high - low);
        values[i] = value;
    }
    return compare(name, slope, gradient, n);
}

/* The same numbers between -size and size on every machine. */
static void fill(float *values, int n, float size)
{
    static uint32_t state = 1;
    for (int i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = ((float)(state >> 8) * 0x1p-23f - 1) * size;
    }
}

int main(void)
{
    fill(*x, T * H, 1), fill(*target, T * H, 1), fill(*router, E * H, 1);
    fill(**gate, E * F * H, 0.5f), fill(**up, E * F * H, 0.5f), fill(**down, E * H * F, 0.5f);
    must(sy_ctx_create(&ctx, NULL));
    forward();
    backward();
    sy_ctx_destroy(ctx);
    printf("%d tokens visit %d of %d experts each. Visitors:", T, K, E);
    for (int e = 0; e < E; e++)
        printf(" %d%s", (int)(first[e + 1] - first[e]), e + 1 < E ? "" : "\n");
    static double want[T][H];
    slow_layer(want);
    bool good = compare("y", *want, *y, T * H);
    good &= gradient_is_right("dx", *x, *dx, T * H);
    good &= gradient_is_right("drouter", *router, *drouter, E * H);
    good &= gradient_is_right("dgate", **gate, **dgate, E * F * H);
    good &= gradient_is_right("dup", **up, **dup, E * F * H);
    good &= gradient_is_right("ddown", **down, **ddown, E * H * F);
    return good ? 0 : 1;
}
