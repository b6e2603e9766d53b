/*
 * Cases: random problems on a mesh, and the runner that takes them by number.
 */
#include "mesh_cases.h"

#include "oracle/quantize_rows.h"

/* ---- Random problems ---- */

static void *need(size_t bytes)
{
    void *memory = calloc(1, bytes + 1);
    if (memory == NULL)
        abort();
    return memory;
}

static bool one_in(uint64_t *rng, int64_t n)
{
    return rng_below(rng, n) == 0;
}

/* A number of this name from `least` on, one of n. */
static int64_t draw(const struct mesh_reader *in, const char *name, int64_t least, int64_t n)
{
    return in->draw(in->user, name, least, n);
}

/* One time in n. */
static bool chance(const struct mesh_reader *in, const char *name, int64_t n)
{
    return draw(in, name, 0, n) == 1;
}

/* Where experts live: scattered, in blocks, all on one device, in every group, on any number of devices. */
enum { SCATTERED, BLOCKS, ONE_DEVICE, EVERY_GROUP, ANYWHERE, MAPPINGS };

static bool hosts(const struct a2a_case *c, int style, int64_t e, int d, uint64_t random)
{
    const int64_t n_devices = oracle_a2a_devices(c);
    switch (style) {
    case SCATTERED: /* some nowhere */
        return (int64_t)(random % (uint64_t)(n_devices + 1)) == d;
    case BLOCKS:
        return e * n_devices / c->experts == d;
    case ONE_DEVICE:
        return d == n_devices - 1;
    case EVERY_GROUP:
        return (int64_t)(random % (uint64_t)oracle_a2a_group(c)) == oracle_a2a_position(c, d);
    default:
        return random >> d & 1;
    }
}

static void map_experts(struct mesh_case *m, uint64_t *rng, int style)
{
    const int n_devices = oracle_a2a_devices(&m->a2a);
    m->mapping = need((size_t)(m->a2a.experts * n_devices) * 2);
    m->a2a.mapping = m->mapping;
    for (int64_t e = 0; e < m->a2a.experts; e++) {
        const uint64_t random = rng_u64(rng) >> 8;
        for (int d = 0; d < n_devices; d++)
            m->mapping[e * n_devices + d] = hosts(&m->a2a, style, e, d, random);
    }
}

/* Slots of a token: experts, some of them none, some of them again. */
static void choose(struct mesh_case *m, uint64_t *rng)
{
    const bool skewed = one_in(rng, 5);
    for (int d = 0; d < oracle_a2a_devices(&m->a2a); d++) {
        m->chosen[d] = need((size_t)(m->a2a.tokens[d] * m->a2a.slots) * 8);
        m->a2a.chosen[d] = m->chosen[d];
        for (int64_t i = 0; i < m->a2a.tokens[d] * m->a2a.slots; i++) {
            const int64_t kind = rng_below(rng, 8), any = rng_below(rng, m->a2a.experts);
            m->chosen[d][i] = kind == 0                           ? -1
                              : kind == 1 && i % m->a2a.slots > 0 ? m->chosen[d][i - 1]
                              : skewed                            ? any / 4
                                                                  : any;
        }
    }
}

static void pick_sizes(struct mesh_case *m, const struct mesh_reader *in)
{
    struct a2a_case *c = &m->a2a;
    c->ragged = chance(in, "ragged", 5);
    c->batch = draw(in, "B", 1, 3);
    c->seq = chance(in, "no_tokens", 30) ? 0 : draw(in, "S", 1, 4);
    m->form = (int)draw(in, "form", 0, 3);
    if (m->form == 2)
        c->batch = 1;
    if (c->ragged)
        m->form = 2;
    for (int d = 0; d < oracle_a2a_devices(c); d++) {
        c->tokens[d] = !c->ragged ? c->batch * c->seq : chance(in, "none_here", 3) ? 0 : draw(in, "N", 0, 6);
        if (c->tokens[d] >= m->max_tokens)
            m->max_tokens = c->tokens[d] + draw(in, "more", 0, 2);
    }
    m->max_tokens = !c->ragged ? 0 : m->max_tokens > 0 ? m->max_tokens : 1;
    m->short_out = c->ragged || chance(in, "short", 2);
}

