/*
 * all_to_all_dispatch and all_to_all_combine on a mesh of eight devices inside this process. A dispatch must write all its
 * rows, copied or filled; a combine must read every row it returns and write the results. Limits are a copy of the rows
 * that were sent and a fill of the others; for sums a copy that reads and writes as many bytes together. A format: a dispatch
 * makes codes of its rows, and the rows of a combine are codes. X: rows of every expert (expert_rows).
 */
#include "described.h"

#include <string.h>

#include "mesh_case.h"

enum { DEVICES = 8, N_QUICK = 3 };

static const char *const dispatches[] = {
    "bf16 D=8 N=128 E=256 K=8 H=7168 padded",
    "bf16 D=8 N=128 E=256 K=8 H=7168 packed",
    "bf16 D=8 N=128 E=256 K=8 H=7168 expert",
    "bf16 D=8 N=512 E=64 K=8 H=2048 expert",
    "bf16 D=8 N=8 E=256 K=8 H=7168 expert",
    "bf16 D=8 N=8 E=64 K=8 H=2048 expert",
    "bf16 D=8 N=128 E=256 K=8 H=7168 packed replicas",
    "bf16 D=8 N=128 E=256 K=8 H=7168 expert fp8_128",
    "bf16 D=8 N=128 E=256 K=8 H=7168 expert X=128",
    /* Quick. */
    "bf16 D=8 N=16 E=64 K=4 H=256 padded",
    "bf16 D=8 N=16 E=64 K=4 H=256 expert X=24",
    "bf16 D=8 N=16 E=64 K=4 H=256 padded mxfp8",
};
static const char *const combines[] = {
    "bf16 D=8 N=128 E=256 K=8 H=7168 slots",
    "bf16 D=8 N=128 E=256 K=8 H=7168 sum",
    "bf16 D=8 N=512 E=64 K=8 H=2048 sum",
    "bf16 D=8 N=512 E=64 K=8 H=2047 sum",
    "bf16 D=8 N=8 E=256 K=8 H=7168 sum",
    "bf16 D=8 N=8 E=64 K=8 H=2048 slots",
    "bf16 D=8 N=8 E=64 K=8 H=2048 sum",
    "bf16 D=8 N=128 E=256 K=8 H=7168 slots fp8_128",
    "bf16 D=8 N=128 E=256 K=8 H=7168 sum fp8_128",
    /* Quick. */
    "bf16 D=8 N=16 E=64 K=4 H=256 slots",
    "bf16 D=8 N=16 E=64 K=4 H=256 sum",
    "bf16 D=8 N=16 E=64 K=4 H=256 sum mxfp8",
};

/* Tensors hold the parts of all devices one after the other. */
struct block {
    sy_a2a_layout layout; /* of dispatch; combine takes EXPERT rows */
    bool sum;
    int64_t tokens, experts, k, hidden; /* tokens of each device */
    int64_t expert_rows;                /* 0: as many as there are */
    struct mesh_case mesh;
    int64_t first[DEVICES + 1]; /* rows on the experts' side before each device */
    sy_comm *comm;
    sy_routing *routing, *there;   /* of calls in CPU memory, and on a device */
    bool routed_there;             /* it is filled */
    const DLTensor *own, *remote;  /* [D*N,H] tokens; rows of the experts */
    const DLTensor *indices;       /* [D*N,K] */
    const DLTensor *slots;         /* combine without sum: [D*K*N,H] */
    const DLTensor *metadata;      /* [D*D*N,K] */
    const DLTensor *weights;       /* [D*N,K] */
    const DLTensor *counts, *ends; /* [D*E/D], [D*(E/D+1)] */
    const sy_row_format *coded;    /* NULL; or rows of the experts and of slots are codes */
    int64_t groups;
    const DLTensor *scales, *slot_scales; /* of them */
};

/* ---- Calls ---- */

/* Without a tensor there are none. */
static const DLTensor *split(struct mesh_parts *p, const DLTensor *x, int rank, const int64_t *shape)
{
    return mesh_parts(p, x, DEVICES, NULL, rank, shape);
}

/* Rows of the experts, like those of x, in this memory. NULL: there is no such tensor. */
static const DLTensor *split_away(struct mesh_parts *p, const struct block *b, const DLTensor *x, void *data)
{
    DLTensor away = x ? *x : (DLTensor){0};
    away.data = data;
    return mesh_parts(p, &away, DEVICES, b->first, 2, x ? x->shape : NULL);
}

static bool on_device(const struct block *b)
{
    return b->remote->device.device_type == kDLCUDA;
}

