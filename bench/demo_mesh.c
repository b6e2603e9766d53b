/*
 * The demo's layer again with its experts on four devices: the same tokens are sent over a mesh and back, and the
 * results must equal those of permutation and its inverse on one device.
 */
#include "demo.h"

#include <string.h>

enum {
    D = DEMO_DEVICES,
    OWN = DEMO_TOKENS / D,    /* tokens of a device */
    LOCAL = DEMO_EXPERTS / D, /* experts of a device */
};

static const size_t row_bytes = (size_t)2 * DEMO_HIDDEN;

/* Tensors of the four devices, one after the other in memory. */
struct views {
    int64_t own_shape[2], choice_shape[2], rows_shape[D][2], traffic_shape[1], slots_shape[3], hosts_shape[2];
    DLTensor tokens[D], indices[D], rows[D], traffic[D], weights[D], hosts;
};

static void set_views(struct views *v, struct demo *demo, uint16_t *tokens, uint16_t *rows)
{
    memcpy(v->own_shape, (int64_t[]){OWN, DEMO_HIDDEN}, sizeof v->own_shape);
    memcpy(v->choice_shape, (int64_t[]){OWN, DEMO_K}, sizeof v->choice_shape);
    memcpy(v->slots_shape, (int64_t[]){DEMO_K, OWN, DEMO_HIDDEN}, sizeof v->slots_shape);
    memcpy(v->hosts_shape, (int64_t[]){DEMO_EXPERTS, D}, sizeof v->hosts_shape);
    v->traffic_shape[0] = D;
    v->hosts = sy_tensor(demo->hosts, SY_U16, 2, v->hosts_shape);
    for (int64_t d = 0; d < D; d++) {
        const int64_t first = demo->first[d * LOCAL],
                      end = d + 1 < D ? demo->first[(d + 1) * LOCAL] : DEMO_ROWS;
        memcpy(v->rows_shape[d], (int64_t[]){end - first, DEMO_HIDDEN}, sizeof v->rows_shape[d]);
        v->tokens[d] = sy_tensor(tokens + d * OWN * DEMO_HIDDEN, SY_BF16, 2, v->own_shape);
        v->rows[d] = sy_tensor(rows + first * DEMO_HIDDEN, SY_BF16, 2, v->rows_shape[d]);
        v->indices[d] = sy_tensor(demo->chosen + d * OWN * DEMO_K, SY_U16, 2, v->choice_shape);
        v->weights[d] = sy_tensor(demo->chosen_weights + d * OWN * DEMO_K, SY_F32, 2, v->choice_shape);
        v->traffic[d] = sy_tensor(demo->traffic + d * D, SY_I64, 1, v->traffic_shape);
    }
}

/* ---- all_to_all_dispatch ------------------------------------------------------------------------------- */

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
static bool round_trip(struct demo *demo, struct views *v)
{
    uint16_t *const slots = demo_take(demo, DEMO_ROWS, row_bytes);
    DLTensor out[D];
    if (!slots)
        return false;
    for (int64_t d = 0; d < D; d++)
        out[d] = sy_tensor(slots + d * OWN * DEMO_K * DEMO_HIDDEN, SY_BF16, 3, v->slots_shape);
    bool same =
        sy_all_to_all_combine(demo->ctx, demo->comm,
                              &(sy_all_to_all_combine_args){
                                  .input = v->rows, .routing = demo->routing, .output = out}) == SY_OK;
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
    struct views v;
    set_views(&v, demo, demo->hidden, demo->travelled);
    const sy_all_to_all_dispatch_args args = {.input = v.tokens,
                                              .expert_indices = v.indices,
                                              .expert_mapping = &v.hosts,
                                              .layout = SY_LAYOUT_EXPERT,
                                              .routing = demo->routing,
                                              .tokens = v.rows,
                                              .rows_to = v.traffic};
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
               good && round_trip(demo, &v));
}

/* ---- all_to_all_combine -------------------------------------------------------------------------------- */

void demo_combine(struct demo *demo)
{
    uint16_t *const sums = demo_take(demo, DEMO_TOKENS, row_bytes);
    if (demo->no_memory)
        return;
    struct views v;
    set_views(&v, demo, sums, demo->answers);
    const sy_all_to_all_combine_args args = {
        .input = v.rows, .weights = v.weights, .sum = true, .routing = demo->routing, .output = v.tokens};
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
