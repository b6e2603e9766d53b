/*
 * The worked examples of docs/ops/all_to_all_dispatch.md and all_to_all_combine.md, with results written by hand. A row is
 * shown as one number v and stands for (v, -v); 0 is a row of zeros, ANY one that nobody reads, NONE a slot not used. As codes of
 * int8_token a row v is (127, -127) with the scale v / 127.
 */
#include "mesh_cases.h"

enum { NONE = -1, ANY = 9999, MOST = 16 };

struct example {
    const char *name;
    sy_mesh mesh;
    const char *line;
    uint16_t mapping[32];    /* [E,D] */
    int64_t chosen[4][MOST]; /* [N,K] */
    int rows[4][MOST];       /* [N] of dispatch */
    int tokens[4][MOST];     /* [T] that come out */
    int results[4][MOST];    /* [L,T] or [T] of combine */
    int output[4][MOST];     /* [K,N] that come out */
    int sent[4][4];          /* rows of dispatch, from and to */
};

#define TWO_OF_FOUR \
    { \
        1, 0, 1, 0, 0, 1, 0, 1 \
    } /* e0, e1 on device 0; e2, e3 on device 1 */
#define ONE_EACH \
    { \
        0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0 \
    } /* on devices 3, 0, 1, 2 */
#define PAIRS \
    { \
        1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1 \
    }
#define MIXED \
    { \
        1, 1, 0, 1, 0, 0, 1, 0 \
    } /* e0 on both, e1 on device 1, e2 nowhere, e3 on device 0 */

/* Two devices and MIXED: choices that repeat, are not used, are of no device, or of two. */
#define TWO_HOLDERS(words) \
    {1, 2}, words "S=2 E=4 K=2", MIXED, .chosen = {{0, 0, 2, NONE}, {1, 2, 3, 0}}, \
                                        .rows = {{11, 12}, {21, 22}}

/* The same, where a rule takes both in turn. */
#define BOTH_SERVE(words) \
    TWO_HOLDERS(words), \
        .tokens = {{11, 0, 0, 22}, {0, 0, 21, 22}}, \
        .results = {{11, ANY, ANY, ANY, ANY, ANY, ANY, 88}, {ANY, ANY, ANY, 22, ANY, ANY, 42, ANY}}, \
        .output = {{11, 0, 0, 0}, {42, 88, 0, 22}}, .sent = {{1, 0}, {1, 2}}