/* The mapping stays in CPU memory. scales NULL: rows move as they are. */
static sy_status dispatch_to(const struct bench_call *c, void *data, const DLTensor *scales)
{
    const struct block *const b = c->args;
    struct mesh_parts own, indices, remote, metadata, counts, ends, away;
    int64_t mapping_shape[] = {b->experts, DEVICES};
    const DLTensor mapping = sy_tensor(b->mesh.mapping, SY_U16, 2, mapping_shape);
    return sy_all_to_all_dispatch(
        c->ctx, b->comm,
        &(sy_all_to_all_dispatch_args){
            .input = split(&own, b->own, DIMS(b->tokens, b->hidden)),
            .expert_indices = split(&indices, b->indices, DIMS(b->tokens, b->k)),
            .expert_mapping = &mapping,
            .layout = b->layout,
            .expert_rows = b->expert_rows,
            .replica = b->mesh.replicated ? SY_A2A_REPLICA_ROUND_ROBIN : SY_A2A_REPLICA_ALL,
            .routing = on_device(b) ? b->there : b->routing,
            .tokens = split_away(&remote, b, b->remote, data),
            .metadata = split(&metadata, b->metadata, DIMS(DEVICES * b->tokens, b->k)),
            .expert_counts = split(&counts, b->counts, DIMS(b->experts / DEVICES)),
            .expert_offsets = split(&ends, b->ends, DIMS(b->experts / DEVICES + 1)),
            .row_format = scales ? b->coded : NULL,
            .scale_tokens = split_away(&away, b, scales, scales ? scales->data : NULL),
        });
}

static sy_status call_dispatch(const struct bench_call *c)
{
    const struct block *const b = c->args;
    return dispatch_to(c, b->remote->data, b->scales);
}

/* The first combine on a device needs the routing of a dispatch there, whose rows nothing reads. */
static sy_status route_there(const struct bench_call *c)
{
    struct block *const b = c->args;
    const size_t bytes = bench_bytes(b->remote);
    void *rows = NULL;
    sy_status status = sy_device_alloc(c->ctx, bytes + (b->coded ? bench_bytes(b->scales) : 0), &rows);
    DLTensor scales = b->coded ? *b->scales : *b->remote;
    scales.data = (char *)rows + bytes;
    if (status == SY_OK)
        status = dispatch_to(c, rows, b->coded ? &scales : NULL);
    if (status == SY_OK)
        status = sy_ctx_sync(c->ctx);
    sy_device_free(c->ctx, rows);
    b->routed_there = status == SY_OK;
    return status;
}

static sy_status call_combine(const struct bench_call *c)
{
    const struct block *const b = c->args;
    struct mesh_parts remote, weights, out, scales, out_scales;
    const sy_status routed = on_device(b) && !b->routed_there ? route_there(c) : SY_OK;
    if (routed != SY_OK)
        return routed;
    return sy_all_to_all_combine(
        c->ctx, b->comm,
        &(sy_all_to_all_combine_args){
            .input = split_away(&remote, b, b->remote, b->remote->data),
            .weights = b->sum ? split(&weights, b->weights, DIMS(b->tokens, b->k)) : NULL,
            .sum = b->sum,
            .routing = on_device(b) ? b->there : b->routing,
            .output = b->sum ? split(&out, b->own, DIMS(b->tokens, b->hidden))
                             : split(&out, b->slots, DIMS(b->k, b->tokens, b->hidden)),
            .row_format = b->coded,
            .input_scales = split_away(&scales, b, b->scales, b->coded ? b->scales->data : NULL),
            .output_scales = split(&out_scales, b->slot_scales, DIMS(b->k, b->tokens, b->groups)),
        });
}

/* ---- The plain loops ---- */

/* The row of choice k of token t, among those of all devices. */
static int64_t row_of(const struct block *b, int64_t t, int64_t k)
{
    const int64_t at = t * b->k + k;
    return b->first[mesh_case_device(&b->mesh, b->mesh.indices[at])] + b->mesh.row[at];
}

