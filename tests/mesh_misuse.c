#include "mesh_misuse.h"

#include "case/case.h"

/* What a process does. */
struct attempt {
    sy_ctx *ctx;
    sy_comm *comm;
    bool guilty; /* this process makes the mistake */
    int what;    /* of acts that have several */
    struct mesh_case of;
    struct mesh_call *call; /* a good one */
    char sentence[512];     /* of the mistake, where calls follow it */
};

static sy_status keep(struct attempt *s, sy_status status)
{
    snprintf(s->sentence, sizeof s->sentence, "%s", sy_ctx_error(s->ctx));
    return status;
}

static sy_status dispatch(struct attempt *s, sy_ctx *ctx)
{
    return sy_all_to_all_dispatch(ctx, s->comm, &s->call->dispatch);
}

static sy_status dispatch_one(struct attempt *s)
{
    return dispatch(s, s->ctx);
}

static sy_status no_context(struct attempt *s)
{
    return dispatch(s, s->guilty ? NULL : s->ctx);
}

static sy_status no_arguments(struct attempt *s)
{
    return sy_all_to_all_dispatch_n(s->ctx, s->comm, s->guilty ? NULL : &s->call->dispatch,
                                    sizeof s->call->dispatch);
}

static sy_status no_place_for_the_request(struct attempt *s)
{
    sy_request *request = NULL;
    const sy_status st =
        sy_all_to_all_dispatch_start(s->ctx, s->comm, &s->call->dispatch, s->guilty ? NULL : &request);
    return st == SY_OK ? sy_request_free(request) : st;
}

/* Requests that the guilty process keeps open during `then`. */
static sy_status with_open(struct attempt *s, int n, sy_status (*then)(struct attempt *s))
{
    sy_request *requests[2] = {NULL, NULL};
    struct mesh_call *calls[2];
    for (int i = 0; i < n; i++) {
        calls[i] = mesh_dispatch_new(s->comm, &s->of, NULL);
        if (mesh_call_start(s->ctx, s->comm, calls[i], &requests[i]) != SY_OK)
            return SY_ERR_COMM;
    }
    for (int i = 0; i < n && !s->guilty; i++)
        sy_request_free(requests[i]);
    const sy_status st = keep(s, then(s));
    for (int i = 0; i < n && s->guilty; i++)
        sy_request_free(requests[i]);
    for (int i = 0; i < n; i++)
        mesh_call_free(calls[i]);
    return st;
}

static sy_status start_one_more(struct attempt *s)
{
    sy_request *request = NULL;
    const sy_status st = mesh_call_start(s->ctx, s->comm, s->call, &request);
    return st == SY_OK ? sy_request_free(request) : st;
}

static sy_status alloc_one(struct attempt *s)
{
    void *data = NULL;
    const sy_status st = sy_comm_alloc(s->ctx, s->comm, 100, &data);
    return st == SY_OK ? sy_comm_free(s->ctx, s->comm, data) : st;
}

static sy_status reserve_some(struct attempt *s)
{
    return sy_comm_reserve(s->ctx, s->comm, 100000);
}

/* Without a place, or without a context. */
static sy_status alloc_without(struct attempt *s)
{
    void *data = NULL;
    return sy_comm_alloc(s->guilty && s->what == 1 ? NULL : s->ctx, s->comm, 100,
                         s->guilty && s->what == 0 ? NULL : &data);
}

static sy_status reserve_without_a_context(struct attempt *s)
{
    return sy_comm_reserve(s->guilty ? NULL : s->ctx, s->comm, 100);
}

/* Frees one of two pieces, the guilty process something else; then both. */
static sy_status free_instead(struct attempt *s)
{
    void *data[2] = {NULL, NULL};
    int other = 0;
    if (sy_comm_alloc(s->ctx, s->comm, 100, &data[0]) != SY_OK ||
        sy_comm_alloc(s->ctx, s->comm, 200, &data[1]) != SY_OK)
        return SY_ERR_COMM;
    void *const wrong[] = {&other, (unsigned char *)data[0] + 64, data[1], NULL};
    const sy_status st = keep(s, sy_comm_free(s->ctx, s->comm, s->guilty ? wrong[s->what] : data[0]));
    const bool freed =
        sy_comm_free(s->ctx, s->comm, data[0]) == SY_OK && sy_comm_free(s->ctx, s->comm, data[1]) == SY_OK;
    return freed ? st : SY_ERR_UNSUPPORTED;
}

