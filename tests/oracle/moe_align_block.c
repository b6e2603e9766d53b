/*
 * Whatever has not been appended when all experts are done is filler.
 */
#include "oracle/moe_align_block.h"

static sy_fault validate(const struct align_case *in)
{
    for (int64_t i = 0; i < in->tokens * in->slots; i++) {
        const int64_t id = in->ids[i];
        const bool expert = id >= 0 && id < in->experts, missing = id == -1 || id == in->experts;
        if (!expert && !(in->allow_missing && missing))
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "ids", i / in->slots, i % in->slots,
                              id,           in->experts};
    }
    for (int64_t e = 0; in->map && e < in->experts; e++)
        if (in->map[e] < -1)
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "expert_map", -1, e, in->map[e], -1};
    return (sy_fault){.status = SY_OK, .argument = ""};
}

sy_fault oracle_moe_align_block(const struct align_case *in, struct align_result *out)
{
    const sy_fault fault = validate(in);
    const int32_t none = (int32_t)(in->tokens * in->slots);
    int64_t n = 0, blocks = 0;
    for (int64_t e = 0; e < in->experts && fault.status == SY_OK; e++) {
        out->offsets[e] = n;
        for (int64_t i = 0; i < in->tokens * in->slots; i++)
            if (in->ids[i] == e && !(in->skip_unmapped && in->map[e] == -1))
                out->sorted[n++] = (int32_t)i;
        out->counts[e] = n - out->offsets[e];
        while (n % in->block)
            out->sorted[n++] = none;
        while (blocks * in->block < n)
            out->block_experts[blocks++] = in->map ? in->map[e] : (int32_t)e;
    }
    out->offsets[in->experts] = n;
    out->padded = (int32_t)n;
    while (n < in->places)
        out->sorted[n++] = none;
    while (blocks < in->blocks)
        out->block_experts[blocks++] = -1;
    return fault;
}