/* Rows of all tokens to those of the experts. */
static void plain_dispatch(const struct bench_call *c)
{
    const struct block *const b = c->args;
    const struct bench_moved from = bench_moved(c, b->own, c->scratch);
    const int64_t all = DEVICES * b->tokens;
    if (b->expert_rows > 0) {
        memset(b->remote->data, 0, bench_bytes(b->remote));
        memset(b->coded ? b->scales->data : b->remote->data, 0, bench_bytes(b->scales));
    }
    for (int64_t t = 0; t < all && b->layout == SY_LAYOUT_EXPERT; t++)
        for (int64_t k = 0; k < b->k; k++)
            bench_move(&from, t, b->remote, b->scales, row_of(b, t, k));
    for (int d = 0; d < DEVICES && b->layout != SY_LAYOUT_EXPERT; d++) {
        int64_t next = b->first[d];
        for (int64_t t = 0; t < all; t++) {
            const bool hit = mesh_case_hits(&b->mesh, t, d);
            if (hit || b->layout == SY_LAYOUT_PADDED)
                bench_move(&from, hit ? t : -1, b->remote, b->scales, next);
            next += hit || b->layout == SY_LAYOUT_PADDED;
        }
    }
}

/* Number h of a row of the experts. */
static float number_of(const struct block *b, int64_t row, int64_t h)
{
    const int64_t at = row * b->hidden + h;
    return b->coded ? bench_decoded(b->coded, b->remote, b->scales, at)
                    : bf16_to_float(((const uint16_t *)b->remote->data)[at]);
}

/* The row of choice k of token t, from x, to its slot. */
static void bring_home(const struct block *b, const DLTensor *x, const DLTensor *slots, int64_t t, int64_t k)
{
    const size_t bytes = (size_t)x->shape[1] * (x->dtype.bits / 8);
    const int64_t to = (t / b->tokens * b->k + k) * b->tokens + t % b->tokens;
    memcpy((char *)slots->data + (size_t)to * bytes, (const char *)x->data + (size_t)row_of(b, t, k) * bytes,
           bytes);
}

static void plain_combine(const struct bench_call *c)
{
    const struct block *const b = c->args;
    uint16_t *const out = b->own->data;
    const float *const weights = b->weights->data;
    for (int64_t t = 0; t < DEVICES * b->tokens; t++) {
        for (int64_t k = 0; k < b->k && !b->sum; k++) {
            bring_home(b, b->remote, b->slots, t, k);
            if (b->coded)
                bring_home(b, b->scales, b->slot_scales, t, k);
        }
        for (int64_t h = 0; h < b->hidden && b->sum; h++) {
            float sum = 0;
            for (int64_t k = 0; k < b->k; k++)
                sum += weights[t * b->k + k] * number_of(b, row_of(b, t, k), h);
            out[t * b->hidden + h] = bf16_from_float(sum);
        }
    }
}

static const char *check_dispatch(const struct bench_call *c)
{
    const struct block *const b = c->args;
    const size_t table = bench_bytes(b->metadata) / DEVICES;
    for (size_t d = 0; d < DEVICES; d++)
        if (memcmp((const char *)b->metadata->data + d * table, b->mesh.indices, table) != 0)
            return "metadata is not what the tokens chose";
    if (b->coded && memcmp(bench_got(b->scales), bench_want(b->scales), bench_bytes(b->scales)) != 0)
        return "scales differ from the plain loop";
    return memcmp(bench_got(b->remote), bench_want(b->remote), bench_bytes(b->remote)) == 0
               ? NULL
               : "rows differ from the plain loop";
}

/* ---- Data ---- */

static BENCH_FILLER(fill_chosen)
{
    const struct block *const b = c->args;
    memcpy(x->data, b->mesh.indices, bench_bytes(x));
}

/* What both have. False after a fault. */
static bool make_mesh(struct bench_call *c)
{
    struct block *const b = c->args;
    b->layout = bench_says(c->shape, "padded")   ? SY_LAYOUT_PADDED
                : bench_says(c->shape, "packed") ? SY_LAYOUT_PACKED
                                                 : SY_LAYOUT_EXPERT;
    b->sum = bench_says(c->shape, "sum");
    b->tokens = bench_size(c, "N=");
    b->experts = bench_size(c, "E=");
    b->k = bench_size(c, "K=");
    b->hidden = bench_size(c, "H=");
    b->coded = c->format;
    b->groups = b->coded ? bench_groups(b->coded, b->hidden) : 0;
    if (!mesh_case_make(&b->mesh, DEVICES, b->tokens, b->experts, b->k, 70) ||
        sy_comm_create_local(&b->comm, (sy_mesh){1, DEVICES}, NULL) != SY_OK ||
        sy_routing_create(c->ctx, b->comm, &b->routing) != SY_OK ||
        sy_routing_create(c->ctx, b->comm, &b->there) != SY_OK)
        return bench_fault(c, "not enough memory");
    if (bench_says(c->shape, "replicas"))
        mesh_case_replicate(&b->mesh);
    b->expert_rows = bench_size(c, "X=");
    if (b->expert_rows > 0)
        mesh_case_space(&b->mesh, b->expert_rows);
    mesh_case_first(&b->mesh, b->layout, b->first);
    bench_in(c, &b->indices, SY_U16, DIMS(DEVICES * b->tokens, b->k), BENCH_ONCE, fill_chosen, 0);
    if (b->layout == SY_LAYOUT_EXPERT) {
        bench_in(c, &b->counts, SY_I64, DIMS(b->experts), BENCH_ONCE, NULL, 0);
        bench_in(c, &b->ends, SY_I64, DIMS(b->experts + DEVICES), BENCH_ONCE, NULL, 0);
    }
    return bench_in(c, &b->metadata, SY_U16, DIMS(DEVICES * (DEVICES * b->tokens), b->k), BENCH_ONCE, NULL,
                    0);
}

