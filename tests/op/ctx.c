/*
 * Contexts: creation and its rejections, names, the error sentence and fault, lent workspace, argument structs of older
 * and newer callers, tracing. Threads, allocation and floating-point control are in ctx_threads.c.
 */
#include "case/case.h"
#include "support.h"
#include "support_memory.h"

/* ---- Creation ---- */

TEST(create_with_defaults)
{
    sy_ctx *ctx = NULL;
    assert_int_equal(sy_ctx_create(&ctx, NULL), SY_OK);
    assert_non_null(ctx);
    assert_true(sy_ctx_threads(ctx) >= 1);
    assert_string_equal(sy_ctx_isa(ctx), sy_isa_name(0));
    assert_string_equal(sy_ctx_error(ctx), "");
    sy_ctx_destroy(ctx);
}

TEST(null_arguments)
{
    sy_fault fault;
    assert_int_equal(sy_ctx_create(NULL, NULL), SY_ERR_NULL);
    sy_ctx_destroy(NULL);
    assert_int_equal(sy_ctx_threads(NULL), 0);
    assert_string_equal(sy_ctx_isa(NULL), "");
    assert_non_null(sy_ctx_error(NULL));
    assert_int_equal(sy_ctx_set_threads(NULL, 1), SY_ERR_NULL);
    assert_int_equal(sy_ctx_set_workspace(NULL, NULL, 0), SY_ERR_NULL);
    assert_int_equal(sy_ctx_fault(NULL, &fault), SY_ERR_NULL);
    sy_ctx *ctx = test_ctx(1, NULL);
    assert_int_equal(sy_ctx_fault(ctx, NULL), SY_ERR_NULL);
    sy_ctx_destroy(ctx);
}

/* A rejected creation leaves NULL in *ctx and a sentence in the caller's buffer. */
static void rejected_creation(sy_ctx_options options, sy_status want, const char *fragment)
{
    char error[128] = "untouched";
    int other = 0;
    sy_ctx *ctx = (sy_ctx *)(void *)&other;
    options.error = error;
    options.error_bytes = sizeof error;
    assert_int_equal(sy_ctx_create(&ctx, &options), want);
    assert_null(ctx);
    if (strstr(error, fragment) == NULL)
        fail_msg("the sentence lacks %s: \"%s\"", fragment, error);
    options.error = NULL;
    assert_int_equal(sy_ctx_create(&ctx, &options), want);
    assert_null(ctx);
}

TEST(negative_threads)
{
    rejected_creation((sy_ctx_options){.threads = -1}, SY_ERR_VALUE, "-1");
}

TEST(unknown_isa)
{
    rejected_creation((sy_ctx_options){.isa = "abacus"}, SY_ERR_VALUE, "abacus");
    rejected_creation((sy_ctx_options){.isa = ""}, SY_ERR_VALUE, "isa");
    for (int i = 0; sy_isa_name(i) != NULL; i++)
        rejected_creation((sy_ctx_options){.isa = "abacus"}, SY_ERR_VALUE, sy_isa_name(i));
}

TEST(alloc_without_dealloc)
{
    rejected_creation((sy_ctx_options){.alloc = limited_alloc}, SY_ERR_NULL, "dealloc");
    rejected_creation((sy_ctx_options){.dealloc = limited_free}, SY_ERR_NULL, "alloc");
}

/* Never past the end, always terminated; a buffer of no bytes is not touched. */
TEST(short_error_buffer)
{
    sy_ctx *ctx = NULL;
    for (size_t n = 0; n < 40; n++) {
        char *error = buf_new(n, 0);
        const sy_ctx_options options = {.threads = -1, .error = error, .error_bytes = n};
        assert_int_equal(sy_ctx_create(&ctx, &options), SY_ERR_VALUE);
        if (n > 0)
            assert_non_null(memchr(error, '\0', n));
        buf_free(error);
    }
}

