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

void mesh_case_count(struct mesh_case *m)
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
        mesh_case_count(m);
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