/* Rows that are copied, and rows that are filled. */
static void make_dispatch(struct bench_call *c)
{
    struct block *const b = c->args;
    if (!make_mesh(c))
        return;
    bench_in(c, &b->own, SY_BF16, DIMS(DEVICES * b->tokens, b->hidden), BENCH_COPIES,
             b->coded ? fill_normal : fill_numbers, b->coded ? 10 : 0);
    bench_room(c, &b->remote, b->coded ? SY_U8 : SY_BF16, DIMS(b->first[DEVICES], b->hidden), BENCH_COPIES);
    const size_t row = bench_moved_bytes(c, b->hidden), token = (size_t)b->hidden * sizeof(uint16_t);
    if (b->coded) {
        bench_room(c, &b->scales, bench_scale_type(b->coded), DIMS(b->first[DEVICES], b->groups),
                   BENCH_COPIES);
        bench_scratch(c, (size_t)(DEVICES * b->tokens) * row);
    }
    const int64_t copied = b->layout == SY_LAYOUT_PADDED ? mesh_case_sent(&b->mesh)
                           : b->expert_rows > 0          ? DEVICES * b->tokens * b->k
                                                         : b->first[DEVICES];
    c->limit.copy_bytes = (size_t)copied * row;
    if (b->coded || c->device.device_type == kDLCUDA) /* reads a token once, for all of its rows */
        c->limit.copy_bytes = ((size_t)copied * row + (size_t)(DEVICES * b->tokens) * token) / 2;
    c->limit.fill_bytes = (size_t)(b->first[DEVICES] - copied) * row;
}

/* A combine needs the routing of a dispatch. Its rows go where the combine's input is, and that is filled again. */
static void make_combine(struct bench_call *c)
{
    struct block *const b = c->args;
    if (!make_mesh(c))
        return;
    bench_room(c, &b->own, SY_BF16, DIMS(DEVICES * b->tokens, b->hidden), b->sum ? BENCH_COPIES : BENCH_ONCE);
    const DLDataType type = b->coded ? SY_U8 : SY_BF16;
    if (!b->sum)
        bench_room(c, &b->slots, type, DIMS(DEVICES * b->k * b->tokens, b->hidden), BENCH_COPIES);
    if (!b->sum && b->coded)
        bench_room(c, &b->slot_scales, bench_scale_type(b->coded),
                   DIMS(DEVICES * b->k * b->tokens, b->groups), BENCH_COPIES);
    bench_in(c, &b->weights, SY_F32, DIMS(DEVICES * b->tokens, b->k), BENCH_ONCE, fill_unit, 100);
    if (!bench_rows(c, &b->remote, &b->scales, b->first[DEVICES], b->hidden))
        return;
    if (call_dispatch(c) != SY_OK)
        bench_fault(c, sy_ctx_error(c->ctx));
    (b->coded ? fill_codes : fill_numbers)(c, b->remote, 0, 72);
    if (b->coded)
        fill_scales(c, b->scales, 0, 73);
    const size_t moved = bench_bytes(b->remote) + bench_bytes(b->scales) +
                         (b->sum ? bench_bytes(b->own) : bench_bytes(b->slots) + bench_bytes(b->slot_scales));
    c->limit.copy_bytes = moved / 2;
    c->bytes = (double)moved;
}

static void release(const struct bench_call *c)
{
    struct block *const b = c->args;
    sy_routing_destroy(b->routing);
    sy_routing_destroy(b->there);
    sy_comm_destroy(b->comm);
    mesh_case_free(&b->mesh);
}

BENCH_OP(all_to_all_dispatch, dispatches, N_QUICK, make_dispatch, .plain = plain_dispatch,
         .check = check_dispatch, .call = call_dispatch, .release = release);
BENCH_OP(all_to_all_combine, combines, N_QUICK, make_combine, .plain = plain_combine, .call = call_combine,
         .release = release);
