/*
 * The demo's layer again with its experts on four devices: the same tokens are sent over a mesh and back, and the
 * results must equal those of permutation and its inverse on one device.
 */
#include "demo.h"

#include <string.h>

#include "mesh_case.h"

enum {
    D = DEMO_DEVICES,
    OWN = DEMO_TOKENS / D,    /* tokens of a device */
    LOCAL = DEMO_EXPERTS / D, /* experts of a device */
};

static const size_t row_bytes = (size_t)2 * DEMO_HIDDEN;

/* The parts of the four devices, one after the other in memory; with `first` of as many rows as lie between two of its numbers. */
static const DLTensor *split(struct mesh_parts *parts, const void *data, DLDataType type,
                             const int64_t *first, int rank, const int64_t *shape)
{
    const DLTensor whole = sy_tensor(data, type, 0, NULL);
    return mesh_parts(parts, &whole, D, first, rank, shape);
}

/* Rows of the experts, of which each device has its own. */
static const DLTensor *split_rows(struct mesh_parts *parts, const struct demo *demo, const uint16_t *rows)
{
    int64_t first[D + 1] = {[D] = DEMO_ROWS};
    for (int d = 0; d < D; d++)
        first[d] = demo->first[(int64_t)d * LOCAL];
    return split(parts, rows, SY_BF16, first, 2, (int64_t[]){0, DEMO_HIDDEN});
}

static const int64_t own_tokens[] = {OWN, DEMO_HIDDEN}, own_choices[] = {OWN, DEMO_K};

/* ---- all_to_all_dispatch ---- */

/* The experts of each token in ascending order, and the devices that host them. */
static bool make_mesh(struct demo *demo)
{
    demo->chosen = demo_take(demo, DEMO_ROWS, sizeof *demo->chosen);
    demo->chosen_weights = demo_take(demo, DEMO_ROWS, sizeof *demo->chosen_weights);
    demo->hosts = demo_take(demo, (size_t)DEMO_EXPERTS * D, sizeof *demo->hosts);
    demo->traffic = demo_take(demo, (size_t)D * D, sizeof *demo->traffic);
    demo->travelled = demo_take(demo, DEMO_ROWS, row_bytes);
    demo->no_memory = demo->no_memory ||
                      sy_comm_create_local(&demo->comm, (sy_mesh){2, D / 2}, NULL) != SY_OK ||
                      sy_routing_create(demo->ctx, demo->comm, &demo->routing) != SY_OK;
    if (demo->no_memory)
        return false;
    int64_t at = 0;
    for (int cell = 0; cell < DEMO_TOKENS * DEMO_EXPERTS && at < DEMO_ROWS; cell++)
        if (demo->map[cell] != 0) {
            demo->chosen[at] = (uint16_t)(cell % DEMO_EXPERTS);
            demo->chosen_weights[at++] = demo->probs[cell];
        }
    for (int e = 0; e < DEMO_EXPERTS; e++)
        demo->hosts[e * D + e / LOCAL] = 1;
    return true;
}

/* Tokens that went from p to q, counted by hand. */
static bool traffic_is_right(const struct demo *demo)
{
    int64_t sent[D * D] = {0};
    for (int t = 0; t < DEMO_TOKENS; t++)
        for (int q = 0; q < D; q++) {
            const uint8_t *const map = demo->map + (int64_t)t * DEMO_EXPERTS + (int64_t)q * LOCAL;
            bool hit = false;
            for (int e = 0; e < LOCAL; e++)
                hit = hit || map[e] != 0;
            sent[t / OWN * D + q] += hit;
        }
    return memcmp(sent, demo->traffic, sizeof sent) == 0;
}

