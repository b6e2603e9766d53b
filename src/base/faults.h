/*
 * Everything that can be wrong with the contents of tensors. A backend records what it found as numbers, which a single
 * thread of a device can do; src/ops/faults.c makes the sentence and the sy_fault of them. So all backends report a
 * fault in the same words.
 */
#pragma once

#include "base/floats.h"

/*
 * X(name, status, code, argument, text). In the text {batch}, {position}, {value}, {limit}, {extra} are the values of
 * the record, {value+1} and {limit-1} those next to them, {code} is the name of the code. Argument NULL: the name of
 * field `field` of the operator.
 */
#define SYI_CONTENT_FAULTS(X) \
    /* Routing maps, ids and permutations */ \
    X(MAP_OVERFULL, ROUTING, ROW_OVERFULL, "routing_map", \
      "routes token {position} to {value} experts, want at most {limit} (num_out_tokens / tokens)") \
    X(MAP_OVER_K, ROUTING, ROW_OVERFULL, "routing_map", \
      "routes token {position} to {value} experts, want at most k = {limit}") \
    X(MAP_SLOTS, ROUTING, SLOT_COUNT, "routing_map", \
      "routes token {position} to {value} experts, want {limit}, its live slots") \
    X(MAP_SHORT, ROUTING, LENGTH_RANGE, "routing_map", \
      "routes {value} of {limit} tokens to expert {position}, want at least {extra} tokens") \
    X(ID_RANGE, INDEX, INDEX_RANGE, "ids", \
      "at token {batch}, slot {position} is {value}, want 0 or more and below {limit}") \
    X(ID_TWICE, ROUTING, DUPLICATE, "ids", \
      "at token {batch}, slot {position} is {value}, as slot {limit} is, want distinct experts") \
    X(GIVEN_ROW, INDEX, INDEX_RANGE, "ids_rows", \
      "at token {batch} is {value}, want 0 or more and below {limit}, the rows of ids_in") \
    X(GIVEN_ID, INDEX, INDEX_RANGE, "ids_in", \
      "at token {batch}, slot {position} is {value}, want 0 or more and below {limit}") \
    X(GIVEN_TWICE, ROUTING, DUPLICATE, "ids_in", \
      "at token {batch}, slot {position} is {value}, as slot {limit} is, want distinct experts") \
    X(GLOBAL_SCALE, INDEX, INDEX_RANGE, "global_scale", \
      "at {batch} is negative, zero or not finite, want a positive number") \
    X(KV_GLOBAL_SCALE, INDEX, INDEX_RANGE, "global_scale", \
      "of plane {position} is negative, zero or not finite, want a positive number") \
    X(EXPERT_MAP, INDEX, INDEX_RANGE, "expert_map", "at expert {position} is {value}, want -1 or more") \
    X(SORTED_RANGE, ROUTING, SLOT_RANGE, "sorted_indices", \
      "has {value} at {position}, want -1 to {limit-1}") \
    X(BIAS_RANGE, ROUTING, INDEX_RANGE, "bias_ids", \
      "has {value} at token {batch}, slot {position}, want -1 to {limit-1}") \
    X(SORTED_TOKEN, ROUTING, SLOT_RANGE, "sorted_indices", "has {value} at {position}, want 0 to {limit-1}") \
    X(SORTED_TWICE, ROUTING, DUPLICATE, "sorted_indices", \
      "has row {value} at {position}, as it has at {limit}, want distinct rows") \
    X(TE_RANGE, ROUTING, SLOT_RANGE, "sorted_indices", \
      "has {value} at token {batch}, column {position}, want 0 to {limit-1}") \
    X(TE_TWICE, ROUTING, DUPLICATE, "sorted_indices", \
      "has row {value} at token {batch}, column {position}, as token {limit} has it, want distinct rows") \
    X(ROWS_OVER_K, ROUTING, ROW_OVERFULL, "sorted_indices", \
      "gives token {position} {value} rows, want at most k = {limit}") \
    X(ROWS_OVER_EXPERTS, ROUTING, ROW_OVERFULL, "sorted_indices", \
      "gives token {position} {value} rows, want at most E = {limit}") \
    X(OFFSETS_LOW, INDEX, LENGTH_RANGE, "expert_offsets", \
      "has {value} at {position}, want {limit} to {extra}") \
    X(OFFSETS_HIGH, INDEX, LENGTH_RANGE, "expert_offsets", \
      "has {value} at {position}, want {extra} to {limit}") \
    X(OFFSETS_END, ROUTING, SLOT_RANGE, "expert_offsets", \
      "end at row {value}, but row {limit-1} belongs to token {extra}, want its expert") \
    X(COUNT_NEGATIVE, INDEX, LENGTH_RANGE, "counts", "is {value} for expert {position}, want 0 or more") \
    X(COUNT_LEFT, INDEX, LENGTH_RANGE, "counts", \
      "at rank {batch}, expert {position} is {value}, want 0 to {limit}, the rows that are left") \
    X(REPLICA_ENTRY, INDEX, INDEX_RANGE, "logical_to_physical", \
      "at expert {batch}, replica {position} is {value}, want 0 or more and below {limit}") \
    X(REPLICA_COUNT, INDEX, LENGTH_RANGE, "replica_count", \
      "is {value} for expert {position}, which is named, want 1 to {limit}") \
    X(REPLICA_NONE, INDEX, LENGTH_RANGE, "logical_to_physical", \
      "has no replica of expert {position}, which is named, want 1 to {limit}") \
    X(BEFORE_NEGATIVE, INDEX, LENGTH_RANGE, "counts_before", \
      "is {value} for expert {position}, want 0 or more") \
    X(LOAD_NEGATIVE, INDEX, LENGTH_RANGE, "loads", \
      "at layer {batch}, expert {position} is {value}, want 0 or more") \
    X(LOAD_SUM, OVERFLOW, OVERFLOW, "loads", \
      "of layer {batch} add up to {value} or more, want less than 2^38") \
    X(PREVIOUS_EXPERT, INDEX, INDEX_RANGE, "previous", \
      "at layer {batch}, place {position} is {value}, want 0 or more and below {limit}") \
    X(PLACE_REPLICAS, CAPACITY, NONE, "logical_to_physical", \
      "has {value} replicas of an expert, want {limit}, those of expert {position} in layer {batch}") \
    X(CAPACITY_ALIGNMENT, OVERFLOW, OVERFLOW, "alignment", \
      "is {value} for a capacity of {limit}, want a multiple below 2^63") \
    /* Lists of tokens */ \
    X(LIST_ENDS_LOW, INDEX, INDEX_RANGE, NULL, \
      "at position {position} is {value}, want {limit} to {extra} ({code})") \
    X(LIST_ENDS_HIGH, INDEX, INDEX_RANGE, NULL, \
      "at position {position} is {value}, want {extra} to {limit} ({code})") \
    X(LIST_ENDS_BACK, INDEX, INDEX_ORDER, NULL, \
      "at position {position} is {value}, want {limit} to {extra} ({code})") \
    X(LIST_TOKEN, INDEX, INDEX_RANGE, NULL, \
      "at row {batch}, position {position} is {value}, want 0 or more and below {limit} ({code})") \
    X(LIST_ORDER, INDEX, INDEX_ORDER, NULL, \
      "at row {batch}, position {position} is {value}, want more than {limit} before it ({code})") \
    X(GIVEN_TOKEN, INDEX, INDEX_RANGE, "given_token", \
      "at row {batch} is {value}, want -1 or more and below {limit} ({code})") \
    X(SCORE_TOKEN, INDEX, INDEX_RANGE, "score_token", \
      "at row {batch}, position {position} is {value}, want -1 or more and below {limit} ({code})") \
    X(LIST_ONLY, INDEX, INDEX_RANGE, NULL, \
      "at position {position} is {value}, want 0 or more and below {limit} ({code})") \
    X(LIST_EMPTY, INDEX, INDEX_ORDER, NULL, \
      "at position {position} is {value}, want more than {limit} before it: no sequence is empty ({code})") \
    X(DRAFT_ROWS_FIRST, INDEX, LENGTH_RANGE, "cu_lens", "at entry 0 is {value}, want 0 ({code})") \
    X(DRAFT_ROWS_BACK, INDEX, LENGTH_RANGE, "cu_lens", \
      "at entry {batch} is {value}, want {limit} or more: rows do not descend ({code})") \
    X(DRAFT_ROWS_HIGH, INDEX, LENGTH_RANGE, "cu_lens", \
      "at entry {batch} is {value}, want at most {limit}, the rows of logits ({code})") \
    X(DRAFT_ROWS_MOST, INDEX, LENGTH_RANGE, "cu_lens", \
      "gives request {batch} {value} rows, want at most {limit}, max_rows ({code})") \
    X(DRAFT_PARENT, INDEX, INDEX_RANGE, "parent", \
      "at request {batch}, row {position} is {value}, want 0 or more and below {limit} ({code})") \
    X(DRAFT_TOKEN, INDEX, INDEX_RANGE, "draft_token", \
      "at request {batch}, row {position} is {value}, want -1 or more and below {limit} ({code})") \
    /* Pages of a cache; P_ where a table is given as lists of pages */ \
    X(KV_INDPTR_BACK, INDEX, LENGTH_RANGE, "indptr", \
      "at entry {batch} is {value}, want {limit} or more: lists do not descend ({code})") \
    X(KV_INDPTR_HIGH, INDEX, LENGTH_RANGE, "indptr", \
      "at entry {batch} is {value}, want at most {limit}, the pages of page_indices ({code})") \
    X(KV_LAST_PAGE_LOW, INDEX, LENGTH_RANGE, "last_page_len", \
      "at batch {batch} is {value}, want at least {limit} ({code})") \
    X(KV_LAST_PAGE_HIGH, INDEX, LENGTH_RANGE, "last_page_len", \
      "at batch {batch} is {value}, want at most {limit} ({code})") \
    X(KV_COUNT, INDEX, LENGTH_RANGE, "counts", "at batch {batch} is {value}, want 0 to {limit} ({code})") \
    X(KV_COUNT_NEGATIVE, INDEX, LENGTH_RANGE, "counts", \
      "at batch {batch} is {value}, want 0 or more ({code})") \
    X(KV_LENGTH, INDEX, LENGTH_RANGE, "seq_lens", "at batch {batch} is {value}, want 0 or more ({code})") \
    X(KV_REQUEST, INDEX, REQ_RANGE, "req_id", \
      "at batch {batch} is {value}, want 0 or more and below {limit}, the rows of block_table ({code})") \
    X(KV_P_REQUEST, INDEX, REQ_RANGE, "req_id", \
      "at batch {batch} is {value}, want 0 or more and below {limit}, the lists of indptr ({code})") \
    X(KV_INDEX, INDEX, INDEX_RANGE, "indices", \
      "at batch {batch}, position {position} is {value}, want 0 or more and below {limit} ({code})") \
    X(KV_TABLE_SHORT, INDEX, TABLE_SHORT, "block_table", \
      "has {limit} columns, want at least {value+1} for batch {batch}, position {position} ({code})") \
    X(KV_P_TABLE_SHORT, INDEX, TABLE_SHORT, "page_indices", \
      "has {limit} pages there, want at least {value+1} for batch {batch}, position {position} ({code})") \
    X(KV_BLOCK, INDEX, BLOCK_RANGE, "block_table", \
      "gives block {value} for batch {batch}, position {position}, want 0 or more and below {limit} " \
      "({code})") \
    X(KV_P_BLOCK, INDEX, BLOCK_RANGE, "page_indices", \
      "gives block {value} for batch {batch}, position {position}, want 0 or more and below {limit} " \
      "({code})") \
    X(KV_ROW, INDEX, ROW_RANGE, "block_table", \
      "leads to cache row {value} for batch {batch}, position {position}, want below {limit} ({code})") \
    X(KV_P_ROW, INDEX, ROW_RANGE, "page_indices", \
      "leads to cache row {value} for batch {batch}, position {position}, want below {limit} ({code})") \
    /* The same for tokens that each have a table row of their own (kv_slots) */ \
    X(KV_OF_TOKEN_REQUEST, INDEX, REQ_RANGE, "batch", \
      "of token {position} is {value}, want 0 or more and below {limit}, the rows of block_table ({code})") \
    X(KV_OF_TOKEN_P_REQUEST, INDEX, REQ_RANGE, "batch", \
      "of token {position} is {value}, want 0 or more and below {limit}, the lists of indptr ({code})") \
    X(KV_OF_TOKEN_INDEX, INDEX, INDEX_RANGE, "position", \
      "of token {position} is {value}, want 0 or more and below {limit} ({code})") \
    X(KV_OF_TOKEN_BLOCK, INDEX, BLOCK_RANGE, "block_table", \
      "gives block {value} for token {position}, want 0 or more and below {limit} ({code})") \
    X(KV_OF_TOKEN_P_BLOCK, INDEX, BLOCK_RANGE, "page_indices", \
      "gives block {value} for token {position}, want 0 or more and below {limit} ({code})") \
    X(KV_OF_TOKEN_ROW, INDEX, ROW_RANGE, "block_table", \
      "leads to cache row {value} for token {position}, want below {limit} ({code})") \
    X(KV_OF_TOKEN_P_ROW, INDEX, ROW_RANGE, "page_indices", \
      "leads to cache row {value} for token {position}, want below {limit} ({code})") \
    /* Rows of scores (kv_select) */ \
    X(SELECT_START, INDEX, LENGTH_RANGE, "row_start", \
      "at batch {batch} is {value}, want 0 to {limit}, the columns of scores ({code})") \
    X(SELECT_LENGTH, INDEX, LENGTH_RANGE, "lengths", \
      "at batch {batch} is {value}, want 0 to {limit}, the columns of scores ({code})") \
    X(SELECT_OWN_LENGTH, INDEX, LENGTH_RANGE, "lengths", \
      "at batch {batch} is {value}, want 0 to {limit}, the tokens that {extra} columns of scores are of " \
      "({code})") \
    X(SELECT_K_LOW, INDEX, LENGTH_RANGE, "row_k", \
      "at batch {batch} is {value}, want {limit} to {extra} ({code})") \
    X(SELECT_K_HIGH, INDEX, LENGTH_RANGE, "row_k", \
      "at batch {batch} is {value}, want {extra} to {limit} ({code})") \
    X(SELECT_BASE, INDEX, LENGTH_RANGE, "index_base", \
      "at batch {batch} is {value}, want 0 to {limit}, which indices can hold ({code})") \
    X(SELECT_POSITION, INDEX, INDEX_RANGE, "position", \
      "at batch {batch}, column {position} is {value}, want -1 or more and below {limit} ({code})") \
    /* Dense rows, slots and blocks of a cache */ \
    X(KV_DENSE_FIRST, INDEX, LENGTH_RANGE, "cu_lens", "at entry 0 is {value}, want 0 ({code})") \
    X(KV_DENSE_BACK, INDEX, LENGTH_RANGE, "cu_lens", \
      "at entry {batch} is {value}, want {limit} or more: lengths do not descend ({code})") \
    X(KV_DENSE_HIGH, INDEX, LENGTH_RANGE, "cu_lens", \
      "at entry {batch} is {value}, want at most {limit}, the rows of out ({code})") \
    X(KV_STARTS_TOKEN, INDEX, INDEX_RANGE, "starts", \
      "leads to token {value} for batch {batch}, position {position}, want 0 or more and below {limit} " \
      "({code})") \
    X(KV_DENSE_TOKEN, INDEX, INDEX_RANGE, "cu_lens", \
      "leads to token {value} for batch {batch}, position {position}, want 0 or more and below {limit} " \
      "({code})") \
    X(KV_SLOT, INDEX, SLOT_RANGE, "slots", \
      "at position {position} is {value}, want 0 or more and below {limit}, the rows of cache ({code})") \
    X(KV_SLOT_OR_NONE, INDEX, SLOT_RANGE, "slots", \
      "at position {position} is {value}, want 0 or more and below {limit}, the rows of cache, or -1 for " \
      "none ({code})") \
    X(KV_SLOT_TWICE, INDEX, DUPLICATE, "slots", \
      "at position {position} is {value}, want a slot of its own: position {limit} has it ({code})") \
    X(KV_PAIR_READS, INDEX, BLOCK_RANGE, "pairs", \
      "at position {position} reads block {value}, want 0 or more and below {limit} ({code})") \
    X(KV_PAIR_WRITES, INDEX, BLOCK_RANGE, "pairs", \
      "at position {position} writes block {value}, want 0 or more and below {limit} ({code})") \
    X(KV_PAIR_TWICE, INDEX, DUPLICATE, "pairs", \
      "at position {position} writes block {value}, want a block of its own: position {limit} writes it " \
      "({code})") \
    X(KV_PAIR_HAZARD, INDEX, HAZARD, "pairs", \
      "at position {position} and {limit} read and write block {value}, want it only read or only written " \
      "({code})") \
    /* Devices of a mesh */ \
    X(MAPPING_ENTRY, ROUTING, BAD_VALUE, "expert_mapping", \
      "at expert {batch}, device {position} is {value}, want 0 or 1") \
    X(MAPPING_COPY, MISMATCH, BAD_VALUE, "expert_mapping", \
      "at expert {batch}, device {position} is {value} in copy {extra}, want {limit} as in copy 0") \
    X(MAPPING_TWO_HOLDERS, ROUTING, DUPLICATE, "expert_mapping", \
      "has expert {batch} on devices {limit} and {position} of one group, want one holder with " \
      "local_reduce") \
    X(CHOICE, INDEX, INDEX_RANGE, NULL, \
      "at token {batch}, slot {position} is {value}, want 0 or more and below {limit}, or -1 for none") \
    X(CHOICE_U16, INDEX, INDEX_RANGE, NULL, \
      "at token {batch}, slot {position} is {value}, want 0 or more and below {limit}, or 65535 for none") \
    X(CHOICE_TWICE, INDEX, DUPLICATE, NULL, \
      "at token {batch}, slot {position} is {value} as in slot {limit}, want an expert once with " \
      "strict_unique") \
    X(INPUT_EXPERTS, SHAPE, BAD_SHAPE, "input", \
      "has {value} experts, want {limit}, those of device {extra}") \
    X(EXPERT_ROWS, CAPACITY, NONE, "expert_rows", \
      "is {value}, want at least {limit}, the rows of expert {batch}") \
    X(TOKENS_SHORT, CAPACITY, NONE, "tokens", "has {value} rows, want at least {limit}") \
    X(INPUT_SHORT, CAPACITY, NONE, "input", "has {value} rows, want at least {limit}") \
    X(TABLES_DIFFER, MISMATCH, NONE, "devices", \
      "{limit} and {value} disagree about the table of choices, want the same everywhere") \
    X(ROUTING_EMPTY, STATE, NONE, "routing", "is empty, want one that a dispatch has filled") \
    X(INPUT_ROWS, CAPACITY, NONE, "input", "has {value} rows, want at least {limit} for these choices") \
    X(OUTPUT_ROWS, CAPACITY, NONE, "output", "has {value} rows, want at least {limit} for these choices")