static const struct example examples[] = {
    {"two devices, slots",
     {1, 2},
     "S=2 E=4 K=2",
     TWO_OF_FOUR,
     .chosen = {{0, 2, 1, 0}, {3, 2, 2, 0}},
     .rows = {{11, 12}, {21, 22}},
     .tokens = {{11, 12, 0, 22}, {11, 0, 21, 22}},
     .results = {{11, 12, ANY, 22, ANY, 24, ANY, ANY}, {33, ANY, 63, 66, ANY, ANY, 84, ANY}},
     .output = {{11, 24, 33, 12}, {84, 66, 63, 22}},
     .sent = {{2, 1}, {1, 2}}},
    {"two devices, local_reduce",
     {1, 2},
     "S=2 E=4 K=2 local_reduce=1",
     TWO_OF_FOUR,
     .chosen = {{0, 2, 1, 0}, {3, 2, 2, 0}},
     .rows = {{11, 12}, {21, 22}},
     .tokens = {{11, 12, 0, 22}, {11, 0, 21, 22}},
     .results = {{11, 36, ANY, 22}, {33, ANY, 147, 66}},
     .output = {{11, 0, 33, 36}, {0, 66, 147, 22}},
     .sent = {{2, 1}, {1, 2}}},
    {"columns of 2x2",
     {2, 2},
     "axis=1 E=4 K=2",
     ONE_EACH,
     .chosen = {{0, 1}, {0, 1}, {3, 2}, {3, 2}},
     .rows = {{10}, {10}, {20}, {20}},
     .tokens = {{10, 0}, {0, 20}, {0, 20}, {10, 0}},
     .results = {{20, ANY}, {ANY, 60}, {ANY, 80}, {10, ANY}},
     .output = {{0, 20}, {10, 0}, {80, 0}, {0, 60}},
     .sent = {{1}, {0, 0, 0, 1}, {0, 0, 1}, {0, 1}}},
    {"rows of 2x2",
     {2, 2},
     "axis=2 E=4 K=2",
     ONE_EACH,
     .chosen = {{0, 1}, {3, 2}, {0, 1}, {3, 2}},
     .rows = {{10}, {20}, {10}, {20}},
     .tokens = {{10, 0}, {0, 20}, {0, 20}, {10, 0}},
     .results = {{20, ANY}, {ANY, 60}, {ANY, 80}, {10, ANY}},
     .output = {{0, 20}, {0, 60}, {10, 0}, {80, 0}},
     .sent = {{1}, {0, 1}, {0, 0, 0, 1}, {0, 0, 1}}},
    {"rows of 2x2, dimension 2, slots",
     {2, 2},
     "axis=2 dim=2 E=8 K=3",
     PAIRS,
     .chosen = {{1, 0, 6}, {3, 5, 2}, {1, 0, 6}, {3, 5, 2}},
     .rows = {{10}, {20}, {10}, {20}},
     .tokens = {{10, 0}, {0, 20}, {0, 20}, {10, 0}},
     .results = {{10, ANY, 20, ANY}, {ANY, 60, ANY, 80}, {ANY, ANY, ANY, 120}, {70, ANY, ANY, ANY}},
     .output = {{20, 10, 0}, {80, 0, 60}, {0, 0, 70}, {0, 120, 0}},
     .sent = {{1}, {0, 1}, {0, 0, 0, 1}, {0, 0, 1}}},
    {"rows of 2x2, dimension 2, local_reduce",
     {2, 2},
     "axis=2 dim=2 E=8 K=3 local_reduce=1",
     PAIRS,
     .chosen = {{1, 0, 6}, {3, 5, 2}, {1, 0, 6}, {3, 5, 2}},
     .rows = {{10}, {20}, {10}, {20}},
     .tokens = {{10, 0}, {0, 20}, {0, 20}, {10, 0}},
     .results = {{30, ANY}, {ANY, 140}, {ANY, 120}, {70, ANY}},
     .output = {{0, 30, 0}, {0, 0, 140}, {0, 0, 70}, {0, 120, 0}},
     .sent = {{1}, {0, 1}, {0, 0, 0, 1}, {0, 0, 1}}},
    {"two batches concatenated",
     {1, 2},
     "axis=2 dim=2 B=2 E=2",
     {1, 0, 0, 1},
     .chosen = {{0, 1}, {0, 0}},
     .rows = {{11, 12}, {21, 22}},
     .tokens = {{11, 21, 0, 22}, {0, 0, 12, 0}},
     .results = {{11, 21, ANY, 22}, {ANY, ANY, 24, ANY}},
     .output = {{11, 24}, {21, 22}},
     .sent = {{1, 1}, {2, 0}}},
    {"two batches in flat order",
     {1, 2},
     "axis=2 dim=2 order=1 B=2 E=2",
     {1, 0, 0, 1},
     .chosen = {{0, 1}, {0, 0}},
     .rows = {{11, 12}, {21, 22}},
     .tokens = {{11, 0, 21, 22}, {0, 12, 0, 0}},
     .results = {{11, ANY, 21, 22}, {ANY, 24, ANY, ANY}},
     .output = {{11, 24}, {21, 22}},
     .sent = {{1, 1}, {2, 0}}},
    {"repeated, unused, nowhere, two holders", TWO_HOLDERS(""), .tokens = {{11, 0, 0, 22}, {11, 0, 21, 22}},
     .results = {{11, ANY, ANY, 22, ANY, ANY, ANY, 88}, {11, ANY, ANY, 22, ANY, ANY, 42, ANY}},
     .output = {{11, 0, 0, 0}, {42, 88, 0, 22}}, .sent = {{1, 1}, {1, 2}}},
    {"two holders, the first serves", TWO_HOLDERS("replica=1 "), .tokens = {{11, 0, 0, 22}, {0, 0, 21, 0}},
     .results = {{11, ANY, ANY, 22, ANY, ANY, ANY, 88}, {ANY, ANY, ANY, ANY, ANY, ANY, 42, ANY}},
     .output = {{11, 0, 0, 0}, {42, 88, 0, 22}}, .sent = {{1, 0}, {1, 1}}},
    {"two holders, the first serves, local_reduce", TWO_HOLDERS("replica=1 local_reduce=1 "),
     .tokens = {{11, 0, 0, 22}, {0, 0, 21, 0}}, .results = {{11, ANY, ANY, 110}, {ANY, ANY, 42, ANY}},
     .output = {{11, 0, 0, 0}, {42, 0, 0, 110}}, .sent = {{1, 0}, {1, 1}}},
    {"two holders, in turn", BOTH_SERVE("replica=2 ")},
    {"two holders, by a hash", BOTH_SERVE("replica=3 ")},
    {"two holders, balanced", BOTH_SERVE("replica=4 ")},
    {"two holders, the nearest", BOTH_SERVE("replica=5 ")},
    {"two holders, in turn, local_reduce", TWO_HOLDERS("replica=2 local_reduce=1 "),
     .tokens = {{11, 0, 0, 22}, {0, 0, 21, 22}}, .results = {{11, ANY, ANY, 88}, {ANY, ANY, 42, 22}},
     .output = {{11, 0, 0, 0}, {42, 88, 0, 22}}, .sent = {{1, 0}, {1, 2}}},
    {"two holders, codes", TWO_HOLDERS("coded=1 format=7 coded_results=1 "),
     .tokens = {{11, 0, 0, 22}, {11, 0, 21, 22}},
     .results = {{11, ANY, ANY, 22, ANY, ANY, ANY, 88}, {11, ANY, ANY, 22, ANY, ANY, 42, ANY}},
     .output = {{11, 0, 0, 0}, {42, 88, 0, 22}}, .sent = {{1, 1}, {1, 2}}},
};