static sy_status combine_against_free(struct attempt *s)
{
    void *data = NULL;
    if (sy_comm_alloc(s->ctx, s->comm, 100, &data) != SY_OK)
        return SY_ERR_COMM;
    struct mesh_call *const home = mesh_combine_new(s->comm, &s->of, NULL);
    const sy_status st =
        keep(s, s->guilty ? mesh_call_run(s->ctx, s->comm, home) : sy_comm_free(s->ctx, s->comm, data));
    const sy_status freed = sy_comm_free(s->ctx, s->comm, data);
    mesh_call_free(home);
    return freed == SY_OK ? st : SY_ERR_UNSUPPORTED;
}

static sy_status reject(struct attempt *s)
{
    static const struct {
        sy_status status;
        const char *words;
    } rejections[] = {{SY_ERR_DTYPE, "binding: x is a list, want an array"},
                      {SY_ERR_VALUE, "binding: shape is 'x', want numbers"},
                      {SY_OK, "all is well"}};
    return sy_comm_reject(s->ctx, s->comm, rejections[s->what].status, rejections[s->what].words);
}

/* The guilty process starts the same requests in another order. The second is rejected, too. */
static sy_status started_in_another_order(struct attempt *s)
{
    struct mesh_call *const home = mesh_combine_new(s->comm, &s->of, NULL), *const calls[] = {s->call, home};
    sy_request *requests[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++)
        if (mesh_call_start(s->ctx, s->comm, calls[i ^ (int)s->guilty], &requests[i]) != SY_OK)
            return SY_ERR_COMM;
    const sy_status last = sy_request_wait(requests[1], SY_PHASE_DONE);
    const sy_status st = keep(s, sy_request_wait(requests[0], SY_PHASE_DONE));
    sy_request_free(requests[0]);
    sy_request_free(requests[1]);
    mesh_call_free(home);
    return last == SY_ERR_MISMATCH ? st : SY_ERR_UNSUPPORTED;
}

/* The guilty process combines along the routing of an older dispatch. */
static sy_status combined_along_another_routing(struct attempt *s)
{
    sy_routing *routings[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        if (sy_routing_create(s->ctx, s->comm, &routings[i]) != SY_OK)
            return SY_ERR_COMM;
        s->call->dispatch.routing = routings[i];
        if (dispatch(s, s->ctx) != SY_OK)
            return SY_ERR_COMM;
    }
    mesh_call_reset(s->call);
    struct mesh_call *const home = mesh_combine_new(s->comm, &s->of, routings[s->guilty]);
    const sy_status st = keep(s, mesh_call_run(s->ctx, s->comm, home));
    mesh_call_free(home);
    sy_routing_destroy(routings[0]);
    sy_routing_destroy(routings[1]);
    return st;
}

/* ---- Calls with something wrong ---- */

/* Changes the call by words of tests/case/case.h (NULL: none). What its arguments point to is in the result, until it is freed. */
static struct call *change(struct mesh_call *call, const char *words)
{
    static const struct op_case misuse = {.name = "misuse"};
    struct call *const c = calloc(1, sizeof *c);
    DLTensor *tensors[SY_MAX_FIELDS] = {NULL};
    c->op = &misuse;
    c->info = mesh_call_op(call);
    c->n_devices = 1;
    memcpy(&c->args, mesh_call_args(call), c->info->args_bytes);
    for (int i = 0; i < c->info->n_tensors; i++) {
        struct operand *const x = &c->operand[i];
        x->field = sy_op_field(c->info, i);
        x->at = (const DLTensor **)(void *)((char *)&c->args + x->field->offset);
        memcpy(&tensors[i], x->at, sizeof tensors[i]);
        if (tensors[i] == NULL)
            continue;
        const struct mesh_tensor *const m = mesh_call_tensor(call, tensors[i]);
        x->given = true;
        x->t = *tensors[i];
        x->rank = x->t.ndim;
        x->element = type_bytes(x->t.dtype);
        x->block = m->mem;
        x->before = m->before;
        x->t.shape = memcpy(x->now_shape, m->shape, sizeof m->shape);
        memcpy(x->now_strides, m->strides, sizeof m->strides);
    }
    call_change(c, words);
    for (int i = 0; i < c->info->n_tensors; i++)
        if (tensors[i] != NULL)
            *tensors[i] = c->operand[i].t;
    memcpy(mesh_call_args(call), &c->args, c->info->args_bytes);
    return c;
}

/* ---- All of them ---- */

#define CODES "coded=1 coded_results=1 format=7 " MESH_COMBINE
#define CODE_SUM "coded=1 format=7 " MESH_SUM

