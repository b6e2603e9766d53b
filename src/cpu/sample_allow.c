/*
 * Rows with excluded tokens. Nothing is written back and no row is copied as a whole: a row is read in pieces, and only
 * a piece that is partly excluded is copied, with -inf in the excluded places.
 */
#include "cpu/sample.h"

struct syi_logits syi_row_logits(const struct syi_sample_plan *p, int64_t b)
{
    return (struct syi_logits){.x = syi_at(p->logits, b),
                               .type = p->logits.type,
                               .n = p->vocab,
                               .allow = p->allow_bits.data != NULL ? syi_at(p->allow_bits, b) : NULL};
}

/* Bits of a piece: of all, and of any. Those past its end count as both. */
struct bits {
    bool all, any;
};

static struct bits look_at(const unsigned char *allow, size_t n)
{
    uint64_t all = UINT64_MAX, any = 0;
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        uint64_t word;
        memcpy(&word, allow + i / 8, sizeof word);
        all &= word;
        any |= word;
    }
    for (; i < n; i += 8) {
        const uint64_t rest = n - i < 8 ? 0xffu << (n - i) & 0xffu : 0, byte = allow[i / 8];
        all &= ~UINT64_C(0xff) | byte | rest;
        any |= byte & ~rest;
    }
    return (struct bits){all == UINT64_MAX, any != 0};
}

bool syi_some_allowed(const struct syi_logits *row, size_t first, size_t n)
{
    return look_at(row->allow + first / 8, n).any;
}

/* Vectors of a length that every processor has; the compiler chooses the instructions. */
typedef uint16_t lanes_16 __attribute__((vector_size(16)));
typedef uint32_t lanes_32 __attribute__((vector_size(16)));

/* Eight elements, or the fill where the lane's bit is 0. */
static inline void mask_lanes_16(unsigned char *out, const unsigned char *x, lanes_16 bits, lanes_16 lane,
                                 lanes_16 fill)
{
    lanes_16 v;
    memcpy(&v, x, sizeof v);
    v = fill ^ ((v ^ fill) & (lanes_16)((bits & lane) == lane));
    memcpy(out, &v, sizeof v);
}

static inline void mask_lanes_32(unsigned char *out, const unsigned char *x, lanes_32 bits, lanes_32 lane,
                                 lanes_32 fill)
{
    lanes_32 v;
    memcpy(&v, x, sizeof v);
    v = fill ^ ((v ^ fill) & (lanes_32)((bits & lane) == lane));
    memcpy(out, &v, sizeof v);
}

static void mask_16(unsigned char *out, const unsigned char *x, const unsigned char *allow, size_t n,
                    uint16_t fill)
{
    const lanes_16 low = {1, 2, 4, 8, 16, 32, 64, 128}, high = low << 8, fills = (lanes_16){0} + fill;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        uint16_t bits;
        memcpy(&bits, allow + i / 8, sizeof bits);
        mask_lanes_16(out + i * 2, x + i * 2, (lanes_16){0} + bits, low, fills);
        mask_lanes_16(out + i * 2 + 16, x + i * 2 + 16, (lanes_16){0} + bits, high, fills);
    }
    for (; i < n; i++)
        memcpy(out + i * 2, allow[i / 8] >> i % 8 & 1 ? x + i * 2 : (const unsigned char *)&fill, 2);
}

static void mask_32(unsigned char *out, const unsigned char *x, const unsigned char *allow, size_t n,
                    uint32_t fill)
{
    const lanes_32 low = {1, 2, 4, 8}, high = low << 4, fills = (lanes_32){0} + fill;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const uint32_t bits = allow[i / 8];
        mask_lanes_32(out + i * 4, x + i * 4, (lanes_32){0} + bits, low, fills);
        mask_lanes_32(out + i * 4 + 16, x + i * 4 + 16, (lanes_32){0} + bits, high, fills);
    }
    for (; i < n; i++)
        memcpy(out + i * 4, allow[i / 8] >> i % 8 & 1 ? x + i * 4 : (const unsigned char *)&fill, 4);
}

/* The first element at or after a position that is out, as a place in the list. */
static int64_t first_out(const struct syi_logits *row, size_t position)
{
    int64_t low = 0, high = row->n_out;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if ((size_t)row->out[middle] < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t syi_out_bits(const struct syi_logits *row, size_t first)
{
    uint64_t bits = 0;
    for (int64_t j = first_out(row, first); j < row->n_out && (size_t)row->out[j] < first + SYI_BLOCK; j++)
        bits |= UINT64_C(1) << ((size_t)row->out[j] - first);
    return bits;
}

uint64_t syi_allow_bits(const struct syi_logits *row, size_t first)
{
    const size_t bytes = ((size_t)row->n + 7) / 8 - first / 8; /* little-endian */
    uint64_t bits = 0;
    memcpy(&bits, row->allow + first / 8, bytes < sizeof bits ? bytes : sizeof bits);
    return bits;
}

const unsigned char *syi_mask_piece(const struct syi_logits *row, size_t first, size_t n,
                                    unsigned char *buffer)
{
    const size_t bytes = syi_float_bytes(row->type);
    const uint32_t fill = row->type == SY_TYPE_F32   ? 0xff800000u
                          : row->type == SY_TYPE_F16 ? 0xfc00u
                                                     : 0xff80u;
    const unsigned char *x = row->x + first * bytes;
    if (row->allow != NULL && !look_at(row->allow + first / 8, n).all) {
        if (row->type == SY_TYPE_F32)
            mask_32(buffer, x, row->allow + first / 8, n, fill);
        else
            mask_16(buffer, x, row->allow + first / 8, n, (uint16_t)fill);
        x = buffer;
    }
    for (int64_t j = first_out(row, first); j < row->n_out && (size_t)row->out[j] < first + n; j++) {
        if (x != buffer)
            x = memcpy(buffer, x, n * bytes);
        memcpy(buffer + ((size_t)row->out[j] - first) * bytes, &fill, bytes); /* little-endian */
    }
    return x;
}

SYI_HAS_BUFFER void syi_row_keys(const struct syi_row_state *r, const struct syi_logits *row,
                                 struct syi_key_stats *stats)
{
    syi_keys_fn *const keys = r->kernels->keys[syi_float_of(row->type)];
    const size_t n = (size_t)row->n, length = syi_piece_length(row);
    unsigned char buffer[SYI_PIECE * 4];
    for (size_t at = 0; at < n; at += length) {
        const size_t piece = n - at < length ? n - at : length;
        keys(r->scratch->key + at, syi_piece(row, at, piece, buffer), piece, stats);
    }
}
