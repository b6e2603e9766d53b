/*
 * The decoder of OLMoE, Mixtral and Qwen3-MoE. A step takes tokens of several requests:
 *
 *     x = embedding of each token
 *     each layer:   x += attention(rms_norm(x))    keys and values go to the paged cache with kv_scatter, and those of all
 *                                                   requests come back in rows with kv_ragged
 *                   x += experts(rms_norm(x))      moe_route chooses, moe_permute groups rows by expert, each expert is three
 *                                                   matrix products, moe_unpermute adds up each token's results
 *     logits = head * rms_norm(x)
 *
 * Every number of a row is computed by one thread in an order that does not depend on the other rows: products and norms in
 * support/gemm.c and math.c, attention below, and the operators of Switchyard. So a token has the same bits in any batch and with
 * any number of threads (not with --blas, whose products of many rows add up in another order).
 */
#include "lm.h"

void model_cache(struct model *m, int64_t blocks)
{
    const int64_t numbers = blocks * BLOCK * m->kv_heads * m->head_size;
    m->blocks = blocks;
    m->all_keys = NEW(float, numbers);
    m->all_values = NEW(float, numbers);
    for (int64_t i = 0; i < m->layers; i++) {
        m->layer[i].keys = NEW(float, numbers);
        m->layer[i].values = NEW(float, numbers);
    }
}

/* ---- Attention ---- */

/* Rotary positions: the pair (i, i + half) of each head is rotated by the angle position / theta^(2i / size). */
static void rope(const struct model *m, const struct batch *b, float *x, int64_t heads)
{
    const int64_t size = m->head_size, half = size / 2;
    for (int64_t i = 0; i < half; i++) {
        const float speed = (float)(1.0 / pow(m->theta, 2.0 * (double)i / (double)size));
        for (int64_t t = 0; t < b->n; t++) {
            const double angle = (double)((float)b->position[t] * speed);
            const float c = (float)cos(angle), s = (float)sin(angle);
            for (int64_t h = t * heads; h < (t + 1) * heads; h++) {
                float *const pair = x + h * size + i;
                const float a = pair[0], z = pair[half];
                pair[0] = a * c - z * s;
                pair[half] = z * c + a * s;
            }
        }
    }
}

/* Queries or keys of all tokens. */
static float *project(const struct model *m, const struct batch *b, const float *x, const struct matrix *by,
                      const float *norm)
{
    const int64_t heads = by->rows / m->head_size, vectors = m->head_norm == NORM_ALL_HEADS ? 1 : heads;
    float *const y = NEW(float, b->n * by->rows);
    multiply(y, x, b->n, by);
    if (norm != NULL)
        rms_norm(y, y, b->n * vectors, by->rows / vectors, norm, m->eps);
    rope(m, b, y, heads);
    return y;
}

/* What each token's heads read of the keys and values of its request, up to its own position. */
static void attend(const struct model *m, const struct batch *b, float *out, const float *q)
{
    const int64_t size = m->head_size, kv = m->kv_heads * size, group = m->heads / m->kv_heads;
    const float scale = 1.0f / sqrtf((float)size);
#pragma omp parallel for schedule(dynamic) if (b->n * m->heads * b->first_row[b->requests] > 1 << 12)
    for (int64_t i = 0; i < b->n * m->heads; i++) {
        const int64_t t = i / m->heads, h = i % m->heads, n = b->position[t] + 1;
        const int64_t base = b->first_row[b->owner[t]] * kv + h / group * size;
        float *const score = NEW(float, n), *const to = out + i * size;
        for (int64_t u = 0; u < n; u++)
            score[u] = dot(q + i * size, m->all_keys + base + u * kv, size) * scale;
        softmax(score, n);
        memset(to, 0, (size_t)size * sizeof *to);
        for (int64_t u = 0; u < n; u++)
            for (int64_t k = 0; k < size; k++)
                to[k] += score[u] * m->all_values[base + u * kv + k];
        free(score);
    }
}

/* Puts keys or values of this step into their cache, and copies those of all requests, row after row: the loops of `attend` then
   need no table of blocks. */
static void use_cache(const struct model *m, const struct batch *b, float *all, float *cache,
                      const float *fresh)
{
    const int64_t kv = m->kv_heads * m->head_size;
    const sy_kv_scatter_args write = {.cache = MAT(cache, SY_F32, m->blocks * BLOCK, kv),
                                      .src = MAT(fresh, SY_F32, b->n, kv),
                                      .slots = VEC(b->slot, SY_I32, b->n)};
    MUST(m, sy_kv_scatter(m->ctx, &write)); /* cache[slot[t]] = fresh[t] */
    const sy_kv_ragged_args read = {.cache = write.cache,
                                    .block_table = MAT(b->table, SY_I32, b->requests, b->table_width),
                                    .cu_lens = VEC(b->first_row, SY_I32, b->requests + 1),
                                    .block_size = BLOCK,
                                    .out = MAT(all, SY_F32, b->first_row[b->requests], kv)};
    MUST(m, sy_kv_ragged(m->ctx,
                         &read)); /* rows of request i, from its blocks, to all[first_row[i]] and after */
}

static void attention(struct model *m, const struct layer *l, const struct batch *b, float *out,
                      const float *x)
{
    float *const q = project(m, b, x, &l->q, l->q_norm), *const k = project(m, b, x, &l->k, l->k_norm);
    float *const v = NEW(float, b->n * l->v.rows), *const read = NEW(float, b->n * l->q.rows);
    multiply(v, x, b->n, &l->v);
    use_cache(m, b, m->all_keys, l->keys, k);
    use_cache(m, b, m->all_values, l->values, v);
    attend(m, b, read, q);
    multiply(out, read, b->n, &l->o);
    free(q), free(k), free(v), free(read);
}