static void pick_types(struct mesh_case *m, const struct mesh_reader *in)
{
    static const DLDataType any[] = {{kDLBfloat, 16, 1}, {kDLFloat, 32, 1}, {kDLUInt, 8, 1},
                                     {kDLFloat, 64, 1},  {10, 8, 1},        {kDLFloat, 16, 1}},
                            sums[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}},
                            indices[] = {{kDLUInt, 16, 1}, {kDLInt, 32, 1}, {kDLInt, 64, 1}};
    m->type = m->sum ? sums[draw(in, "sum_type", 0, 3)] : any[draw(in, "type", 0, 6)];
    m->weight_type = sums[draw(in, "weight_type", 0, 3)];
    m->index_type = indices[draw(in, "index_type", 0, 3)];
    m->mask_type = chance(in, "bool", 2) ? SY_BOOL : SY_U8;
    m->hidden = draw(in, "H", 1, chance(in, "wide", 4) ? 70 : 9);
    m->n_planes = chance(in, "plain", 2) ? 0 : (int)draw(in, "planes", 0, MESH_PLANES + 1);
    for (int i = 0; i < m->n_planes; i++) {
        m->plane_type[i] = any[draw(in, "plane_type", 0, 6)];
        m->plane_width[i] = draw(in, "X", 1, 5);
    }
}

static void pick_way(struct mesh_case *m, const struct mesh_reader *in)
{
    m->mapping_form = (int)draw(in, "mapping_form", 0, 3);
    m->gap = chance(in, "gap", 3) ? draw(in, "gap_of", 1, 3) : 0;
    m->misalign = chance(in, "misalign", 3);
    m->without = chance(in, "without", 6);
    m->by_routing = chance(in, "by_routing", 2);
    m->repeat = chance(in, "repeat", 2);
    m->spare = draw(in, "spare", 0, 3);
    m->num_links = chance(in, "many_links", 9) ? 100000 : (int)draw(in, "links", 0, 4);
    m->topology = (sy_topology)draw(in, "topology", 0, 5);
    m->memory = (sy_memory)draw(in, "memory", 0, 3);
}

/* PACKED rows belong to a whole device: they can be sums, or each device has one expert. */
static int pick_mode(struct mesh_case *m, const struct mesh_reader *in)
{
    struct a2a_case *c = &m->a2a;
    const bool single = c->layout == SY_LAYOUT_PACKED && chance(in, "single", 2);
    m->local_reduce = c->layout == SY_LAYOUT_PACKED
                          ? !single
                          : c->layout == SY_LAYOUT_PADDED && chance(in, "local_reduce", 2);
    if (single)
        c->experts = oracle_a2a_devices(c);
    m->sum = chance(in, "sum", 3);
    m->weighted = m->sum && !m->local_reduce && !chance(in, "no_weights", 3);
    const int style = (int)draw(in, "experts", 0, m->local_reduce ? ANYWHERE : MAPPINGS);
    return single ? BLOCKS : c->replica != SY_A2A_REPLICA_ALL && style % 2 ? ANYWHERE : style;
}

/* Half of the cases have a rule. */
static void pick_replica(struct a2a_case *c, const struct mesh_reader *in)
{
    const int size = oracle_a2a_group(c);
    const int64_t rule = chance(in, "no_rule", 2) ? 0 : draw(in, "replica", 0, 8);
    c->replica = (sy_a2a_replica)(rule < 6 ? rule : SY_A2A_REPLICA_LOCAL);
    c->node_size = draw(in, "node", 0, size + 1);
    while (c->node_size > 0 && size % c->node_size != 0)
        c->node_size--;
}

/* A third, of those without sums in the dispatch: scales are a plane more. All that have sums, and half of the others, have results
   that are codes. */
