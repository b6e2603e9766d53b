/*
 * The decoder of OLMoE, Mixtral and Qwen3-MoE. A step takes tokens of several sequences:
 *
 *     x = embedding of each token
 *     each layer:   x += attention(rms_norm(x))    keys and values go to the paged cache with kv_scatter, and those of all
 *                                                   sequences come back in rows with kv_ragged
 *                   x += experts(rms_norm(x))      moe_route chooses, moe_permute groups rows by expert, each expert is three
 *                                                   matrix products, moe_unpermute adds up each token's results
 *     logits = head * rms_norm(x)
 */
#include "lm.h"

void model_must(const struct model *m, sy_status status)
{
    require(status == SY_OK, "%s", sy_ctx_error(m->ctx));
}

void model_cache(struct model *m, int64_t blocks)
{
    const int64_t numbers = blocks * BLOCK * m->kv_heads * m->head_size;
    m->blocks = blocks;
    m->keys = NEW(float, numbers);
    m->values = NEW(float, numbers);
    for (int64_t i = 0; i < m->layers; i++) {
        m->layer[i].keys = NEW(float, numbers);
        m->layer[i].values = NEW(float, numbers);
    }
}

/* ---- Attention ----------------------------------------------------------------------------------------- */

/* Rotary positions: the cosine and sine of position / theta^(2i / size) for every token and i. */
static float *rope_angles(const struct model *m, const struct batch *b)
{
    const int64_t half = m->head_size / 2;
    float *const turn = NEW(float, b->n *half * 2);
    for (int64_t i = 0; i < half; i++) {
        const float speed = (float)(1.0 / pow(m->theta, 2.0 * (double)i / (double)m->head_size));
        for (int64_t t = 0; t < b->n; t++) {
            const double angle = (double)((float)b->position[t] * speed);
            turn[(t * half + i) * 2] = (float)cos(angle);
            turn[(t * half + i) * 2 + 1] = (float)sin(angle);
        }
    }
    return turn;
}

/* Rotates the pairs (i, i + half) of each head by their angle. */
static void rope(const struct model *m, float *x, int64_t heads, int64_t n, const float *turn)
{
    const int64_t half = m->head_size / 2;
    for (int64_t t = 0; t < n; t++, turn += 2 * half)
        for (int64_t h = 0; h < heads; h++, x += m->head_size)
            for (int64_t i = 0; i < half; i++) {
                const float a = x[i], z = x[i + half], c = turn[2 * i], s = turn[2 * i + 1];
                x[i] = a * c - z * s;
                x[i + half] = z * c + a * s;
            }
}

/* Queries, keys or values of all tokens: a product, and what the architecture does to it. */
static float *project(const struct model *m, const struct batch *b, const float *x, const struct matrix *by,
                      const float *norm, const float *turn)
{
    float *const y = NEW(float, b->n * by->rows);
    const int64_t heads = by->rows / m->head_size, vectors = m->head_norm == NORM_ALL_HEADS ? 1 : heads;
    multiply(y, x, b->n, by);
    if (norm != NULL)
        rms_norm(y, y, b->n * vectors, by->rows / vectors, norm, m->eps);
    for (int64_t i = 0; i < b->n * by->rows && m->clip > 0; i++)
        y[i] = fminf(fmaxf(y[i], -m->clip), m->clip);
    if (turn != NULL)
        rope(m, y, heads, b->n, turn);
    return y;
}

/* What each token's heads read of the rows of its sequence, up to its own position; m->keys and m->values have them. */
static void attend(const struct model *m, const struct batch *b, float *out, const float *q,
                   const int32_t *first_row)
{
    const int64_t size = m->head_size, kv = m->kv_heads * size, group = m->heads / m->kv_heads;
    const float scale = 1.0f / sqrtf((float)size);
#pragma omp parallel for schedule(dynamic) if (b->n * m->heads * first_row[b->sequences] > 1 << 12)
    for (int64_t i = 0; i < b->n * m->heads; i++) {
        const int64_t t = i / m->heads, h = i % m->heads, n = b->position[t] + 1;
        const int64_t base = (int64_t)first_row[b->sequence[t]] * kv + h / group * size;
        float *const score = NEW(float, n), *const to = out + i * size;
        for (int64_t u = 0; u < n; u++)
            score[u] = dot(q + i * size, m->keys + base + u * kv, size) * scale;
        softmax(score, n);
        memset(to, 0, (size_t)size * sizeof *to);
        for (int64_t u = 0; u < n; u++)
            for (int64_t k = 0; k < size; k++)
                to[k] += score[u] * m->values[base + u * kv + k];
        free(score);
    }
}

