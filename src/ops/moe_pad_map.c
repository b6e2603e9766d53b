/*
 * moe_pad_map: check and plan.
 */
#include "ops/call.h"

enum { MAP, PADDED, COUNTS, N_TENSORS };

#define OPERATOR moe_pad_map

static const sy_field_info fields[] = {
    [MAP] = SYI_INPUT(routing_map, SYI_BYTE_TYPES, 0, 2, 2, "T E", "not 0: token t goes to expert e"),
    [PADDED] = SYI_OUTPUT(padded_map, 0, MAP + 1, 2, 2, "T E", "routing_map with the added tokens",
                          .alias = MAP + 1),
    [COUNTS] =
        SYI_OPTIONAL_OUTPUT(expert_counts, SYI_I64, 0, 1, 1, "E", "tokens of each expert, padding included"),
    SYI_SCALAR(alignment, I64, SY_FIELD_REQUIRED, .range = "1..",
               .help = "every expert gets a multiple of this many tokens"),
};

static sy_status check_values(struct syi_call *call)
{
    SYI_TRY(syi_check_scalars(call, N_TENSORS, N_TENSORS + 1));
    SYI_TRY(syi_check_count(call, "routing_map", "tokens", syi_bound(call, 'T')));
    return syi_check_count(call, "routing_map", "experts", syi_bound(call, 'E'));
}

static void plan(struct syi_call *call)
{
    struct syi_moe_pad_map_plan *p = syi_bind_plan(call, "TE");
    call->rows = p->n_tokens;
}

static const struct syi_steps own = {.values = check_values, .plan = plan};

SYI_DEFINE_PLANNED(moe_pad_map, MOE_PAD_MAP,
                   "route further tokens so that every expert has a multiple of alignment", counts, 0)