static void pick_codes(struct mesh_case *m, const struct mesh_reader *in)
{
    static const DLDataType numbers[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};
    static const char *const names[MESH_FORMATS] = {
        "",      "fp8_128",     "fp8_128_deepep", "fp8_128_deepgemm", "fp8_128_ue8m0",
        "mxfp8", "mxfp8_floor", "int8_token"};
    if (!chance(in, "coded", 3))
        return;
    m->named = (int)draw(in, "format", 0, MESH_FORMATS);
    m->format = (sy_row_format){.bytes = sizeof m->format,
                                .q_type = SY_F8_E4M3,
                                .scale_type = SY_F32,
                                .group = (int32_t)draw(in, "group", 1, 8),
                                .scale_math = SY_SCALE_MATH_MUL,
                                .code_math = SY_CODE_MATH_AMAX};
    if (m->named > 0)
        sy_row_format_named(names[m->named], &m->format);
    const int64_t groups = m->format.group == 0 ? 1 : draw(in, "groups", 1, 2);
    m->dense_type = numbers[draw(in, "dense_type", 0, 3)];
    m->code_type = m->format.q_type.code != kDLInt && chance(in, "bytes", 2) ? SY_U8 : m->format.q_type;
    m->scale_bytes = m->format.scale_type.bits == 8 && chance(in, "scale_bytes", 2);
    m->hidden = m->format.group == 0 ? m->hidden : groups * m->format.group;
    m->coded_results = m->sum || chance(in, "coded_results", 2);
    if (m->sum)
        return;
    m->coded = true;
    m->type = m->code_type;
    m->n_planes = m->n_planes < MESH_PLANES ? m->n_planes : MESH_PLANES - 1;
    m->plane_type[m->n_planes] = mesh_case_scale_type(m);
    m->plane_width[m->n_planes] = groups;
}

/* The first expert with more than `rows` rows: how many. *e: which. 0: there is none. */
static int64_t overfull(const struct a2a_case *c, int64_t rows, int64_t *e)
{
    for (int d = 0; d < oracle_a2a_devices(c); d++)
        for (int64_t l = 0; l < oracle_a2a_locals(c, d); l++) {
            const int64_t count = oracle_a2a_count(c, d, l);
            *e = oracle_a2a_expert(c, d, l);
            if (count > rows)
                return count;
        }
    return 0;
}

/* Half of those by expert: as many rows as the fullest expert has, or more. */
static void pick_expert_rows(struct a2a_case *c, const struct mesh_reader *in)
{
    int64_t most = 1, e;
    if (c->layout != SY_LAYOUT_EXPERT || !chance(in, "expert_rows", 2))
        return;
    while (overfull(c, most, &e) > 0)
        most++;
    c->expert_rows = ((most - 1) / c->align + 1 + draw(in, "more_rows", 0, 9) / 2) * c->align;
}

void mesh_case_make(struct mesh_case *m, sy_mesh mesh, const struct mesh_reader *in)
{
    memset(m, 0, sizeof *m);
    struct a2a_case *c = &m->a2a;
    c->mesh = mesh;
    c->axis = (sy_axis)draw(in, "axis", 0, 3);
    c->dim = (int)draw(in, "dim", 1, 2);
    c->order = (sy_a2a_order)draw(in, "order", 0, 2);
    c->layout = (sy_a2a_layout)draw(in, "layout", 0, 3);
    c->align = draw(in, "align", 1, 4);
    c->experts = draw(in, "E", 1, 10);
    c->slots = draw(in, "K", 1, 4);
    m->fill = (sy_fill)draw(in, "fill", 0, 2);
    pick_replica(c, in);
    const int style = pick_mode(m, in);
    pick_sizes(m, in);
    pick_types(m, in);
    pick_codes(m, in);
    pick_way(m, in);
    uint64_t rng = (uint64_t)draw(in, "contents", 0, INT64_MAX);
    map_experts(m, &rng, style);
    choose(m, &rng);
    pick_expert_rows(c, in);
    mesh_case_data(m, rng_u64(&rng));
}

static int64_t draw_word(void *line, const char *name, int64_t least, int64_t n)
{
    const size_t length = strlen(name);
    (void)n;
    for (const char *at = line; (at = strstr(at, name)) != NULL; at += length)
        if (at[length] == '=' && (at == line || at[-1] == ' '))
            return strtoll(at + length + 1, NULL, 10);
    return least;
}