static void attention(struct model *m, const struct layer *l, const struct batch *b, float *out,
                      const float *x, const float *turn)
{
    float *const q = project(m, b, x, &l->q, l->q_norm, turn), *const read = NEW(float, b->n * l->q.rows);
    float *const k = project(m, b, x, &l->k, l->k_norm, turn), *const v = project(m, b, x, &l->v, NULL, NULL);
    int32_t *const first_row = NEW(int32_t, b->sequences + 1);
    for (int64_t s = 0; s < b->sequences; s++)
        first_row[s + 1] = first_row[s] + b->length[s];
    const int64_t kv = l->k.rows, rows = first_row[b->sequences], slots = m->blocks * BLOCK;
    /* The values are a second plane of the cache: one call moves keys and values of the same slots. */
    sy_kv_plane plane = {.cache = MAT(l->values, SY_F32, slots, kv), .rows = MAT(v, SY_F32, b->n, kv)};
    const sy_kv_scatter_args write = {.cache = MAT(l->keys, SY_F32, slots, kv),
                                      .src = MAT(k, SY_F32, b->n, kv),
                                      .slots = VEC(b->slot, SY_I32, b->n),
                                      .check_unique = true,
                                      .planes = &plane,
                                      .num_planes = 1,
                                      .plane_bytes = sizeof plane};
    model_must(m, sy_kv_scatter(m->ctx, &write));
    plane.rows = MAT(m->values, SY_F32, rows, kv);
    const sy_kv_ragged_args back = {.cache = write.cache,
                                    .block_table = MAT(b->table, SY_I32, b->sequences, b->table_width),
                                    .cu_lens = VEC(first_row, SY_I32, b->sequences + 1),
                                    .block_size = BLOCK,
                                    .out = MAT(m->keys, SY_F32, rows, kv),
                                    .planes = &plane,
                                    .num_planes = 1,
                                    .plane_bytes = sizeof plane};
    model_must(m, sy_kv_ragged(m->ctx, &back));
    attend(m, b, read, q, first_row);
    multiply(out, read, b->n, &l->o);
    free(q), free(k), free(v), free(read), free(first_row);
}

/* ---- Experts ------------------------------------------------------------------------------------------- */

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

/* Routes every token to top_k experts (out: ids and weights) and adds up what they compute. */
static void experts(struct model *m, const struct layer *l, const struct batch *b, int32_t *ids,
                    float *weights, float *out, const float *x)
{
    const int64_t n = b->n, k = m->top_k, rows = n * k;
    float *const logits = NEW(float, n * m->experts), *const probs = NEW(float, n * m->experts);
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
    model_must(m, sy_moe_route(m->ctx, &route));
    if (m->mesh != NULL) {
        mesh_experts(m, l, b, ids, weights, out, x);
    } else {
        float *const grouped = NEW(float, rows * m->hidden); /* by expert: group e of first */
        int32_t *const sorted = NEW(int32_t, rows);
        int64_t *const first = NEW(int64_t, m->experts + 1);
        const sy_moe_permute_args there = {.tokens = MAT(x, SY_F32, n, m->hidden),
                                           .routing_map = route.routing_map,
                                           .num_out_tokens = rows,
                                           .permuted_tokens = MAT(grouped, SY_F32, rows, m->hidden),
                                           .sorted_indices = VEC(sorted, SY_I32, rows),
                                           .expert_offsets = VEC(first, SY_I64, m->experts + 1)};
        model_must(m, sy_moe_permute(m->ctx, &there));
        run_experts(l, 0, m->experts, first, grouped, grouped);
        const sy_moe_unpermute_args back = {.permuted_tokens = there.permuted_tokens,
                                            .sorted_indices = there.sorted_indices,
                                            .routing_map = route.routing_map,
                                            .probs = route.probs,
                                            .tokens = MAT(out, SY_F32, n, m->hidden)};
        model_must(m, sy_moe_unpermute(m->ctx, &back));
        free(grouped), free(sorted), free(first);
    }
    free(logits), free(probs), free(routed);
}

/* ---- A step -------------------------------------------------------------------------------------------- */

static void add(float *x, const float *change, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] += change[i];
}

void model_step(struct model *m, const struct batch *b)
{
    const int64_t hidden = m->hidden, numbers = b->n * hidden, choices = b->n * m->top_k;
    float *const x = NEW(float, numbers), *const normal = NEW(float, numbers);
    float *const change = NEW(float, numbers), *const turn = rope_angles(m, b);
    for (int64_t t = 0; t < b->n; t++)
        read_row(x + t * hidden, &m->embedding, b->token[t]);
    for (int64_t i = 0; i < m->layers; i++) {
        const struct layer *const l = &m->layer[i];
        int32_t *const ids = b->chosen + i * choices;
        rms_norm(normal, x, b->n, hidden, l->attention_norm, m->eps);
        if (b->n > 0) /* a process without tokens goes on: others need its experts (mesh.c) */
            attention(m, l, b, change, normal, turn);
        add(x, change, numbers);
        rms_norm(normal, x, b->n, hidden, l->mlp_norm, m->eps);
        memset(ids, 0xFF, (size_t)choices * sizeof *ids); /* -1, which a dense layer leaves */
        if (l->router.panel != NULL)
            experts(m, l, b, ids, b->weight + i * choices, change, normal);
        else
            run_experts(l, 0, 1, (const int64_t[]){0, b->n}, change, normal);
        add(x, change, numbers);
    }
    for (int64_t i = 0; i < b->n_wanted; i++)
        rms_norm(normal + i * hidden, x + b->wanted[i] * hidden, 1, hidden, m->norm, m->eps);
    multiply(b->logits, normal, b->n_wanted, &m->head);
    free(x), free(normal), free(change), free(turn);
}