TEST(every_listed_isa_can_be_asked_for)
{
    bool scalar = false;
    int n = 0;
    for (; sy_isa_name(n) != NULL; n++) {
        sy_ctx *ctx = test_ctx(1, sy_isa_name(n));
        assert_string_equal(sy_ctx_isa(ctx), sy_isa_name(n));
        scalar = scalar || strcmp(sy_isa_name(n), "scalar") == 0;
        sy_ctx_destroy(ctx);
    }
    assert_true(scalar);
    assert_null(sy_isa_name(-1));
    assert_null(sy_isa_name(n + 1));
    assert_null(sy_isa_name(1000000));
}

static void never(void *user, int n_tasks, void (*task)(void *task_data, int index), void *task_data)
{
    (void)user, (void)n_tasks, (void)task, (void)task_data;
    fail();
}

TEST(thread_limit)
{
    sy_ctx *ctx = test_ctx(3, NULL);
    assert_int_equal(sy_ctx_threads(ctx), 3);
    assert_int_equal(sy_ctx_set_threads(ctx, 7), SY_OK);
    assert_int_equal(sy_ctx_threads(ctx), 7);
    assert_int_equal(sy_ctx_set_threads(ctx, -2), SY_ERR_VALUE);
    assert_int_equal(sy_ctx_threads(ctx), 7);
    assert_int_equal(sy_ctx_set_threads(ctx, 0), SY_OK);
    assert_true(sy_ctx_threads(ctx) >= 1);
    sy_ctx_destroy(ctx);
}

/* The default of `threads`, for own threads and for a caller's pool; the option is stronger. */
TEST(threads_of_the_environment)
{
    sy_ctx *ctx = NULL;
    setenv("SWITCHYARD_THREADS", "5", 1);
    ctx = test_ctx(0, NULL);
    assert_int_equal(sy_ctx_threads(ctx), 5);
    assert_int_equal(sy_ctx_set_threads(ctx, 3), SY_OK);
    static const char *const bad[] = {"0", "-1", "two", "2x", "99999999999", " "};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        setenv("SWITCHYARD_THREADS", bad[i], 1);
        rejected_creation((sy_ctx_options){0}, SY_ERR_VALUE, "SWITCHYARD_THREADS");
        assert_int_equal(sy_ctx_set_threads(ctx, 0), SY_ERR_VALUE);
        assert_non_null(strstr(sy_ctx_error(ctx), "SWITCHYARD_THREADS"));
        assert_int_equal(sy_ctx_threads(ctx), 3);
        assert_int_equal(sy_ctx_set_threads(ctx, 3), SY_OK);
    }
    sy_ctx_destroy(ctx);
    setenv("SWITCHYARD_THREADS", "6", 1);
    const sy_ctx_options pool = {.parallel_for = never};
    assert_int_equal(sy_ctx_create(&ctx, &pool), SY_OK);
    assert_int_equal(sy_ctx_threads(ctx), 6);
    setenv("SWITCHYARD_THREADS", "", 1); /* as if it were not set */
    setenv("OMP_NUM_THREADS", "4", 1);
    sy_ctx_destroy(ctx);
    ctx = test_ctx(0, NULL);
    assert_int_equal(sy_ctx_threads(ctx), 4);
    sy_ctx_destroy(ctx);
    unsetenv("SWITCHYARD_THREADS");
    unsetenv("OMP_NUM_THREADS");
}

/* ---- Names and versions ---- */