void mesh_case_line(struct mesh_case *m, sy_mesh mesh, const char *line)
{
    void *const words = (void *)(uintptr_t)line;
    mesh_case_make(m, mesh, &(struct mesh_reader){draw_word, words});
    m->combines = draw_word(words, "combine", 0, 2) != 0;
}

/* By number: every layout comes up, devices with different numbers of tokens, and none at all. */
struct numbered {
    uint64_t rng;
    int number;
};

static int64_t draw_numbered(void *user, const char *name, int64_t least, int64_t n)
{
    struct numbered *const by = user;
    const int64_t drawn = rng_below(&by->rng, n);
    if (strcmp(name, "layout") == 0)
        return by->number % 3;
    if (strcmp(name, "ragged") == 0)
        return by->number % 5 == 2;
    return strcmp(name, "no_tokens") == 0 ? by->number == 1 : least + drawn;
}

void mesh_case_random(struct mesh_case *m, sy_mesh mesh, int number)
{
    struct numbered by = {(uint64_t)number * 64 + (uint64_t)(mesh.rows * 8 + mesh.cols), number};
    mesh_case_make(m, mesh, &(struct mesh_reader){draw_numbered, &by});
}

int64_t mesh_case_groups(const struct mesh_case *m)
{
    return m->format.group > 0 ? m->hidden / m->format.group : 1;
}

DLDataType mesh_case_scale_type(const struct mesh_case *m)
{
    return m->scale_bytes ? SY_U8 : m->format.scale_type;
}

DLDataType mesh_case_input_type(const struct mesh_case *m, bool combines)
{
    return combines ? (m->coded_results ? m->code_type : m->type) : m->coded ? m->dense_type : m->type;
}

int64_t mesh_case_row_bytes(const struct mesh_case *m, bool combines)
{
    if (combines && m->coded_results)
        return m->hidden + mesh_case_groups(m) * (int64_t)type_bytes(m->format.scale_type);
    int64_t bytes = m->hidden * (int64_t)type_bytes(m->type);
    for (int i = 0; i < m->n_planes + m->coded && !combines; i++) /* scales are one more */
        bytes += m->plane_width[i] * (int64_t)type_bytes(m->plane_type[i]);
    return bytes;
}

/* ---- Data ---- */

static unsigned char *random_rows(uint64_t *rng, int64_t rows, int64_t width, DLDataType type)
{
    const size_t bytes = (size_t)(rows * width) * type_bytes(type);
    unsigned char *data = need(bytes);
    rng_fill(rng, data, bytes);
    return data;
}

/* Numbers that a sum can add: of moderate size, with infinities, subnormals and NaN among them. */
static void moderate(uint64_t *rng, DLDataType type, unsigned char *row, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double value = (rng_unit(rng) - 0.5) * 8;
        const uint64_t bits = one_in(rng, 24)         ? rng_u64(rng)
                              : type.bits == 32       ? f32_round(value)
                              : type.code == kDLFloat ? f16_round(value)
                                                      : bf16_round(value);
        memcpy(row + (size_t)i * type_bytes(type), &bits, type_bytes(type)); /* little-endian */
    }
}

/* Of moderate size, too. */
static void make_scales(const struct mesh_case *m, uint64_t *rng, unsigned char *scales, int64_t groups)
{
    if (m->format.scale_type.bits == 32)
        moderate(rng, SY_F32, scales, groups);
    for (int64_t g = 0; m->format.scale_type.bits == 8 && g < groups; g++)
        scales[g] = (unsigned char)(one_in(rng, 24) ? rng_u64(rng) : 120 + (uint64_t)rng_below(rng, 12));
}