/* ---- Experts ---- */

/* An expert is down(silu(gate x) * up x). */
void run_experts(const struct layer *l, int64_t e, int64_t n, const int64_t *first, float *out,
                 const float *x)
{
    const int64_t numbers = first[n] * l->width;
    float *const gate = NEW(float, numbers), *const up = NEW(float, numbers);
    multiply_groups(gate, x, first, l->gate + e, n);
    multiply_groups(up, x, first, l->up + e, n);
    silu_gate(gate, up, numbers);
    multiply_groups(out, gate, first, l->down + e, n);
    free(gate), free(up);
}

/* All experts on this device: rows are grouped by expert, and added up with their weights. */
static void local_experts(struct model *m, const struct layer *l, int64_t n, const sy_moe_route_args *route,
                          float *out, const float *x)
{
    const int64_t rows = n * m->top_k;
    float *const grouped = NEW(float, rows * m->hidden);
    int32_t *const sorted = NEW(int32_t, rows);
    int64_t *const first = NEW(int64_t, m->experts + 1); /* rows of expert e: [first[e], first[e + 1]) */
    const sy_moe_permute_args there = {.tokens = MAT(x, SY_F32, n, m->hidden),
                                       .routing_map = route->routing_map,
                                       .num_out_tokens = rows,
                                       .permuted_tokens = MAT(grouped, SY_F32, rows, m->hidden),
                                       .sorted_indices = VEC(sorted, SY_I32, rows),
                                       .expert_offsets = VEC(first, SY_I64, m->experts + 1)};
    const sy_moe_unpermute_args back = {.permuted_tokens = there.permuted_tokens,
                                        .sorted_indices = there.sorted_indices,
                                        .routing_map = route->routing_map,
                                        .probs = route->probs,
                                        .tokens = MAT(out, SY_F32, n, m->hidden)};
    MUST(m, sy_moe_permute(m->ctx, &there)); /* a copy of each token for each of its experts, by expert */
    run_experts(l, 0, m->experts, first, grouped, grouped);
    MUST(m, sy_moe_unpermute(m->ctx, &back)); /* out[t]: the copies of token t, times their probs, added up */
    free(grouped), free(sorted), free(first);
}

/* For --page: the experts that were chosen in layer l. */
static void keep_choices(const struct model *m, const struct layer *l, const struct batch *b,
                         const int32_t *ids, const float *weights)
{
    for (int64_t t = 0; t < b->n && b->request->chosen != NULL; t++) {
        const struct request *const r = &b->request[b->owner[t]];
        const int64_t at = (b->position[t] * m->layers + (l - m->layer)) * m->top_k;
        COPY(r->chosen + at, ids + t * m->top_k, m->top_k);
        COPY(r->weight + at, weights + t * m->top_k, m->top_k);
    }
}

/* Routes every token to top_k experts and adds up what they compute. The choice has two forms: ids and weights [n, k] in the order
   of experts, for a mesh and --page; a map and weights [n, experts], 0 where not chosen, for moe_permute and moe_unpermute. */
static void experts(struct model *m, const struct layer *l, const struct batch *b, float *out, const float *x)
{
    const int64_t n = b->n, k = m->top_k;
    float *const logits = NEW(float, n * m->experts), *const probs = NEW(float, n * m->experts);
    float *const weights = NEW(float, n *k);
    int32_t *const ids = NEW(int32_t, n * k);
    uint8_t *const routed = NEW(uint8_t, n * m->experts);
    multiply(logits, x, n, &l->router);
    const sy_moe_route_args route = {.logits = MAT(logits, SY_F32, n, m->experts),
                                     .k = k,
                                     .score = SY_SCORE_SOFTMAX,
                                     .renormalize = m->renormalise,
                                     .slot_order = SY_SLOT_EXPERT,
                                     .ids = MAT(ids, SY_I32, n, k),
                                     .weights = MAT(weights, SY_F32, n, k),
                                     .routing_map = MAT(routed, SY_U8, n, m->experts),
                                     .probs = MAT(probs, SY_F32, n, m->experts)};
    MUST(m, sy_moe_route(m->ctx, &route));
    if (m->mesh != NULL)
        mesh_experts(m, l, n, ids, weights, out, x);
    else
        local_experts(m, l, n, &route, out, x);
    keep_choices(m, l, b, ids, weights);
    free(logits), free(probs), free(weights), free(ids), free(routed);
}

/* ---- A step ---- */

static void add(float *x, const float *change, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] += change[i];
}

void model_step(struct model *m, const struct batch *b)
{
    const int64_t hidden = m->hidden, numbers = b->n * hidden;
    float *const x = NEW(float, numbers), *const normal = NEW(float, numbers),
                 *const change = NEW(float, numbers);
    for (int64_t t = 0; t < b->n; t++)
        read_row(x + t * hidden, &m->embedding, b->token[t]);
    for (const struct layer *l = m->layer; l < m->layer + m->layers; l++) {
        rms_norm(normal, x, b->n, hidden, l->attention_norm, m->eps);
        attention(m, l, b, change, normal);
        add(x, change, numbers);
        rms_norm(normal, x, b->n, hidden, l->mlp_norm, m->eps);
        if (l->router.panel != NULL)
            experts(m, l, b, change, normal);
        else
            run_experts(l, 0, 1, (const int64_t[]){0, b->n}, change, normal);
        add(x, change, numbers);
    }
    for (int64_t i = 0; i < b->n_wanted; i++)
        rms_norm(normal + i * hidden, x + b->wanted[i] * hidden, 1, hidden, m->norm, m->eps);
    multiply(b->logits, normal, b->n_wanted, &m->head);
    free(x), free(normal), free(change);
}
