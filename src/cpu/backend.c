/*
 * One row per operator, and loads and stores of values whose type is known only at run time.
 */
#include "cpu/backend.h"

const struct syi_backend syi_cpu_backend = {
    .name = "cpu",
    .op =
        {
            [SYI_MOE_ROUTE] = {syi_cpu_moe_route_workspace, syi_cpu_moe_route},
            [SYI_MOE_MAP_FROM_IDS] = {syi_cpu_moe_map_from_ids_workspace, syi_cpu_moe_map_from_ids},
            [SYI_MOE_IDS_FROM_MAP] = {syi_cpu_moe_ids_from_map_workspace, syi_cpu_moe_ids_from_map},
            [SYI_MOE_PERMUTE] = {syi_cpu_moe_permute_workspace, syi_cpu_moe_permute},
            [SYI_MOE_UNPERMUTE] = {syi_cpu_moe_unpermute_workspace, syi_cpu_moe_unpermute},
            [SYI_MOE_PERMUTE_GRAD] = {syi_cpu_moe_permute_grad_workspace, syi_cpu_moe_permute_grad},
            [SYI_MOE_PERMUTE_IDS] = {syi_cpu_moe_permute_ids_workspace, syi_cpu_moe_permute_ids},
            [SYI_MOE_UNPERMUTE_IDS] = {syi_cpu_moe_unpermute_ids_workspace, syi_cpu_moe_unpermute_ids},
            [SYI_MOE_ALIGN_BLOCK] = {syi_cpu_moe_align_block_workspace, syi_cpu_moe_align_block},
            [SYI_MOE_PAD_MAP] = {syi_cpu_moe_pad_map_workspace, syi_cpu_moe_pad_map},
            [SYI_MOE_REORDER_CHUNKS] = {syi_cpu_moe_reorder_chunks_workspace, syi_cpu_moe_reorder_chunks},
            [SYI_MOE_CONVERT_INDICES] = {syi_cpu_moe_convert_indices_workspace, syi_cpu_moe_convert_indices},
            [SYI_MOE_UNPERMUTE_GRAD] = {syi_cpu_moe_unpermute_grad_workspace, syi_cpu_moe_unpermute_grad},
            [SYI_MOE_DISPATCH] = {syi_cpu_moe_dispatch_workspace, syi_cpu_moe_dispatch},
            [SYI_MOE_COMBINE] = {syi_cpu_moe_combine_workspace, syi_cpu_moe_combine},
            [SYI_MOE_DISPATCH_GRAD_GATE] = {syi_cpu_moe_dispatch_grad_gate_workspace,
                                            syi_cpu_moe_dispatch_grad_gate},
            [SYI_MOE_LOCATIONS] = {syi_cpu_moe_locations_workspace, syi_cpu_moe_locations},
            [SYI_MOE_CAPACITY] = {syi_cpu_moe_capacity_workspace, syi_cpu_moe_capacity},
            [SYI_KV_GATHER] = {syi_cpu_kv_gather_workspace, syi_cpu_kv_gather},
            [SYI_KV_TRANSLATE] = {syi_cpu_kv_translate_workspace, syi_cpu_kv_translate},
            [SYI_KV_SLOTS] = {syi_cpu_kv_slots_workspace, syi_cpu_kv_slots},
            [SYI_KV_SCATTER] = {syi_cpu_kv_scatter_workspace, syi_cpu_kv_scatter},
            [SYI_KV_RAGGED] = {syi_cpu_kv_ragged_workspace, syi_cpu_kv_ragged},
            [SYI_KV_BLOCKS] = {syi_cpu_kv_blocks_workspace, syi_cpu_kv_blocks},
            [SYI_SAMPLE] = {syi_cpu_sample_workspace, syi_cpu_sample},
            [SYI_SAMPLE_OVERRIDES] = {syi_cpu_sample_overrides_workspace, syi_cpu_sample_overrides},
            [SYI_SAMPLE_NOISE] = {syi_cpu_sample_noise_workspace, syi_cpu_sample_noise},
            [SYI_LOCAL_REDUCE] = {syi_cpu_local_reduce_workspace, syi_cpu_local_reduce},
        },
};

int64_t syi_load_int(const unsigned char *p, enum syi_type type)
{
    if (type == SYI_I64 || type == SYI_U64) {
        int64_t value;
        memcpy(&value, p, sizeof value);
        return value;
    }
    const int32_t value = syi_load_i32(p, 0);
    return type == SYI_U32 ? (int64_t)(uint32_t)value : value;
}

float syi_load_float(const unsigned char *p, enum syi_type type)
{
    if (type == SYI_F32) {
        float value;
        memcpy(&value, p, sizeof value);
        return value;
    }
    uint16_t bits;
    memcpy(&bits, p, sizeof bits);
    return type == SYI_F16 ? syi_f16_to_f32(bits) : syi_bf16_to_f32(bits);
}

void syi_store_float(unsigned char *p, enum syi_type type, float value)
{
    if (type == SYI_F32) {
        memcpy(p, &value, sizeof value);
        return;
    }
    const uint16_t bits = type == SYI_F16 ? syi_f32_to_f16(value) : syi_f32_to_bf16(value);
    memcpy(p, &bits, sizeof bits);
}

int64_t syi_column_int(const struct syi_column *column, int64_t row)
{
    return syi_load_int(syi_row(column->rows, row), column->type);
}

float syi_column_float(const struct syi_column *column, int64_t row)
{
    return syi_load_float(syi_row(column->rows, row), column->type);
}