/* Only rows that some slot asks for hold something; the others are NaN in every format. */
static void make_results(struct mesh_case *m, uint64_t *rng)
{
    const struct a2a_case *c = &m->a2a;
    const size_t row_bytes = (size_t)m->hidden * type_bytes(mesh_case_input_type(m, true));
    const int64_t groups = m->coded_results ? mesh_case_groups(m) : 0;
    const size_t scale_bytes = groups > 0 ? (size_t)groups * type_bytes(m->format.scale_type) : 0;
    for (int d = 0; d < oracle_a2a_devices(c); d++) {
        const int64_t rows = oracle_a2a_inputs(c, d, m->local_reduce);
        m->results[d] = need((size_t)rows * row_bytes);
        memset(m->results[d], 0xFF, (size_t)rows * row_bytes);
        m->scales[d] = memset(need((size_t)rows * scale_bytes), 0xFF, (size_t)rows * scale_bytes);
    }
    for (int d = 0; d < oracle_a2a_devices(c); d++)
        for (int64_t i = 0; i < c->tokens[d] * c->slots; i++) {
            const struct a2a_from from =
                oracle_a2a_combine(c, d, i / c->slots, i % c->slots, m->local_reduce);
            if (from.device < 0)
                continue;
            unsigned char *row = m->results[from.device] + (size_t)from.row * row_bytes;
            if (m->sum && !m->coded_results)
                moderate(rng, m->type, row, m->hidden);
            else
                rng_fill(rng, row, row_bytes);
            make_scales(m, rng, m->scales[from.device] + (size_t)from.row * scale_bytes, groups);
        }
}

static float number_at(DLDataType type, const unsigned char *data, int64_t i)
{
    float value;
    uint16_t half;
    memcpy(&value, data + (type.bits == 32 ? 4 * i : 0), sizeof value);
    memcpy(&half, data + 2 * i, sizeof half);
    return type.bits == 32 ? value : (float)(type.code == kDLFloat ? f16_value(half) : bf16_value(half));
}

/* Numbers, and their codes and scales by the oracle. */
static void make_codes(struct mesh_case *m, int d, uint64_t *rng)
{
    const int64_t n = m->a2a.tokens[d], groups = m->plane_width[m->n_planes], group = m->hidden / groups;
    const size_t size = m->format.scale_type.bits / 8;
    float *x = need((size_t)m->hidden * sizeof *x);
    m->dense[d] = need((size_t)(n * m->hidden) * type_bytes(m->dense_type) + 4);
    m->rows[d] = need((size_t)(n * m->hidden));
    m->planes[m->n_planes][d] = need((size_t)(n * groups) * size);
    moderate(rng, m->dense_type, m->dense[d], n * m->hidden);
    for (int64_t g = 0; g < n * groups; g++) {
        for (int64_t i = 0; i < group; i++)
            x[i] = number_at(m->dense_type, m->dense[d], g * group + i);
        const uint32_t scale = oracle_quantize_group(&m->format, x, group, m->rows[d] + g * group);
        memcpy(m->planes[m->n_planes][d] + (size_t)g * size, &scale, size); /* little-endian */
    }
    free(x);
}

void mesh_case_data(struct mesh_case *m, uint64_t seed)
{
    const struct a2a_case *c = &m->a2a;
    for (int d = 0; d < oracle_a2a_devices(c); d++) {
        if (m->coded)
            make_codes(m, d, &seed);
        if (m->rows[d] == NULL)
            m->rows[d] = random_rows(&seed, c->tokens[d], m->hidden, m->type);
        for (int i = 0; i < m->n_planes; i++)
            m->planes[i][d] = random_rows(&seed, c->tokens[d], m->plane_width[i], m->plane_type[i]);
        if (m->weighted) {
            m->weights[d] = random_rows(&seed, c->tokens[d], c->slots, m->weight_type);
            moderate(&seed, m->weight_type, m->weights[d], c->tokens[d] * c->slots);
        }
    }
    if (m->results[0] == NULL)
        make_results(m, &seed);
}

static void free_data(struct mesh_case *m)
{
    for (int d = 0; d < A2A_DEVICES; d++) {
        unsigned char **all[] = {&m->rows[d], &m->dense[d], &m->results[d], &m->scales[d], &m->weights[d]};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            free(*all[i]);
            *all[i] = NULL;
        }
        for (int i = 0; i < MESH_PLANES; i++) {
            free(m->planes[i][d]);
            m->planes[i][d] = NULL;
        }
    }
}