int mesh_example_count(void)
{
    return (int)(sizeof examples / sizeof *examples);
}

sy_mesh mesh_example_mesh(int number)
{
    return examples[number].mesh;
}

static void *copy_of(const void *from, size_t bytes)
{
    void *memory = malloc(bytes + 1);
    if (memory == NULL)
        abort();
    return memcpy(memory, from, bytes);
}

/* n rows (v, -v) */
static unsigned char *rows_of(const int *values, int64_t n)
{
    float rows[2 * MOST];
    for (int64_t i = 0; i < n; i++) {
        rows[2 * i] = values[i] == ANY ? f32_from_bits(0x7fffffff) : (float)values[i];
        rows[2 * i + 1] = values[i] == 0 ? 0 : -rows[2 * i];
    }
    return copy_of(rows, (size_t)n * 8);
}

/* The codes of such rows, and their scales. */
static unsigned char *codes_of(const int *values, int64_t n)
{
    int8_t codes[2 * MOST];
    for (int64_t i = 0; i < n; i++) {
        codes[2 * i] = values[i] == 0 ? 0 : 127;
        codes[2 * i + 1] = values[i] == 0 ? 0 : -127;
    }
    return copy_of(codes, (size_t)n * 2);
}

static unsigned char *scales_of(const int *values, int64_t n)
{
    float scales[MOST];
    for (int64_t i = 0; i < n; i++)
        scales[i] = (float)values[i] / 127.0f;
    return copy_of(scales, (size_t)n * 4);
}

static void replace(unsigned char **data, unsigned char *by)
{
    free(*data);
    *data = by;
}

void mesh_example_make(struct mesh_case *m, int number)
{
    const struct example *ex = &examples[number];
    const struct a2a_case *c = &m->a2a;
    char line[200];
    snprintf(line, sizeof line, "%s H=2 type=1 mapping_form=1", ex->line);
    mesh_case_line(m, ex->mesh, line);
    memcpy(m->mapping, ex->mapping, (size_t)(c->experts * oracle_a2a_devices(c)) * sizeof *m->mapping);
    for (int d = 0; d < oracle_a2a_devices(c); d++)
        memcpy(m->chosen[d], ex->chosen[d], (size_t)(c->tokens[d] * c->slots) * sizeof *m->chosen[d]);
    for (int d = 0; d < oracle_a2a_devices(c); d++) {
        const int64_t n = c->tokens[d], results = oracle_a2a_inputs(c, d, m->local_reduce);
        replace(m->coded ? &m->dense[d] : &m->rows[d], rows_of(ex->rows[d], n));
        replace(&m->results[d], (m->coded ? codes_of : rows_of)(ex->results[d], results));
        if (!m->coded)
            continue;
        replace(&m->rows[d], codes_of(ex->rows[d], n));
        replace(&m->planes[0][d], scales_of(ex->rows[d], n));
        replace(&m->scales[d], scales_of(ex->results[d], results));
    }
}

/* Is what the oracle wants of a tensor what was written by hand? */
static bool wants(const struct mesh_tensor *x, unsigned char *(*make)(const int *values, int64_t n),
                  const int *values, int64_t n, char *why, size_t why_bytes)
{
    unsigned char *rows = make(values, n);
    const bool same =
        x->bytes == (size_t)x->rows * x->row_bytes && x->rows == n && memcmp(x->want, rows, x->bytes) == 0;
    free(rows);
    if (!same)
        snprintf(why, why_bytes, "the oracle wants other %s", x->name);
    return same;
}

bool mesh_example_agrees(const struct mesh_call *call, int number, char *why, size_t why_bytes)
{
    const struct example *ex = &examples[number];
    const struct a2a_case *c = &call->of->a2a;
    for (int i = 0; i < call->shards; i++) {
        const struct mesh_tensor *x = &call->tensors[MESH_TOKENS][i];
        const int d = call->first + i;
        const int64_t rows = c->tokens[d] * (call->combines ? c->slots : oracle_a2a_group(c));
        unsigned char *(*const make)(const int *values, int64_t n) = call->of->coded ? codes_of : rows_of;
        const int *const values = call->combines ? ex->output[d] : ex->tokens[d];
        if (!wants(x, make, values, rows, why, why_bytes) ||
            (call->of->coded &&
             !wants(&call->tensors[MESH_PLANE_TOKENS][i], scales_of, values, rows, why, why_bytes)))
            return false;
        for (int to = 0; to < oracle_a2a_devices(c); to++)
            if (oracle_a2a_rows(c, d, to) != ex->sent[d][to]) {
                snprintf(why, why_bytes, "the oracle sends %d rows from %d to %d",
                         (int)oracle_a2a_rows(c, d, to), d, to);
                return false;
            }
    }
    return true;
}