TEST(status_names)
{
    static const char *const names[] = {
        "SY_OK",           "SY_ERR_NULL",     "SY_ERR_DTYPE",  "SY_ERR_SHAPE",       "SY_ERR_STRIDE",
        "SY_ERR_VALUE",    "SY_ERR_OVERFLOW", "SY_ERR_ALIAS",  "SY_ERR_INDEX",       "SY_ERR_ROUTING",
        "SY_ERR_CAPACITY", "SY_ERR_STATE",    "SY_ERR_DEVICE", "SY_ERR_UNSUPPORTED", "SY_ERR_NOMEM",
        "SY_ERR_COMM",     "SY_ERR_MISMATCH", "SY_ERR_TIMEOUT"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        assert_string_equal(sy_status_name((sy_status)i), names[i]);
    assert_string_equal(sy_status_name((sy_status)COUNT_OF(names)), "SY_ERR_UNKNOWN");
}

TEST(fault_names)
{
    static const char *const names[] = {
        "NONE",        "NULL_POINTER",   "BAD_DTYPE",   "BAD_RANK",     "BAD_SHAPE",  "EMPTY",
        "BAD_VALUE",   "BAD_BLOCK_SIZE", "BAD_OPTION",  "OVERFLOW",     "BAD_STRIDE", "BAD_DEVICE",
        "ALIAS",       "NO_MEMORY",      "UNSUPPORTED", "LENGTH_RANGE", "REQ_RANGE",  "INDEX_RANGE",
        "TABLE_SHORT", "BLOCK_RANGE",    "ROW_RANGE",   "ROW_OVERFULL"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        assert_string_equal(sy_fault_name((sy_fault_code)i), names[i]);
    assert_non_null(sy_fault_name((sy_fault_code)COUNT_OF(names)));
}

TEST(versions)
{
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", SY_VERSION_MAJOR, SY_VERSION_MINOR, SY_VERSION_PATCH);
    assert_string_equal(sy_version(), text);
    assert_true(sy_results_version() >= 1);
}

/* ---- Sentence and fault ---- */

static struct call *permute(void)
{
    return case_new(sy_op_find("moe_permute")->number, false);
}

static sy_status query_of(const struct call *c, sy_ctx *ctx, sy_query *query)
{
    return op_query(c, ctx, &c->args, c->info->args_bytes, query);
}

/* A good query after a rejected call is a success too. tests/case has calls. */
TEST(query_clears_sentence_and_fault)
{
    struct call *const call = permute();
    sy_query query;
    sy_fault fault;
    sy_ctx *ctx = test_ctx(1, NULL);
    const int64_t rows = call->args.permute.num_out_tokens;
    call->args.permute.num_out_tokens = -1;
    expect_status(ctx, call_run(call, ctx), SY_ERR_VALUE);
    assert_int_equal(sy_ctx_fault(ctx, &fault), SY_OK);
    assert_int_equal(fault.status, SY_ERR_VALUE);
    call->args.permute.num_out_tokens = rows;
    expect_status(ctx, query_of(call, ctx, &query), SY_OK);
    assert_string_equal(sy_ctx_error(ctx), "");
    expect_fault(ctx, SY_FAULT_NONE, 0, 0, 0, 0);
    assert_int_equal(sy_ctx_fault(ctx, &fault), SY_OK);
    assert_int_equal(fault.status, SY_OK);
    assert_string_equal(fault.argument, "");
    case_delete(call);
    sy_ctx_destroy(ctx);
}

/* ---- Lent workspace ---- */

/* All that was lent counts, also what the call does not need, where tests/case has tensors at the end of what is needed; and an
   overlap is told before a lack of memory. */
TEST(all_that_was_lent_counts)
{
    struct call *call = NULL;
    sy_query query = {0};
    sy_fault fault;
    char want[160];
    sy_ctx *ctx = test_ctx(1, NULL);
    for (int i = 0; query.workspace_bytes == 0; i++) {
        if (call != NULL)
            case_delete(call);
        call = case_new(i, false);
        expect_status(ctx, query_of(call, ctx, &query), SY_OK);
    }
    struct operand *const x = &call->operand[0];
    const size_t scratch = (query.workspace_bytes + 63) / 64 * 64;
    const struct {
        size_t lent, at;
        sy_status want;
    } rows[] = {{4 * scratch, 2 * scratch, SY_ERR_ALIAS}, {1, 0, SY_ERR_ALIAS}, {1, scratch, SY_ERR_NOMEM}};
    unsigned char *const arena = buf_new(4 * scratch + x->bytes, 0);
    snprintf(want, sizeof want, "%s: %s overlaps the workspace in memory, want separate memory",
             call->info->name, x->field->name);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        assert_int_equal(sy_ctx_set_workspace(ctx, arena, rows[i].lent), SY_OK);
        x->t.data = memcpy(arena + rows[i].at, x->dense, x->bytes);
        expect_status(ctx, call_run(call, ctx), rows[i].want);
        assert_int_equal(sy_ctx_fault(ctx, &fault), SY_OK);
        if (rows[i].want == SY_ERR_ALIAS) {
            assert_string_equal(sy_ctx_error(ctx), want);
            assert_int_equal(fault.code, SY_FAULT_ALIAS);
        }
        call_untouched(call, ctx);
    }
    buf_free(arena);
    sy_ctx_destroy(ctx);
    case_delete(call);
}

TEST(rejected_workspace)
{
    sy_ctx *ctx = test_ctx(1, NULL);
    unsigned char *lent = buf_new(4096, 0);
    assert_int_equal(sy_ctx_set_workspace(ctx, NULL, 64), SY_ERR_NULL);
    for (size_t off = 1; off < 64; off += 1 + off / 3)
        assert_int_equal(sy_ctx_set_workspace(ctx, lent + off, 1024), SY_ERR_VALUE);
    assert_int_equal(sy_ctx_set_workspace(ctx, lent, 4096), SY_OK);
    assert_int_equal(sy_ctx_set_workspace(ctx, NULL, 0), SY_OK);
    sy_ctx_destroy(ctx);
    buf_free(lent);
}

/* ---- Argument structs of older and newer callers ---- */

TEST(shorter_arguments_read_as_zero)
{
    struct call *const call = permute();
    sy_ctx *ctx = test_ctx(1, NULL);
    case_field(call, "expert_counts")->given = false;
    call_lay_out(call, 0, false);
    const size_t bytes = offsetof(sy_moe_permute_args, expert_counts);
    unsigned char *older = buf_new(bytes, 0); /* a read past it is found */
    memcpy(older, &call->args.permute, bytes);
    call_check(call, ctx, sy_moe_permute_n(ctx, (const sy_moe_permute_args *)(const void *)older, bytes));
    buf_free(older);
    case_delete(call);
    sy_ctx_destroy(ctx);
}

TEST(longer_arguments_must_be_zero_past_the_known)
{
    struct call *const call = permute();
    sy_query query;
    sy_ctx *ctx = test_ctx(1, NULL);
    union {
        sy_moe_permute_args known;
        unsigned char bytes[sizeof(sy_moe_permute_args) + 24];
    } newer = {.bytes = {0}};
    newer.known = call->args.permute;
    memset(newer.bytes + sizeof newer.known, 0, 24);
    call_check(call, ctx, sy_moe_permute_n(ctx, &newer.known, sizeof newer));
    call_lay_out(call, 0, false);
    newer.known = call->args.permute;
    newer.bytes[sizeof newer - 1] = 1;
    expect_status(ctx, sy_moe_permute_n(ctx, &newer.known, sizeof newer), SY_ERR_UNSUPPORTED);
    assert_non_null(strstr(sy_ctx_error(ctx), "moe_permute: "));
    call_untouched(call, ctx);
    expect_status(ctx, sy_moe_permute_query_n(ctx, &newer.known, sizeof newer, &query, sizeof query),
                  SY_ERR_UNSUPPORTED);
    case_delete(call);
    sy_ctx_destroy(ctx);
}

TEST(older_query_is_filled_to_its_size)
{
    struct call *const call = permute();
    sy_ctx *ctx = test_ctx(1, NULL);
    const sy_moe_permute_args *const args = &call->args.permute;
    const size_t bytes = offsetof(sy_query, workspace_bytes);
    unsigned char *older = buf_new(bytes, 0);
    int64_t rows = 0;
    expect_status(ctx, sy_moe_permute_query_n(ctx, args, sizeof *args, (sy_query *)(void *)older, bytes),
                  SY_OK);
    memcpy(&rows, older, sizeof rows);
    assert_int_equal(rows, args->permuted_tokens->shape[0]);
    buf_free(older);
    case_delete(call);
    sy_ctx_destroy(ctx);
}

TEST(shorter_options_read_as_zero)
{
    sy_ctx *ctx = NULL;
    const sy_ctx_options options = {.threads = 2, .parallel_for = NULL};
    const size_t bytes = offsetof(sy_ctx_options, parallel_for);
    unsigned char *older = buf_new(bytes, 0);
    memcpy(older, &options, bytes);
    assert_int_equal(sy_ctx_create_n(&ctx, (const sy_ctx_options *)(const void *)older, bytes), SY_OK);
    assert_int_equal(sy_ctx_threads(ctx), 2);
    sy_ctx_destroy(ctx);
    buf_free(older);
}

/* ---- Tracing ---- */

struct heard {
    int calls, n_tensors;
    sy_trace last;
    char op[32], isa[32], names[256];
    const DLTensor *tensors[16];
};

static void listen(void *user, const sy_trace *trace)
{
    struct heard *h = user;
    h->calls++;
    h->last = *trace;
    h->n_tensors = trace->n_tensors;
    h->names[0] = '\0';
    snprintf(h->op, sizeof h->op, "%s", trace->op);
    snprintf(h->isa, sizeof h->isa, "%s", trace->isa);
    for (int i = 0; i < trace->n_tensors && i < 16; i++) {
        const size_t at = strlen(h->names);
        snprintf(h->names + at, sizeof h->names - at, "%s ", trace->names[i]);
        h->tensors[i] = trace->tensors[i];
    }
}

/* state: the index of a call. Traced once per call with its tensors, when rejected as well. */
static void traced_call(void **state)
{
    struct heard heard = {0};
    struct call *const call = case_new((int)(uintptr_t)*state, true);
    sy_ctx *ctx = NULL;
    assert_int_equal(
        sy_ctx_create(&ctx, &(sy_ctx_options){.threads = 2, .trace = listen, .trace_user = &heard}), SY_OK);
    assert_int_equal(heard.calls, 0);
    expect_status(ctx, call_run(call, ctx), SY_OK);
    assert_int_equal(heard.calls, 1);
    assert_string_equal(heard.op, call->info->name);
    assert_string_equal(heard.isa, sy_ctx_isa(ctx));
    assert_int_equal(heard.last.status, SY_OK);
    assert_int_equal(heard.last.threads, 2);
    assert_true(heard.last.bytes > 0);
    assert_true(heard.last.nanoseconds > 0);
    for (const struct operand *x = call->operand; x < call->operand + call->info->n_tensors; x++) {
        bool found = !x->given;
        for (int j = 0; j < heard.n_tensors; j++)
            found = found || heard.tensors[j] == &x->t;
        if (!found || (x->given && strstr(heard.names, x->field->name) == NULL))
            fail_msg("%s is not in the trace: %s", x->field->name, heard.names);
    }
    call_change(call, "*.device=2");
    expect_status(ctx, call_run(call, ctx), SY_ERR_DEVICE);
    assert_int_equal(heard.calls, 2);
    assert_int_equal(heard.last.status, SY_ERR_DEVICE);
    assert_true(heard.last.bytes == 0);
    case_delete(call);
    sy_ctx_destroy(ctx);
}

/* An older caller's fault is filled to its size, a newer one's unknown end is zeroed. */
TEST(fault_is_filled_to_the_callers_size)
{
    sy_ctx *ctx = test_ctx(1, NULL);
    expect_status(ctx, sy_sample(ctx, &(sy_sample_args){.logits = NULL}), SY_ERR_NULL);
    struct {
        sy_fault fault;
        unsigned char more[16];
    } wide;
    memset(&wide, 0xa5, sizeof wide);
    assert_int_equal(sy_ctx_fault_n(ctx, &wide.fault, offsetof(sy_fault, batch)), SY_OK);
    assert_int_equal(wide.fault.status, SY_ERR_NULL);
    assert_string_equal(wide.fault.argument, "logits");
    assert_true(wide.fault.batch == (int64_t)0xa5a5a5a5a5a5a5a5u);
    assert_int_equal(sy_ctx_fault_n(ctx, &wide.fault, sizeof wide), SY_OK);
    assert_true(wide.fault.batch == -1 && wide.fault.limit == 0);
    for (size_t i = 0; i < sizeof wide.more; i++)
        assert_int_equal(wide.more[i], 0);
    assert_int_equal(sy_ctx_fault_n(ctx, NULL, 8), SY_ERR_NULL);
    sy_ctx_destroy(ctx);
}

TEST_GROUP(ctx)
{
    for (int i = 0; i < TEST_CALLS; i++)
        test_add(&own_tests, test_name("trace of %s", all_cases[i]->name), traced_call, (void *)(uintptr_t)i);
    return test_run(&own_tests, "op_ctx");
}
