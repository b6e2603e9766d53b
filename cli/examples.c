/*
 * A small worked example of every operator, as text: NAME TYPE EXTENTS: VALUES; and so on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops.h"

static const struct op_example examples[] = {
    {"moe_route", "--k 2 --renormalize", "three tokens, four experts, two experts per token",
     "logits F32 3,4: 2 1 0 -1 1 1 1 1 0 .5 3 2.5;"},
    {"moe_map_from_ids", "--num-experts 4", "three tokens with two of four experts each",
     "ids I32 3,2: 2 0 1 2 3 0; "
     "weights F32 3,2: .75 .25 .5 .5 .625 .375;"},
    {"moe_ids_from_map", "--k 2", "three tokens, four experts, at most two experts per token",
     "routing_map BOOL 3,4: 1 0 1 0 0 1 0 0 0 0 1 1;"},
    {"moe_permute", "--num-out-tokens 8", "four tokens, three experts, two experts per token",
     "tokens F32 4,2: 10 11 20 21 30 31 40 41; "
     "routing_map BOOL 4,3: 1 0 1 0 1 1 1 1 0 1 0 1; "
     "probs F32 4,3: .5 0 .5 0 .25 .75 .125 .875 0 .625 0 .375;"},
    {"moe_permute_ids", "--num-experts 3", "three tokens with two of three experts each",
     "tokens F32 3,2: 10 11 20 21 30 31; "
     "ids I32 3,2: 2 0 1 2 0 2; "
     "probs F32 3,2: .75 .25 .5 .5 .625 .375;"},
    {"moe_unpermute_ids", "", "the rows of moe_permute_ids' example, untouched by experts",
     "permuted_tokens F32 6,2: 10 11 30 31 20 21 10 11 20 21 30 31; "
     "sorted_indices I32 6: 3 0 2 4 1 5; "
     "probs F32 3,2: .75 .25 .5 .5 .625 .375;"},
    {"moe_align_block", "--num-experts 4 --block-size 2", "three tokens with two of four experts each",
     "ids I32 3,2: 2 0 1 2 0 2;"},
    {"moe_pad_map", "--alignment 4", "five tokens, three experts, one of them without tokens",
     "routing_map BOOL 5,3: 1 0 0 1 0 1 1 0 0 0 0 1 0 0 0;"},
    {"moe_reorder_chunks", "", "seven rows from two ranks for three experts",
     "rows F32 7,2: 0 1 10 11 20 21 30 31 40 41 50 51 60 61; "
     "counts I32 2,3: 2 0 1 1 2 1;"},
    {"moe_convert_indices", "--from slot --to te --num-tokens 4",
     "the indices of moe_permute's example: four tokens, three experts, eight rows",
     "sorted_indices I32 8: 0 5 3 6 1 4 2 7; "
     "expert_offsets I64 4: 0 3 5 8;"},
    {"moe_unpermute", "", "eight rows of three experts back to four tokens",
     "permuted_tokens F32 8,2: 1 1 2 -1 3 -3 4 -5 5 -7 6 -9 7 -11 8 -13; "
     "sorted_indices I32 8: 0 5 3 6 1 4 2 7; "
     "routing_map BOOL 4,3: 1 0 1 0 1 1 1 1 0 1 0 1; "
     "probs F32 4,3: .5 0 .5 0 .25 .75 .125 .875 0 .625 0 .375;"},
    {"moe_permute_grad", "--num-experts 3 --num-tokens 4", "eight rows of three experts, four tokens",
     "grad_permuted_tokens F32 8,2: 1 1 2 -1 3 -3 4 -5 5 -7 6 -9 7 -11 8 -13; "
     "sorted_indices I32 8: 0 5 3 6 1 4 2 7; "
     "grad_permuted_probs F32 8: 1 2 3 4 5 6 7 8; "
     "routing_map BOOL 4,3: 1 0 1 0 1 1 1 1 0 1 0 1;"},
    {"moe_unpermute_grad", "", "four tokens, eight rows of three experts",
     "grad_tokens F32 4,2: 1 0 0 1 1 1 2 -1; "
     "sorted_indices I32 8: 0 5 3 6 1 4 2 7; "
     "permuted_tokens F32 8,2: 1 1 2 -1 3 -3 4 -5 5 -7 6 -9 7 -11 8 -13; "
     "routing_map BOOL 4,3: 1 0 1 0 1 1 1 1 0 1 0 1; "
     "probs F32 4,3: .5 0 .5 0 .25 .75 .125 .875 0 .625 0 .375;"},
    {"moe_dispatch", "--capacity 3 --num-experts 2", "four samples into two experts of three slots",
     "gates F32 4: .5 2 1 -1; "
     "indices I32 4: 1 0 1 0; "
     "locations I32 4: 0 0 1 2; "
     "input F32 4,2: 1 2 3 4 5 6 7 8;"},
    {"moe_combine", "--capacity 2 --num-experts 3",
     "five tokens, three experts of two slots, two experts per token",
     "gates F32 2,5: .5 .75 .25 .5 1 .5 .25 .75 .5 0; "
     "indices I32 2,5: 0 0 2 1 0 1 2 1 0 1; "
     "locations I32 2,5: 0 1 0 0 2 1 1 2 3 3; "
     "expert_out F32 6,1: 10 20 30 40 50 60;"},
    {"moe_dispatch_grad_gate", "--capacity 2 --num-experts 1", "five samples in two slots of one expert",
     "indices I32 5: 0 0 0 0 0; "
     "locations I32 5: 1 1 0 1 -1; "
     "input F32 5,2: 1 2 3 4 5 6 8 10 7 7; "
     "dispatch F32 2,2: 1 -1 2 .5;"},
    {"moe_locations", "--num-experts 3", "five tokens, three experts, two experts per token",
     "indices I32 2,5: 0 0 2 1 0 1 2 1 0 1;"},
    {"moe_capacity", "--samples 5 --num-experts 3 --k 2 --factor -1",
     "five tokens, three experts, two experts per token", "counts I64 3: 4 4 2;"},
    {"sample", "--top-k 4 --top-p 0.75 --seed 7 --list", "two rows of six logits",
     "logits F32 2,6: 0 1 2 3 2.5 -1 4 4 4 4 1 1;"},
    {"sample_overrides", "--repetition-penalty 2 --frequency-penalty 0.5",
     "one row of six logits, a prompt of two tokens, an output of three",
     "logits F32 1,6: 0 1 2 3 2.5 -1; "
     "prompt_indptr I64 2: 0 2; "
     "prompt_token I32 2: 5 3; "
     "output_indptr I64 2: 0 3; "
     "output_token I32 3: 3 4 3;"},
    {"sample_noise", "--n 8 --seed 1 --offset 5 --stream 2", "no tensor at all, noise for eight tokens", ""},
    {"kv_gather", "--block-size 2", "six cache rows in blocks of two, three tokens asked for",
     "cache F32 6,4: 0 1 2 3 10 11 12 13 20 21 22 23 30 31 32 33 40 41 42 43 50 51 52 53; "
     "indices I32 3: 0 4 3; "
     "block_table I32 3: 0 2 1;"},
    {"kv_translate", "--block-size 2 --pad skip",
     "two sequences in blocks of two, three tokens asked of each, one of them none",
     "indices I32 2,3: 4 0 -1 2 1 -1; "
     "block_table I32 2,3: 4 1 3 5 0 -1;"},
    {"kv_slots", "--block-size 2", "two new tokens of each of two sequences, in blocks of two",
     "batch I32 4: 0 0 1 1; "
     "position I32 4: 2 3 0 1; "
     "block_table I32 2,2: 2 0 1 -1;"},
    {"kv_scatter", "--pad skip", "four rows into a cache of six, one of them dropped",
     "cache F32 6,2: 0 0 0 0 0 0 0 0 0 0 0 0; "
     "src F32 4,2: 1 2 3 4 5 6 7 8; "
     "slots I32 4: 5 -1 0 2;"},
    {"kv_ragged", "--block-size 2", "three tokens of one sequence and two of another, in blocks of two",
     "cache F32 8,1: 0 10 20 30 40 50 60 70; "
     "block_table I32 2,2: 3 1 0 2; "
     "starts I32 2: 1 0; "
     "cu_lens I32 3: 0 3 5;"},
    {"kv_blocks", "", "one of four blocks copied over two others",
     "cache F32 4,1,2: 0 1 10 11 20 21 30 31; "
     "pairs I32 2,2: 0 1 0 3;"},
    {"all_to_all_dispatch", "--mesh 1x2", "two devices with two tokens and two of four experts each",
     "input F32 2,1,1,2,2: 11 -11 12 -12 21 -21 22 -22; "
     "expert_indices U16 2,1,1,2,2: 0 2 1 0 3 2 2 0; "
     "expert_mapping U16 4,2: 1 0 1 0 0 1 0 1;"},
    {"all_to_all_combine", "--mesh 1x2",
     "what the experts of all_to_all_dispatch's example made of its tokens",
     "input F32 2,2,2,2,2: 11 -11 12 -12 0 0 22 -22 0 0 24 -24 0 0 0 0 33 -33 0 0 63 -63 66 -66 0 0 0 0 84 "
     "-84 0 0; "
     "expert_metadata U16 2,1,2,2,2: 0 2 1 0 3 2 2 0 0 2 1 0 3 2 2 0; "
     "expert_mapping U16 4,2: 1 0 1 0 0 1 0 1;"},
    {"local_reduce", "", "two experts of device 0, of four; the third token chose none of them",
     "input F32 2,4,1: 11 12 -1 22 -1 24 -1 -1; "
     "expert_metadata U16 4,2: 0 2 1 0 3 2 2 0; "
     "expert_mapping U16 4,2: 1 0 1 0 0 1 0 1;"},
};

const struct op_example *op_example_of(const char *name)
{
    static const struct op_example none = {"", "", "", ""};
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
        if (strcmp(examples[i].op, name) == 0)
            return &examples[i];
    return &none;
}

/* One value, as the element i of a tensor. */
static void store(const DLTensor *to, int64_t i, double value)
{
    char *const at = (char *)to->data + (size_t)i * st_type_bytes(to->dtype);
    const float f32 = (float)value;
    const int64_t integer = (int64_t)value; /* little-endian: the first bytes are those of a narrower one */
    if (to->dtype.code == 2)
        memcpy(at, &f32, sizeof f32);
    else
        memcpy(at, &integer, st_type_bytes(to->dtype));
}

bool op_example_tensors(const struct op_example *example, struct op_outputs *outputs)
{
    for (const char *text = example->tensors; *text != '\0';) {
        char name[32], type_name[16], *end;
        int used = 0, rank = 0;
        int64_t shape[SY_MAX_RANK], n = 1;
        DLDataType type = SY_F32;
        sscanf(text, " %31s %15s %n", name, type_name, &used);
        st_type_from_name(type_name, &type);
        for (text += used - 1; *text != ':'; text = end) { /* each number follows a space or a comma */
            n *= shape[rank] = strtoll(text + 1, &end, 10);
            rank++;
        }
        const DLTensor *const tensor = op_output(outputs, name, type, rank, shape);
        if (!tensor)
            return false;
        text++;
        for (int64_t i = 0; i < n; i++, text = end)
            store(tensor, i, strtod(text, &end));
        text += strspn(text, " ;");
    }
    return true;
}