void mesh_case_renew(struct mesh_case *m, int64_t hidden, uint64_t seed)
{
    const int64_t group = m->coded || m->coded_results ? m->format.group : 0,
                  groups = group == 0 || hidden < group ? 1 : hidden / group;
    free_data(m);
    m->hidden = group > 0 ? groups * group : hidden;
    if (m->coded)
        m->plane_width[m->n_planes] = groups;
    mesh_case_data(m, seed);
}

void mesh_case_free(struct mesh_case *m)
{
    free_data(m);
    free(m->mapping);
    for (int d = 0; d < A2A_DEVICES; d++)
        free(m->chosen[d]);
    memset(m, 0, sizeof *m);
}

/* ---- Cases by number ---- */

enum { RANDOM_CASES = 60 };

/* The number of the i-th example of a mesh, or -1; how many there are. */
static int example_of(sy_mesh mesh, int i, int *count)
{
    int found = -1;
    *count = 0;
    for (int e = 0; e < mesh_example_count(); e++)
        if (mesh_example_mesh(e).rows == mesh.rows && mesh_example_mesh(e).cols == mesh.cols &&
            (*count)++ == i)
            found = e;
    return found;
}

int mesh_case_count(sy_mesh mesh)
{
    int count = 0;
    (void)example_of(mesh, 0, &count);
    return mesh.rows * mesh.cols <= A2A_DEVICES ? count + RANDOM_CASES + 1 : 0;
}

/* In one go, by waiting for a request, or by testing it. */
static sy_status run_somehow(sy_ctx *ctx, sy_comm *comm, struct mesh_call *call, int way)
{
    sy_request *request = NULL;
    bool done = false;
    if (way == 0)
        return mesh_call_run(ctx, comm, call);
    sy_status status = mesh_call_start(ctx, comm, call, &request);
    if (status == SY_OK && way == 1)
        status = sy_request_wait(request, SY_PHASE_ROUTED);
    while (status == SY_OK && way == 2 && !done)
        status = sy_request_test(request, SY_PHASE_DONE, &done);
    for (int d = 0; status == SY_OK && d < call->shards; d++)
        if (sy_request_tokens(request, call->first + d) != oracle_a2a_total(&call->of->a2a, call->first + d))
            status = SY_ERR_MISMATCH;
    const sy_status last = sy_request_free(request);
    return status == SY_OK ? last : status;
}

static bool finish(sy_ctx *ctx, sy_comm *comm, struct mesh_call *call, int example, int way, char *why,
                   size_t why_bytes)
{
    const sy_status status = run_somehow(ctx, comm, call, way);
    if (status != SY_OK)
        snprintf(why, why_bytes, "%s: %s", sy_status_name(status), sy_ctx_error(ctx));
    const bool good = status == SY_OK && mesh_call_check(call, why, why_bytes) &&
                      (example < 0 || mesh_example_agrees(call, example, why, why_bytes));
    mesh_call_free(call);
    return good;
}

/* ---- Bytes that move ---- */

static void count_bytes(void *user, const sy_trace *trace)
{
    *(uint64_t *)user += trace->bytes;
}

/* The same rows as they are, of bf16, and as codes of fp8_128, there and back: by the trace, 264 bytes of a row move in place of
   512. */
static bool run_bytes_case(sy_comm *comm, char *why, size_t why_bytes)
{
    uint64_t moved[2] = {0, 0};
    bool good = true;
    for (int coded = 0; coded < 2; coded++) {
        struct mesh_case m;
        sy_ctx *ctx = NULL;
        mesh_case_random(&m, sy_comm_mesh(comm), 1000); /* whose rows are replaced */
        m.coded = m.coded_results = coded;
        m.scale_bytes = false;
        m.sum = m.weighted = false;
        m.type = coded ? SY_U8 : SY_BF16;
        m.code_type = SY_U8;
        m.dense_type = SY_BF16;
        m.n_planes = 0;
        m.plane_type[0] = SY_F32;
        good = sy_row_format_named("fp8_128", &m.format) == SY_OK && good;
        mesh_case_renew(&m, 256, 5);
        const sy_ctx_options options = {.trace = count_bytes, .trace_user = &moved[coded]};
        good = sy_ctx_create(&ctx, &options) == SY_OK && good;
        good = finish(ctx, comm, mesh_dispatch_new(comm, &m, NULL), -1, 0, why, why_bytes) && good;
        good = finish(ctx, comm, mesh_combine_new(comm, &m, NULL), -1, 0, why, why_bytes) && good;
        sy_ctx_destroy(ctx);
        mesh_case_free(&m);
    }
    if (good && moved[0] * 264 == moved[1] * 512)
        return true;
    if (good)
        snprintf(why, why_bytes, "%llu bytes moved as they are, %llu as codes", (unsigned long long)moved[0],
                 (unsigned long long)moved[1]);
    return false;
}

