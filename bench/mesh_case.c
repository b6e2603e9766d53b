/*
 * Which token goes to which device, counted with plain loops over all tokens.
 */
#include "mesh_case.h"

#include <stdlib.h>
#include <string.h>

int mesh_case_device(const struct mesh_case *m, int64_t expert)
{
    return (int)(expert / (m->experts / m->devices));
}

/* The other device of an expert; the same one where there is none. */
static int other_device(const struct mesh_case *m, int64_t expert)
{
    const int own = mesh_case_device(m, expert);
    return m->replicated && expert % 4 == 0 ? (own + m->devices / 2) % m->devices : own;
}

/* The lower of both for tokens of even number. */
static int serving_device(const struct mesh_case *m, int64_t t, int64_t expert)
{
    const int own = mesh_case_device(m, expert), other = other_device(m, expert);
    return (own < other) == (t % 2 == 0) ? own : other;
}

bool mesh_case_hits(const struct mesh_case *m, int64_t t, int device)
{
    bool hit = false;
    for (int64_t k = 0; k < m->k; k++)
        hit = hit || serving_device(m, t, m->indices[t * m->k + k]) == device;
    return hit;
}

int64_t mesh_case_sent(const struct mesh_case *m)
{
    int64_t sum = 0;
    for (int i = 0; i < m->devices * m->devices; i++)
        sum += m->sent[i];
    return sum;
}

static void count_sent(struct mesh_case *m)
{
    memset(m->sent, 0, (size_t)m->devices * (size_t)m->devices * sizeof *m->sent);
    for (int64_t t = 0; t < m->devices * m->tokens; t++)
        for (int q = 0; q < m->devices; q++)
            m->sent[t / m->tokens * m->devices + q] += mesh_case_hits(m, t, q);
}

/* Fills mapping, row, rows and sent from the indices. */
static void count_rows(struct mesh_case *m)
{
    const int64_t all = m->devices * m->tokens;
    memset(m->rows, 0, (size_t)m->devices * sizeof *m->rows);
    for (int64_t e = 0; e < m->experts; e++) {
        const int device = mesh_case_device(m, e);
        m->mapping[e * m->devices + device] = 1;
        for (int64_t at = 0; at < all * m->k; at++)
            if (m->indices[at] == e)
                m->row[at] = (int32_t)m->rows[device]++;
    }
    count_sent(m);
}

void mesh_case_space(struct mesh_case *m, int64_t expert_rows)
{
    const int64_t locals = m->experts / m->devices, all = m->devices * m->tokens;
    for (int64_t e = 0; e < m->experts; e++) {
        int64_t next = e % locals * expert_rows;
        for (int64_t at = 0; at < all * m->k; at++)
            if (m->indices[at] == e)
                m->row[at] = (int32_t)next++;
    }
    for (int d = 0; d < m->devices; d++)
        m->rows[d] = locals * expert_rows;
}

void mesh_case_replicate(struct mesh_case *m)
{
    m->replicated = true;
    for (int64_t e = 0; e < m->experts; e++)
        m->mapping[e * m->devices + other_device(m, e)] = 1;
    count_sent(m);
}

void mesh_case_first(const struct mesh_case *m, sy_a2a_layout layout, int64_t *first)
{
    first[0] = 0;
    for (int d = 0; d < m->devices; d++) {
        int64_t rows = layout == SY_LAYOUT_EXPERT   ? m->rows[d]
                       : layout == SY_LAYOUT_PADDED ? m->devices * m->tokens
                                                    : 0;
        for (int p = 0; p < m->devices && layout == SY_LAYOUT_PACKED; p++)
            rows += m->sent[p * m->devices + d];
        first[d + 1] = first[d] + rows;
    }
}

bool mesh_case_make(struct mesh_case *m, int devices, int64_t tokens, int64_t experts, int64_t k,
                    uint64_t seed)
{
    const size_t all = (size_t)devices * (size_t)tokens, slots = all * (size_t)k;
    *m = (struct mesh_case){.devices = devices, .tokens = tokens, .experts = experts, .k = k};
    uint8_t *const map = bench_alloc(all, (size_t)experts);
    m->indices = bench_alloc(slots, sizeof *m->indices);
    m->mapping = bench_alloc((size_t)experts, (size_t)devices * sizeof *m->mapping);
    m->row = bench_alloc(slots, sizeof *m->row);
    m->rows = bench_alloc((size_t)devices, sizeof *m->rows);
    m->sent = bench_alloc((size_t)devices, (size_t)devices * sizeof *m->sent);
    const bool made = map && m->indices && m->mapping && m->row && m->rows && m->sent;
    if (made) {
        uint16_t *next = m->indices;
        bench_route(map, (int64_t)all, experts, k, seed);
        for (size_t cell = 0; cell < all * (size_t)experts; cell++)
            if (map[cell] != 0)
                *next++ = (uint16_t)(cell % (size_t)experts);
        count_rows(m);
    }
    free(map);
    return made;
}