#define SYI_BAD_NAME(name, status, code, argument, text) SYI_BAD_##name,
enum syi_bad { SYI_GOOD, SYI_CONTENT_FAULTS(SYI_BAD_NAME) SYI_N_BAD };
#undef SYI_BAD_NAME

/* The record. Numbers without a meaning are -1 (batch, position) or 0. */
struct syi_found {
    int32_t bad;   /* enum syi_bad; SYI_GOOD: nothing is wrong, and the rest is not set */
    int32_t field; /* of the operator's description, where the argument depends on the call */
    int64_t batch, position, value, limit;
    int64_t extra;  /* for the text only */
    int64_t device; /* of a mesh whose tensor it is, and one; 0: none */
};

SYI_BOTH static inline struct syi_found syi_bad_at(enum syi_bad bad, int64_t batch, int64_t position,
                                                   int64_t value, int64_t limit)
{
    return (struct syi_found){(int32_t)bad, 0, batch, position, value, limit, 0, 0};
}

/* What the sentence about tables that differ says of the call. */
struct syi_table_call {
    int64_t tokens, other_tokens; /* of the two devices */
    int64_t number, slots, row_bytes;
    int experts, axis;
};

/* It is in numbers of the record that this fault does not use otherwise. */
SYI_BOTH static inline struct syi_found syi_bad_tables(int device, int other, struct syi_table_call c)
{
    struct syi_found f =
        syi_bad_at(SYI_BAD_TABLES_DIFFER, c.other_tokens << 32 | c.tokens, c.number, device, other);
    f.extra = c.slots << 32 | (int64_t)c.experts << 2 | c.axis;
    f.device = c.row_bytes;
    return f;
}

SYI_BOTH static inline struct syi_table_call syi_call_of_tables(const struct syi_found *f)
{
    const struct syi_table_call c = {f->batch & INT32_MAX, f->batch >> 32, f->position,
                                     f->extra >> 32,       f->device,      (int)(f->extra & INT32_MAX) >> 2,
                                     (int)(f->extra & 3)};
    return c;
}

SYI_BOTH static inline struct syi_found syi_good(void)
{
    return (struct syi_found){.bad = SYI_GOOD};
}

/* The first of n records that is not good, or a good one. */
SYI_BOTH static inline struct syi_found syi_first_bad(const struct syi_found *found, int n)
{
    int i = 0;
    while (i < n && found[i].bad == SYI_GOOD)
        i++;
    return i < n ? found[i] : syi_good();
}