struct misuse {
    const char *name;
    const char *line; /* of every process; NULL: a dispatch */
    sy_status want;
    const char *words;   /* of the guilty process, before the line */
    const char *changed; /* in its call */
    const char *others;  /* in the other calls */
    sy_status first;     /* where device 0 is guilty; 0: the same */
    const char
        *says; /* %d: the guilty device; NULL: of a call that is wrong this device, else that they disagree */
    sy_status (*act)(struct attempt *s);     /* NULL: the call is made */
    sy_status (*instead)(struct attempt *s); /* of the guilty process */
    int open, what; /* requests during the act, which the guilty process keeps; which act */
};

/* Of each kind of mistake one: tests/case has all of them on a mesh in one process. Every tensor has another size, so that a
   sentence about the wrong one shows. */
static const struct misuse misuses[] = {
    {"no input", NULL, SY_ERR_NULL, .changed = "input=-"},
    {"tokens of no type", NULL, SY_ERR_DTYPE, .changed = "tokens.dtype=none"},
    {"present of rank 2", NULL, SY_ERR_SHAPE, .changed = "present.ndim=2"},
    {"planes one token long", NULL, SY_ERR_SHAPE, .changed = "planes[0].shape[2]=4"},
    {"dimension 3", NULL, SY_ERR_VALUE, .changed = "output_concat_dim=3"},
    {"memory sharded", NULL, SY_ERR_UNSUPPORTED, .changed = "memory=3"},
    {"input of 2^64 bytes", NULL, SY_ERR_OVERFLOW, .changed = "input.shape[3]=2^61 tokens.shape[3]=2^61"},
    {"tokens with overlapping rows", NULL, SY_ERR_STRIDE, .changed = "tokens.strides[2]=3"},
    {"input on CUDA", NULL, SY_ERR_DEVICE, .changed = "input.device=2"},
    {"tokens over input", NULL, SY_ERR_ALIAS, .changed = "tokens.data=input"},
    {"a mapping of 2", NULL, SY_ERR_ROUTING, .changed = "expert_mapping.data[5]=2"},
    {"an index of E", NULL, SY_ERR_INDEX, .changed = "expert_indices.data[7]=8"},
    {"an expert twice, strictly", NULL, SY_ERR_INDEX,
     .changed = "expert_indices.data[8]=4 expert_indices.data[9]=4 strict_unique=1"},
    {"too few rows", MESH_EXPERT, SY_ERR_CAPACITY,
     .changed = "tokens.shape[0]=1 plane_tokens[0].shape[0]=1 src.shape[0]=1"},
    {"batches that do not divide", MESH_COMBINE, SY_ERR_SHAPE,
     .changed = "input.shape[1]=3 expert_metadata.shape[1]=3"},
    {"an input with rows of an expert too many", MESH_COMBINE, SY_ERR_MISMATCH,
     .changed = "expert_mapping.data[0]=0", .first = SY_ERR_SHAPE},
    {"an index of E in a table", MESH_COMBINE, SY_ERR_INDEX, .changed = "expert_metadata.data[11]=8"},
    {"too few expert rows", "layout=2 " MESH_COMBINE, SY_ERR_CAPACITY, .changed = "input.shape[0]=1"},
    {"output one sequence long", MESH_SUM, SY_ERR_SHAPE, .changed = "output.shape[1]=4"},
    {"no output_scales", CODES, SY_ERR_NULL, .changed = "output_scales=-"},
    {"two wrong calls, of which the lower device's counts", NULL, SY_ERR_DTYPE,
     .changed = "tokens.shape[3]=6", .others = "present.dtype=f32", .first = SY_ERR_SHAPE,
     .says = "of device 0 "},

    /* Calls that are valid each by itself. With a rule for replicas experts live elsewhere, but not in the style experts=0. */
    {"other elements", NULL, SY_ERR_MISMATCH, .words = "H=4"},
    {"other slots", NULL, SY_ERR_MISMATCH, .words = "K=1"},
    {"other tokens", NULL, SY_ERR_MISMATCH, .words = "S=2"},
    {"other batches", NULL, SY_ERR_MISMATCH,
     .words = "B=3 S=2 dim=2"}, /* as many tokens, otherwise divided */
    {"another dimension", NULL, SY_ERR_MISMATCH, .words = "dim=2"},
    {"another type", NULL, SY_ERR_MISMATCH, .words = "type=5"},
    {"another plane", NULL, SY_ERR_MISMATCH, .words = "X=3"},
    {"no plane", NULL, SY_ERR_MISMATCH, .words = "planes=0"},
    {"another axis", NULL, SY_ERR_MISMATCH, .words = "axis=2"},
    {"another mapping", NULL, SY_ERR_MISMATCH, .changed = "expert_mapping.data[0]=0 expert_counts=-",
     .says = "disagree"},
    {"fewer experts", NULL, SY_ERR_MISMATCH, .words = "E=7"},
    {"tokens that differ by device", NULL, SY_ERR_MISMATCH, .words = "ragged=1 N=6"},
    {"another replica", "experts=0 " MESH_DISPATCH, SY_ERR_MISMATCH, .words = "replica=4"},
    {"another size of nodes", NULL, SY_ERR_MISMATCH, .words = "node=2"},
    {"packed rows", MESH_EXPERT, SY_ERR_MISMATCH, .words = "layout=1"},
    {"another align", MESH_EXPERT, SY_ERR_MISMATCH, .words = "align=3"},
    {"fixed rows of experts", MESH_EXPERT, SY_ERR_MISMATCH, .words = "expert_rows=1"},
    {"another table", MESH_COMBINE, SY_ERR_MISMATCH, .changed = "expert_metadata.data[10]=5",
     .says = "disagree"},
    {"another table of a sum", MESH_SUM, SY_ERR_MISMATCH, .changed = "expert_metadata.data[10]=5",
     .says = "disagree"},
    {"another replica of a combine", "experts=0 " MESH_COMBINE, SY_ERR_MISMATCH, .words = "replica=1"},
    {"another size of nodes of a combine", MESH_COMBINE, SY_ERR_MISMATCH, .words = "node=2"},
    {"another format", "format=5 " CODES, SY_ERR_MISMATCH, .words = "format=6"},
    {"another type of sums", CODE_SUM, SY_ERR_MISMATCH, .words = "sum_type=1"},
    {"partial sums", MESH_COMBINE, SY_ERR_MISMATCH, .words = "local_reduce=1"},
    {"rows by expert against rows", NULL, SY_ERR_MISMATCH, .words = "layout=2 align=4"},
    {"combine against dispatch", NULL, SY_ERR_MISMATCH, .words = "combine=1"},
    {"combine against rows by expert", MESH_EXPERT, SY_ERR_MISMATCH, .words = "combine=1"},
    {"sum against dispatch", NULL, SY_ERR_MISMATCH, .words = "combine=1 sum=1"},
    {"sum against rows by expert", MESH_EXPERT, SY_ERR_MISMATCH, .words = "combine=1 sum=1"},
    {"sum against slots", MESH_COMBINE, SY_ERR_MISMATCH, .words = "sum=1"},
    {"started in another order", NULL, SY_ERR_MISMATCH, .act = started_in_another_order},
    {"combined along another routing", NULL, SY_ERR_MISMATCH, .act = combined_along_another_routing},

    /* What each device does with its own rows. */
    {"rows that are kept", NULL, SY_OK, .words = "fill=1"},
    {"another topology", NULL, SY_OK, .words = "topology=2"},
    {"fewer outputs", NULL, SY_OK, .changed = "metadata=- rows_to=-", .says = ""},

    /* Functions that are called wrongly, or instead of each other. */
    {"no context", NULL, SY_ERR_NULL, .says = "all_to_all_dispatch: ctx of device %d is NULL, want a context",
     .act = no_context},
    {"no arguments", NULL, SY_ERR_NULL, .says = "args", .act = no_arguments},
    {"no place for the request", NULL, SY_ERR_NULL,
     .says = "request of device %d is NULL, want a place for the request", .act = no_place_for_the_request},
    {"too many requests", NULL, SY_ERR_STATE, .says = "comm of device %d has 2 open requests, want fewer",
     .open = 2, .act = start_one_more},
    {"alloc with an open request", NULL, SY_ERR_STATE,
     .says = "sy_comm_alloc: comm of device %d has 1 open requests, want none", .open = 1, .act = alloc_one},
    {"reserve with open requests", NULL, SY_ERR_STATE,
     .says = "sy_comm_reserve: comm of device %d has 2 open requests, want none", .open = 2,
     .act = reserve_some},
    {"alloc without a place", NULL, SY_ERR_NULL, .says = "data of device %d is NULL", .act = alloc_without},
    {"alloc without a context", NULL, SY_ERR_NULL, .says = "ctx of device %d is NULL", .act = alloc_without,
     .what = 1},
    {"reserve without a context", NULL, SY_ERR_NULL, .says = "ctx of device %d is NULL",
     .act = reserve_without_a_context},
    {"free of a wrong pointer", NULL, SY_ERR_STATE, .says = "data of device %d is not memory of",
     .act = free_instead},
    {"free of the middle", NULL, SY_ERR_STATE, .says = "data of device %d is not memory of",
     .act = free_instead, .what = 1},
    {"free of other memory", NULL, SY_ERR_MISMATCH, .says = "disagree about which memory to free",
     .act = free_instead, .what = 2},
    {"free of nothing", NULL, SY_ERR_MISMATCH, .says = "disagree about which memory to free",
     .act = free_instead, .what = 3},
    {"alloc against dispatch", NULL, SY_ERR_MISMATCH, .says = "disagree about which operator",
     .act = dispatch_one, .instead = alloc_one},
    {"dispatch against reserve", NULL, SY_ERR_MISMATCH, .says = "disagree about which operator",
     .act = reserve_some, .instead = dispatch_one},
    {"combine against free", NULL, SY_ERR_MISMATCH, .says = "disagree about which operator",
     .act = combine_against_free},
    {"a rejected dispatch", NULL, SY_ERR_DTYPE, .says = "binding: x is a list, want an array",
     .act = dispatch_one, .instead = reject},
    {"a rejected alloc", NULL, SY_ERR_VALUE, .says = "binding: shape is 'x', want numbers", .act = alloc_one,
     .instead = reject, .what = 1},
    {"a rejection that is none", NULL, SY_ERR_VALUE, .says = "status of device %d is 0, want an error",
     .act = dispatch_one, .instead = reject, .what = 2},
};

