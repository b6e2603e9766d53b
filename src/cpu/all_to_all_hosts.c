/*
 * Which device hosts which expert, read once from the mapping [E,D] into tables for both directions.
 */
#include "cpu/all_to_all.h"

/* Eight bytes at a time, mixed so that every bit affects all following ones. */
static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0xd6e8feb86659fd93);
    return hash ^ hash >> 32;
}

uint64_t syi_a2a_hash(uint64_t seed, struct syi_rows rows, int64_t n, size_t row_bytes)
{
    uint64_t hash = mix(mix(seed, (uint64_t)n), (uint64_t)row_bytes);
    for (int64_t r = 0; r < n && row_bytes > 0; r++) {
        const unsigned char *row = syi_row_at(rows, r);
        size_t at = 0;
        uint64_t word;
        for (; row_bytes - at >= sizeof word; at += sizeof word) {
            memcpy(&word, row + at, sizeof word);
            hash = mix(hash, word);
        }
        if (at < row_bytes) {
            word = 0;
            memcpy(&word, row + at, row_bytes - at);
            hash = mix(hash, word);
        }
    }
    return mix(hash, 0);
}

uint64_t syi_a2a_hash_words(const int64_t *words, int n)
{
    const struct syi_rows rows = {(unsigned char *)(uintptr_t)words, 8 * (int64_t)n};
    return syi_a2a_hash(0, rows, 1, 8 * (size_t)n);
}

void syi_a2a_hosts_take(struct syi_arena *arena, struct syi_a2a_hosts *hosts, int64_t n_experts,
                        int n_devices)
{
    const size_t pairs = syi_size_mul((size_t)n_experts, (size_t)n_devices);
    hosts->n_experts = n_experts;
    hosts->n_devices = n_devices;
    hosts->owner = NULL;
    hosts->local = syi_take(arena, syi_size_mul(pairs, sizeof *hosts->local));
    hosts->n_local = syi_take(arena, syi_size_mul((size_t)n_devices, sizeof *hosts->n_local));
    hosts->first = syi_take(arena, syi_size_mul(syi_size_add((size_t)n_experts, 1), sizeof *hosts->first));
    hosts->holder = syi_take(arena, syi_size_mul(pairs, sizeof *hosts->holder));
}

static uint16_t entry(const unsigned char *row, int device)
{
    uint16_t value;
    memcpy(&value, row + 2 * (size_t)device, sizeof value);
    return value;
}

static sy_status reject_entry(sy_ctx *ctx, int64_t expert, int device, int64_t value)
{
    return syi_reject(ctx, SYI_BAD_MAPPING_ENTRY, expert, device, value, 1);
}

/* Further copies must equal the first; the first entry that does not is reported. One that is neither 0 nor 1 is
   reported as such. */
static sy_status validate_copies(sy_ctx *ctx, const struct syi_a2a_hosts *hosts, struct syi_rows mapping,
                                 int64_t n_copies)
{
    const size_t row_bytes = 2 * (size_t)hosts->n_devices;
    for (int64_t row = hosts->n_experts; row < n_copies * hosts->n_experts; row++) {
        const int64_t e = row % hosts->n_experts;
        const unsigned char *first = syi_row_at(mapping, e), *copy = syi_row_at(mapping, row);
        if (memcmp(first, copy, row_bytes) == 0)
            continue;
        int d = 0;
        for (int i = 0; i < hosts->n_devices; i++)
            if (entry(copy, i) > 1)
                return reject_entry(ctx, e, i, entry(copy, i));
        while (entry(first, d) == entry(copy, d))
            d++;
        struct syi_found found = syi_bad_at(SYI_BAD_MAPPING_COPY, e, d, entry(copy, d), entry(first, d));
        found.extra = row / hosts->n_experts;
        return syi_report(ctx, found);
    }
    return SY_OK;
}

/* The first entry from `device` on that is not zero; most are zero, so four are tested at a time. */
static int next_entry(const unsigned char *row, int device, int n_devices)
{
    enum { WORD = 4 }; /* entries */
    uint64_t word;
    for (; device + WORD <= n_devices; device += WORD) {
        memcpy(&word, row + 2 * (size_t)device, sizeof word);
        if (word != 0)
            break;
    }
    while (device < n_devices && entry(row, device) == 0)
        device++;
    return device;
}

sy_status syi_a2a_read_hosts(sy_ctx *ctx, struct syi_a2a_hosts *hosts, struct syi_rows mapping,
                             int64_t n_copies)
{
    const int64_t n_experts = hosts->n_experts;
    const int n_devices = hosts->n_devices;
    int64_t n_holders = 0;
    memset(hosts->n_local, 0, (size_t)n_devices * sizeof *hosts->n_local);
    memset(hosts->local, 0xff, (size_t)n_experts * (size_t)n_devices * sizeof *hosts->local); /* -1 */
    for (int64_t e = 0; e < n_experts; e++) {
        const unsigned char *row = syi_row_at(mapping, e);
        hosts->first[e] = n_holders;
        for (int d = next_entry(row, 0, n_devices); d < n_devices; d = next_entry(row, d + 1, n_devices)) {
            if (entry(row, d) != 1)
                return reject_entry(ctx, e, d, entry(row, d));
            hosts->local[d * n_experts + e] = hosts->n_local[d]++;
            hosts->holder[n_holders++] = d;
        }
    }
    hosts->first[n_experts] = n_holders;
    const struct syi_rows first = {(unsigned char *)hosts->first, 0};
    const struct syi_rows holder = {(unsigned char *)hosts->holder, 0};
    hosts->hash = syi_a2a_hash((uint64_t)n_devices, first, 1, (size_t)(n_experts + 1) * sizeof *hosts->first);
    hosts->hash = syi_a2a_hash(hosts->hash, holder, 1, (size_t)n_holders * sizeof *hosts->holder);
    return validate_copies(ctx, hosts, mapping, n_copies);
}

/* If a group has each holder only once, searching after each holder visits every device once. */
sy_status syi_a2a_check_single(sy_ctx *ctx, const struct syi_a2a_hosts *hosts, sy_mesh mesh, sy_axis axis)
{
    const int n_positions = syi_group_size(mesh, axis);
    for (int64_t e = 0; e < hosts->n_experts; e++)
        for (int64_t i = hosts->first[e]; i < hosts->first[e + 1]; i++) {
            const int device = hosts->holder[i], group = syi_group_of(mesh, axis, device);
            for (int p = syi_position_of(mesh, axis, device) + 1; p < n_positions; p++) {
                const int other = syi_device_at(mesh, axis, group, p);
                if (hosts->local[other * hosts->n_experts + e] >= 0)
                    return syi_reject(ctx, SYI_BAD_MAPPING_TWO_HOLDERS, e, other, 1, device);
            }
        }
    return SY_OK;
}
