/*
 * Descriptors that describe no tensor, in further planes and on meshes (tests/case has those of other tensors). A rank of 1000, -1, the largest and smallest
 * number is rejected before an extent or a stride is read, with data and without: shape and strides point to a page that
 * cannot be read. A byte_offset that leads past the end of the address space is rejected before an address is made of it.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS; NOLINT(bugprone-reserved-identifier) */
#include "support.h"

#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>

static const int ranks[] = {1000, INT_MAX, -1, INT_MIN};

static int64_t *forbidden;

static int open_page(void)
{
    void *page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    forbidden = page;
    return page == MAP_FAILED ? -1 : 0;
}

static void hide(DLTensor *t, int rank, bool data, bool strides)
{
    t->ndim = rank;
    t->shape = forbidden;
    t->strides = strides ? forbidden : NULL;
    if (!data)
        t->data = NULL;
}

/* A further plane of a cache and the scales of packed rows. */
static void planes_and_scales(void **state)
{
    (void)state;
    enum { ROWS = 6, WIDTH = 4 };
    static int32_t slots[] = {0, 5, 3}, page[] = {0};
    static int8_t cache[2][ROWS][WIDTH];
    static float rows[2][3][WIDTH], scales[2][ROWS][1];
    static const char *const names[] = {"cache of plane 1", "out of plane 1", "scale of plane 1", "scale"};
    sy_ctx *ctx = test_ctx(1, NULL);
    sy_kv_format format;
    assert_int_equal(sy_kv_format_named("int8", &format), SY_OK);
    for (size_t r = 0; r < COUNT_OF(ranks); r++)
        for (unsigned how = 0; how < 16; how++) {
            const DLTensor index = sy_tensor(slots, SY_I32, 2, (int64_t[]){1, 3}),
                           table = sy_tensor(page, SY_I32, 2, (int64_t[]){1, 1}),
                           own = sy_tensor(cache[0], SY_I8, 2, (int64_t[]){ROWS, WIDTH}),
                           out = sy_tensor(rows[0], SY_F32, 3, (int64_t[]){1, 3, WIDTH});
            DLTensor t[4] = {sy_tensor(cache[1], SY_I8, 2, (int64_t[]){ROWS, WIDTH}),
                             sy_tensor(rows[1], SY_F32, 3, (int64_t[]){1, 3, WIDTH}),
                             sy_tensor(scales[1], SY_F32, 2, (int64_t[]){ROWS, 1}),
                             sy_tensor(scales[0], SY_F32, 2, (int64_t[]){ROWS, 1})};
            const sy_kv_plane plane = {.cache = &t[0], .rows = &t[1], .scale = &t[2], .format = &format};
            const sy_kv_gather_args args = {.cache = &own,
                                            .indices = &index,
                                            .block_table = &table,
                                            .block_size = ROWS,
                                            .format = &format,
                                            .scale = &t[3],
                                            .planes = &plane,
                                            .plane_bytes = sizeof(sy_kv_plane),
                                            .num_planes = 1,
                                            .out = &out};
            expect_status(ctx, sy_kv_gather(ctx, &args), SY_OK);
            hide(&t[how / 4], ranks[r], how & 1, how & 2);
            const sy_status status = sy_kv_gather(ctx, &args);
            if (status != SY_ERR_SHAPE && ((how & 1) || status != SY_ERR_NULL))
                fail_msg("%s: %s", sy_status_name(status), sy_ctx_error(ctx));
            if (strstr(sy_ctx_error(ctx), names[how / 4]) == NULL)
                fail_msg("\"%s\" does not name %s", sy_ctx_error(ctx), names[how / 4]);
        }
    sy_ctx_destroy(ctx);
}

int main(void)
{
    struct test_list list = {0};
    if (open_page() != 0)
        return 1;
    test_add(&list, "planes_and_scales", planes_and_scales, NULL);
    return test_run(&list, "bad_tensors");
}