int mesh_misuse_count(void)
{
    return (int)COUNT_OF(misuses);
}

const char *mesh_misuse_name(int number)
{
    return misuses[number].name;
}

bool mesh_misuse_applies(int number, int n_devices, bool on_device)
{
    const struct misuse *const row = &misuses[number];
    if (on_device && row->changed != NULL &&
        strstr(row->changed, "device") != NULL) /* there all of them are */
        return false;
    return n_devices > 1 || (row->changed != NULL && row->want != SY_ERR_MISMATCH);
}

/* What the sentence must contain. */
static const char *words_of(const struct misuse *row, sy_status want)
{
    return row->says != NULL         ? row->says
           : want == SY_OK           ? ""
           : want == SY_ERR_MISMATCH ? "disagree"
                                     : "of device %d ";
}

bool run_mesh_misuse(sy_ctx *ctx, sy_comm *comm, int number, int guilty, char *story, size_t story_bytes,
                     char *why, size_t why_bytes)
{
    const struct misuse *const row = &misuses[number];
    const sy_status want = guilty == 0 && row->first != SY_OK ? row->first : row->want;
    struct attempt s = {
        .ctx = ctx, .comm = comm, .guilty = sy_comm_first_device(comm) == guilty, .what = row->what};
    char says[200], after[300] = "", line[200];
    snprintf(line, sizeof line, "%s %s", s.guilty && row->words != NULL ? row->words : "",
             row->line != NULL ? row->line : MESH_DISPATCH);
    mesh_case_line(&s.of, sy_comm_mesh(comm), line);
    s.call = mesh_call_new(comm, &s.of, NULL);
    struct call *const changed = change(s.call, s.guilty ? row->changed : row->others);
    sy_status (*const act)(struct attempt * s) = s.guilty && row->instead != NULL ? row->instead : row->act;
    const sy_status status = act == NULL     ? mesh_call_run(ctx, comm, s.call)
                             : row->open > 0 ? with_open(&s, row->open, act)
                                             : act(&s);
    if (s.sentence[0] == '\0')
        keep(&s, status);
    /* A call without a context leaves its sentence to the others. */
    const bool told = strstr(words_of(row, want), "ctx of") == NULL || !s.guilty;
    snprintf(says, sizeof says, words_of(row, want), guilty); /* NOLINT(clang-diagnostic-format-nonliteral) */
    snprintf(story, story_bytes, "%s: %s", sy_status_name(status), told ? s.sentence : "");
    bool good = status == want && (!told || strstr(story, says) != NULL);
    if (!good)
        snprintf(why, why_bytes, "%s: \"%s\", want %s with \"%s\"", row->name, story, sy_status_name(want),
                 says);
    if (!told)
        story[0] = '\0';
    if (good)
        good = want == SY_OK ? mesh_call_check(s.call, why, why_bytes)
                             : mesh_call_untouched(s.call, why, why_bytes);
    mesh_call_free(s.call);
    call_free(changed);
    free(changed);
    mesh_case_free(&s.of);
    if (!run_mesh_case(ctx, comm, 1, after, sizeof after)) {
        if (good)
            snprintf(why, why_bytes, "%s: the next call fails: %s", row->name, after);
        good = false;
    }
    return good;
}