/* Straight back without any expert: every slot of every token must hold the token itself. */
static bool round_trip(struct demo *demo, const DLTensor *rows)
{
    uint16_t *const slots = demo_take(demo, DEMO_ROWS, row_bytes);
    struct mesh_parts out;
    if (!slots)
        return false;
    const sy_all_to_all_combine_args args = {
        .input = rows,
        .routing = demo->routing,
        .output = split(&out, slots, SY_BF16, NULL, 3, (int64_t[]){DEMO_K, OWN, DEMO_HIDDEN})};
    bool same = sy_all_to_all_combine(demo->ctx, demo->comm, &args) == SY_OK;
    for (int64_t i = 0; i < DEMO_ROWS && same; i++) {
        const int64_t device = i / ((int64_t)OWN * DEMO_K), token = device * OWN + i % OWN;
        same = memcmp(slots + i * DEMO_HIDDEN, demo->hidden + token * DEMO_HIDDEN, row_bytes) == 0;
    }
    return same;
}

void demo_dispatch(struct demo *demo)
{
    if (!make_mesh(demo))
        return;
    struct mesh_parts tokens, indices, rows, traffic;
    const sy_all_to_all_dispatch_args args = {
        .input = split(&tokens, demo->hidden, SY_BF16, NULL, 2, own_tokens),
        .expert_indices = split(&indices, demo->chosen, SY_U16, NULL, 2, own_choices),
        .expert_mapping = MAT(demo->hosts, SY_U16, DEMO_EXPERTS, D),
        .layout = SY_LAYOUT_EXPERT,
        .routing = demo->routing,
        .tokens = split_rows(&rows, demo, demo->travelled),
        .rows_to = split(&traffic, demo->traffic, SY_I64, NULL, 1, (int64_t[]){D})};
    const size_t out = DEMO_ROWS * row_bytes;
    struct demo_step *const step = demo_measure(demo, "all_to_all_dispatch", &args, 2 * (double)out,
                                                &(struct bench_work){.copy_bytes = out});
    int64_t sent = 0, abroad = 0;
    for (int i = 0; i < D * D; i++) {
        sent += demo->traffic[i];
        abroad += i % (D + 1) != 0 ? demo->traffic[i] : 0;
    }
    snprintf(step->what, sizeof step->what,
             "the same with %d experts on each of %d devices (mesh 2 x 2): every token goes there once",
             LOCAL, D);
    snprintf(step->detail, sizeof step->detail, "%d tokens travel, %d to another device; %d visits are made",
             (int)sent, (int)abroad, DEMO_ROWS);
    const bool good = step->good && traffic_is_right(demo) &&
                      memcmp(demo->travelled, demo->rows, DEMO_ROWS * row_bytes) == 0;
    demo_print(demo, step, "the four devices hold what moe_permute made, and without experts all comes back",
               good && round_trip(demo, args.tokens));
}

/* ---- all_to_all_combine ---- */

void demo_combine(struct demo *demo)
{
    uint16_t *const sums = demo_take(demo, DEMO_TOKENS, row_bytes);
    if (demo->no_memory)
        return;
    struct mesh_parts rows, weights, tokens;
    const sy_all_to_all_combine_args args = {
        .input = split_rows(&rows, demo, demo->answers),
        .weights = split(&weights, demo->chosen_weights, SY_F32, NULL, 2, own_choices),
        .sum = true,
        .routing = demo->routing,
        .output = split(&tokens, sums, SY_BF16, NULL, 2, own_tokens)};
    const size_t moved = (DEMO_ROWS + DEMO_TOKENS) * row_bytes;
    struct demo_step *const step = demo_measure(demo, "all_to_all_combine", &args, (double)moved,
                                                &(struct bench_work){.copy_bytes = moved / 2});
    snprintf(step->what, sizeof step->what,
             "the same from four devices: rows return to the devices of their tokens and are summed");
    demo_print(demo, step, "every sum has the bits of moe_unpermute's",
               step->good && memcmp(sums, demo->mixed, DEMO_TOKENS * row_bytes) == 0);
    for (size_t i = 0; i < (size_t)DEMO_TOKENS * DEMO_HIDDEN; i++) /* the residual connection */
        demo->hidden[i] = bf16_from_float(bf16_to_float(demo->hidden[i]) + bf16_to_float(demo->mixed[i]));
}
