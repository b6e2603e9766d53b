/*
 * Room for the argument struct of any operator, with a short name for each.
 */
#ifndef SWITCHYARD_TESTS_CALL_ARGS_H
#define SWITCHYARD_TESTS_CALL_ARGS_H

#include <switchyard_describe.h>

union test_args {
    sy_all_to_all_combine_args a2a_combine;
    sy_all_to_all_dispatch_args a2a_dispatch;
    sy_kv_blocks_args blocks;
    sy_kv_gather_args gather;
    sy_kv_ragged_args ragged;
    sy_kv_scatter_args scatter;
    sy_kv_slots_args slots;
    sy_kv_translate_args translate;
    sy_local_reduce_args local_reduce;
    sy_moe_align_block_args align_block;
    sy_moe_capacity_args capacity;
    sy_moe_combine_args combine;
    sy_moe_convert_indices_args convert_indices;
    sy_moe_dispatch_args dispatch;
    sy_moe_dispatch_grad_gate_args grad_gate;
    sy_moe_ids_from_map_args ids_from_map;
    sy_moe_locations_args locations;
    sy_moe_map_from_ids_args map_from_ids;
    sy_moe_map_physical_args map_physical;
    sy_moe_pad_map_args pad_map;
    sy_moe_permute_args permute;
    sy_moe_place_args place;
    sy_moe_permute_grad_args permute_grad;
    sy_moe_permute_ids_args permute_ids;
    sy_moe_reorder_chunks_args reorder_chunks;
    sy_moe_route_args route;
    sy_moe_unpermute_args unpermute;
    sy_moe_unpermute_grad_args unpermute_grad;
    sy_moe_unpermute_ids_args unpermute_ids;
    sy_quantize_rows_args quantize;
    sy_dequantize_rows_args dequantize;
    sy_sample_args sample;
    sy_sample_noise_args noise;
    sy_sample_overrides_args overrides;
    sy_sample_verify_args verify;
};

#endif
