/*
 * kv_gather and kv_scatter of two planes: keys and values of 8 heads of 128 bf16, token by token (NHD) or head by head
 * (HND), and the latent and rope parts of 1152-byte rows. Must move: every row of both planes read and written, 4 bytes
 * of index or slot each. The limit is a copy of the dense rows. "k=" gathers, "n=" scatters.
 */
#include "described.h"

#include <string.h>

enum { HEADS = 8, HEAD = 128, LATENT = 512, ROPE = 64 };

static const char *const shapes[] = {
    "1024+128 B k=2048 of 128k S=64",
    "1024+128 B n=8192 of 128k S=64",
    "2 x 2048 B NHD k=2048 of 32k S=64",
    "2 x 2048 B NHD k=32768 of 32k S=16",
    "2 x 2048 B NHD n=8192 of 32k S=64",
    "2 x 2048 B HND k=2048 of 32k S=64",
    "2 x 2048 B HND k=32768 of 32k S=16",
    "2 x 2048 B HND n=8192 of 32k S=64",
    /* Quick. */
    "2 x 2048 B HND k=512 of 4k S=64",
    "1024+128 B n=1024 of 8k S=64",
};

struct block {
    union {
        sy_kv_gather_args gather;
        sy_kv_scatter_args scatter;
    };
    sy_kv_plane plane;
    const DLTensor *pool; /* of latent rows and rope, both planes in one */
};

/* A cache is read by a gather and changed by a scatter. */
static void add_cache(struct bench_call *c, const DLTensor **field, int rank, const int64_t *shape)
{
    if (bench_size(c, "n=") > 0)
        bench_inout(c, field, SY_BF16, rank, shape, BENCH_ONCE, fill_bits, 0);
    else
        bench_in(c, field, SY_BF16, rank, shape, BENCH_ONCE, fill_bits, 0);
}

static void add_caches(struct bench_call *c, const DLTensor **first, int64_t blocks, int64_t size)
{
    struct block *const b = c->args;
    if (bench_says(c->shape, "HND") || bench_says(c->shape, "NHD")) {
        const bool apart = bench_says(c->shape, "HND");
        add_cache(c, first, DIMS(blocks, apart ? HEADS : size, apart ? size : HEADS, HEAD));
        add_cache(c, &b->plane.cache, DIMS(blocks, apart ? HEADS : size, apart ? size : HEADS, HEAD));
        return;
    }
    add_cache(c, &b->pool, DIMS(blocks, size, LATENT + ROPE));
    bench_columns(c, first, b->pool, 0, LATENT);
    bench_columns(c, &b->plane.cache, b->pool, LATENT, ROPE);
}

static void add_rows(struct bench_call *c, const DLTensor **field, int rank, const int64_t *shape)
{
    if (bench_size(c, "n=") > 0)
        bench_in(c, field, SY_BF16, rank, shape, BENCH_COPIES, fill_bits, 0);
    else
        bench_room(c, field, SY_BF16, rank, shape, BENCH_COPIES);
}

static void make(struct bench_call *c)
{
    struct block *const b = c->args;
    const bool scatter = bench_size(c, "n=") > 0, heads = bench_says(c->shape, "2 x 2048 B");
    const int64_t tokens = bench_size(c, "of "), size = bench_size(c, "S="), blocks = tokens / size;
    const int64_t n = scatter ? bench_size(c, "n=") : bench_size(c, "k=");
    const sy_kv_layout layout = bench_says(c->shape, "HND") ? SY_KV_HND : SY_KV_NHD;
    const DLTensor **const rows = scatter ? &b->scatter.src : &b->gather.out;
    c->op = sy_op_find(scatter ? "kv_scatter" : "kv_gather");
    add_caches(c, scatter ? &b->scatter.cache : &b->gather.cache, blocks, size);
    if (heads) {
        add_rows(c, rows, DIMS(n, HEADS, HEAD));
        add_rows(c, &b->plane.rows, DIMS(n, HEADS, HEAD));
    } else {
        add_rows(c, rows, DIMS(n, LATENT));
        add_rows(c, &b->plane.rows, DIMS(n, ROPE));
    }
    bench_in(c, scatter ? &b->scatter.slots : &b->gather.indices, SY_I32, DIMS(n), BENCH_TURNS,
             n == tokens ? fill_in_order : fill_next, tokens);
    if (scatter) {
        b->scatter.planes = &b->plane;
        b->scatter.plane_bytes = sizeof b->plane;
        b->scatter.num_planes = 1;
        b->scatter.layout = layout;
    } else {
        bench_in(c, &b->gather.block_table, SY_I32, DIMS(blocks), BENCH_ONCE, fill_shuffle, 0);
        b->gather.block_size = size;
        b->gather.planes = &b->plane;
        b->gather.plane_bytes = sizeof b->plane;
        b->gather.num_planes = 1;
        b->gather.layout = layout;
    }
    c->limit.copy_bytes = bench_bytes(*rows) + bench_bytes(b->plane.rows);
    c->bytes = bench_work_bytes(&c->limit) + 4.0 * (double)n;
}

/* The rows of one plane, [n,width] or [n,heads,width], from or to its cache. */
static void plain_plane(const struct bench_call *c, const DLTensor *cache, const DLTensor *dense)
{
    const struct block *const b = c->args;
    const bool scatter = bench_size(c, "n=") > 0, apart = bench_says(c->shape, "HND");
    const int64_t size = bench_size(c, "S="), heads = dense->ndim == 3 ? HEADS : 1;
    const int64_t width = dense->shape[dense->ndim - 1], row = heads > 1 ? heads * width : LATENT + ROPE;
    const int64_t row_stride = apart ? width : row, head_stride = apart ? size * width : width;
    const int32_t *const order = (scatter ? b->scatter.slots : b->gather.indices)->data;
    const int32_t *const table = scatter ? NULL : b->gather.block_table->data;
    uint16_t *rows = dense->data;
    for (int64_t j = 0; j < dense->shape[0]; j++) {
        const int64_t t = order[j], block = scatter ? t / size : table[t / size];
        uint16_t *const at = (uint16_t *)cache->data + block * size * row + t % size * row_stride;
        for (int64_t h = 0; h < heads; h++, rows += width)
            memcpy(scatter ? at + h * head_stride : rows, scatter ? rows : at + h * head_stride,
                   (size_t)width * sizeof *rows);
    }
}

static void plain(const struct bench_call *c)
{
    const struct block *const b = c->args;
    const bool scatter = bench_size(c, "n=") > 0;
    plain_plane(c, scatter ? b->scatter.cache : b->gather.cache, scatter ? b->scatter.src : b->gather.out);
    plain_plane(c, b->plane.cache, b->plane.rows);
}

BENCH_OP(kv_planes, shapes, 2, make, .plain = plain);