/* With fewer rows than the fullest expert has, a dispatch is rejected by all processes, and nothing is written. */
static bool run_overfull(sy_ctx *ctx, sy_comm *comm, const struct mesh_case *m, int way, char *why,
                         size_t why_bytes)
{
    const struct a2a_case *c = &m->a2a;
    int64_t rows = c->expert_rows - c->align, e;
    while (rows > 0 && overfull(c, rows, &e) == 0)
        rows -= c->align;
    if (rows <= 0)
        return true;
    char want[128];
    const int64_t count = overfull(c, rows, &e);
    snprintf(want, sizeof want, "is %lld, want at least %lld, the rows of expert %lld", (long long)rows,
             (long long)count, (long long)e);
    struct mesh_call *call = mesh_dispatch_new(comm, m, NULL);
    call->dispatch.expert_rows = rows;
    const sy_status status = run_somehow(ctx, comm, call, way);
    const bool told = status == SY_ERR_CAPACITY && strstr(sy_ctx_error(ctx), want) != NULL;
    if (!told)
        snprintf(why, why_bytes, "%s: %s; %s", sy_status_name(status), sy_ctx_error(ctx), want);
    const bool good = told && mesh_call_untouched(call, why, why_bytes);
    mesh_call_free(call);
    return good;
}

bool run_mesh_case(sy_ctx *ctx, sy_comm *comm, int number, char *why, size_t why_bytes)
{
    if (number == mesh_case_count(sy_comm_mesh(comm)) - 1)
        return run_bytes_case(comm, why, why_bytes);
    struct mesh_case m;
    sy_routing *routing = NULL;
    char text[2][256] = {"", ""};
    int examples;
    const int example = example_of(sy_comm_mesh(comm), number, &examples);
    if (example >= 0)
        mesh_example_make(&m, example);
    else
        mesh_case_random(&m, sy_comm_mesh(comm), number - examples);
    bool good[2] = {sy_routing_create(ctx, comm, &routing) == SY_OK, false};
    /* Both calls are made whatever comes of the first: the other processes make them, too. */
    if (good[0])
        good[0] = run_overfull(ctx, comm, &m, number % 2, text[0], sizeof text[0]);
    if (good[0])
        good[0] = finish(ctx, comm, mesh_dispatch_new(comm, &m, routing), example, number % 3, text[0],
                         sizeof text[0]);
    good[1] = finish(ctx, comm, mesh_combine_new(comm, &m, m.by_routing ? routing : NULL), example,
                     number / 3 % 3, text[1], sizeof text[1]);
    if (!good[0] || !good[1])
        snprintf(why, why_bytes, "case %d, mesh %dx%d, %s: %s", number, m.a2a.mesh.rows, m.a2a.mesh.cols,
                 good[0] ? "combine" : "dispatch", good[0] ? text[1] : text[0]);
    sy_routing_destroy(routing);
    mesh_case_free(&m);
    return good[0] && good[1];
}

bool run_mesh_cases(sy_ctx *ctx, sy_comm *comm, char *why, size_t why_bytes)
{
    char other[400];
    bool good = true;
    for (int i = 0; i < mesh_case_count(sy_comm_mesh(comm)); i++)
        good = run_mesh_case(ctx, comm, i, good ? why : other, good ? why_bytes : sizeof other) && good;
    return good;
}
