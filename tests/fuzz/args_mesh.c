/*
 * Valid calls of the operators on meshes of devices, made from the bytes.
 */
#include "args.h"

#include <string.h>

/* The tensor added last in another shape of as many elements. */
static void reshape(struct call *c, int rank, const int64_t *shape)
{
    struct item *x = &c->items[c->count - 1];
    int64_t stride = 1;
    for (int d = rank - 1; d >= 0; d--) {
        x->shape[d] = shape[d];
        x->strides[d] = stride;
        stride *= shape[d];
    }
    x->t.ndim = rank;
}

/* [T,n], or by chance [1,Bt,St,n] */
static void add_tokens(struct call *c, bool full, const char *name, const DLTensor **field, DLDataType type,
                       int64_t batch, int64_t sequence, int64_t n)
{
    add(c, name, field, type, 2, batch * sequence, n, 0);
    if (full)
        reshape(c, 4, (int64_t[]){1, batch, sequence, n});
}

void make_local_reduce(struct call *c, struct reader *r)
{
    static const DLDataType floats[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}}, u16 = {1, 16, 1};
    static const DLDataType indices[] = {{1, 16, 1}, {0, 32, 1}, {0, 64, 1}};
    sy_local_reduce_args *a = &c->args.local_reduce;
    const int64_t batch = extent(r, 4), sequence = extent(r, 5), tokens = batch * sequence;
    const int64_t slots = 1 + extent(r, 4), experts = 1 + extent(r, 5), devices = 1 + pick(r, 3);
    const int64_t copies = pick(r, 2) ? devices : 1;
    int64_t hidden = 1 + extent(r, 9);
    DLDataType type = floats[pick(r, 3)];
    const struct coded coded = make_coded(c, r, &a->row_format, &type, &hidden);
    const bool full = pick(r, 2);
    a->device = pick(r, (int)devices);
    a->fill = (sy_fill)pick(r, 2);
    a->layout = pick(r, 2) ? SY_LAYOUT_EXPERT : SY_LAYOUT_PADDED;
    a->align = pick(r, 4);
    a->output_concat_dim = pick(r, 3);
    a->order = (sy_a2a_order)pick(r, 2);
    a->group_size = 1 + pick(r, 2);
    a->replica = (sy_a2a_replica)(pick(r, 2) ? 0 : pick(r, 6));
    a->node_size = pick(r, 3);
    a->group_stride = pick(r, 3);
    a->expert_rows =
        a->layout != SY_LAYOUT_EXPERT || pick(r, 2) ? 0 : (a->align > 0 ? a->align : 1) * pick(r, 5);
    const int64_t rows = a->layout == SY_LAYOUT_EXPERT ? extent(r, 60) : pick(r, 4);
    const bool longer = a->layout != SY_LAYOUT_EXPERT && pick(r, 2);
    for (int scales = 0; scales <= coded.on; scales++) {
        const int64_t n = scales ? coded.groups : hidden;
        const bool matrix = a->layout == SY_LAYOUT_EXPERT;
        add(c, scales ? "input_scales" : "input", scales ? &a->input_scales : &a->input,
            scales ? coded.scales : coded.codes, matrix ? 2 : 3, rows, matrix ? n : tokens, n);
        if (longer)
            reshape(c, 4, (int64_t[]){rows, batch, sequence, n});
    }
    add_tokens(c, full, "expert_metadata", &a->expert_metadata, indices[pick(r, 3)], batch, sequence, slots);
    add(c, "expert_mapping", &a->expert_mapping, u16, 2, copies * experts, devices, 0);
    if (copies > 1 || pick(r, 2))
        reshape(c, 4, (int64_t[]){copies, 1, experts, devices});
    if (pick(r, 2))
        add_tokens(c, pick(r, 2), "weights", &a->weights, floats[pick(r, 3)], batch, sequence, slots);
    add_tokens(c, a->layout == SY_LAYOUT_PADDED && pick(r, 2), "output", &a->output, type, batch, sequence,
               hidden);
    output(c);
}