void mesh_case_free(struct mesh_case *m)
{
    free(m->indices);
    free(m->mapping);
    free(m->row);
    free(m->rows);
    free(m->sent);
}

/* ---- Calls ---- */

const DLTensor *mesh_parts(struct mesh_parts *p, const DLTensor *x, int n, const int64_t *first, int rank,
                           const int64_t *shape)
{
    if (!x || !x->data)
        return NULL;
    char *data = x->data;
    for (int d = 0; d < n; d++) {
        memcpy(p->shape[d], shape, (size_t)rank * sizeof *shape);
        if (first)
            p->shape[d][0] = first[d + 1] - first[d];
        p->of[d] = sy_tensor(data, x->dtype, rank, p->shape[d]);
        p->of[d].device = x->device;
        size_t bytes = x->dtype.bits / 8;
        for (int i = 0; i < rank; i++)
            bytes *= (size_t)p->shape[d][i];
        data += bytes;
    }
    return p->of;
}

static const DLTensor *parts(struct mesh_parts *p, const struct mesh_calls *c, void *data, DLDataType type,
                             const int64_t *first, int rank, const int64_t *shape)
{
    const DLDevice cpu = {kDLCPU, 0};
    const DLTensor x = {
        .data = data, .dtype = type, .device = c->device.device_type == kDLCUDA ? c->device : cpu};
    return mesh_parts(p, &x, c->n, first ? first + c->begin : NULL, rank, shape);
}

sy_status mesh_dispatch(const struct mesh_calls *c, sy_a2a_layout layout, void *tokens, uint16_t *indices,
                        void *rows)
{
    const struct mesh_case *const m = c->mesh;
    const int64_t local = m->experts / m->devices;
    int64_t first[MESH_DEVICES + 1], mapping_shape[] = {m->experts, m->devices};
    struct mesh_parts own, chosen, out, counts, offsets;
    const DLTensor mapping = sy_tensor(m->mapping, SY_U16, 2, mapping_shape);
    mesh_case_first(m, layout, first);
    return sy_all_to_all_dispatch(
        c->ctx, c->comm,
        &(sy_all_to_all_dispatch_args){
            .input = parts(&own, c, tokens, SY_BF16, NULL, 2, (int64_t[]){m->tokens, c->hidden}),
            .expert_indices = parts(&chosen, c, indices, SY_U16, NULL, 2, (int64_t[]){m->tokens, m->k}),
            .expert_mapping = &mapping,
            .layout = layout,
            .routing = layout == SY_LAYOUT_EXPERT ? c->routing : NULL,
            .tokens = parts(&out, c, rows, SY_BF16, first, 2, (int64_t[]){0, c->hidden}),
            .expert_counts = parts(&counts, c, c->counts, SY_I64, NULL, 1, (int64_t[]){local}),
            .expert_offsets = parts(&offsets, c, c->offsets, SY_I64, NULL, 1, (int64_t[]){local + 1})});
}

sy_status mesh_combine(const struct mesh_calls *c, void *rows, float *weights, bool sum, void *out)
{
    const struct mesh_case *const m = c->mesh;
    int64_t first[MESH_DEVICES + 1], slots[] = {m->k, m->tokens, c->hidden};
    struct mesh_parts in, shares, results;
    mesh_case_first(m, SY_LAYOUT_EXPERT, first);
    return sy_all_to_all_combine(
        c->ctx, c->comm,
        &(sy_all_to_all_combine_args){
            .input = parts(&in, c, rows, SY_BF16, first, 2, (int64_t[]){0, c->hidden}),
            .weights = parts(&shares, c, sum ? weights : NULL, SY_F32, NULL, 2, (int64_t[]){m->tokens, m->k}),
            .sum = sum,
            .routing = c->routing,
            .output = parts(&results, c, out, SY_BF16, NULL, sum ? 2 : 3, sum ? slots + 1 : slots)});
}

void mesh_calls_free(struct mesh_calls *c)
{
    sy_routing_destroy(c->routing);
    sy_comm_destroy(c->comm);
}
