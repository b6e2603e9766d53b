#include "mesh_misuse.h"

#include "mesh_cases.h"

/* What a process does. */
struct scene {
    sy_ctx *ctx;
    sy_comm *comm;
    bool guilty; /* this process makes the mistake */
    struct mesh_case of;
    struct mesh_call *call; /* a good one */
    char sentence[512];     /* of the mistake, where calls follow it */
};

static sy_status keep(struct scene *s, sy_status status)
{
    snprintf(s->sentence, sizeof s->sentence, "%s", sy_ctx_error(s->ctx));
    return status;
}

static sy_status dispatch(struct scene *s, sy_ctx *ctx)
{
    return sy_all_to_all_dispatch(ctx, s->comm, &s->call->dispatch);
}

static sy_status no_context(struct scene *s)
{
    return dispatch(s, s->guilty ? NULL : s->ctx);
}

static sy_status no_arguments(struct scene *s)
{
    return sy_all_to_all_dispatch_n(s->ctx, s->comm, s->guilty ? NULL : &s->call->dispatch,
                                    sizeof s->call->dispatch);
}

static sy_status no_place_for_the_request(struct scene *s)
{
    sy_request *request = NULL;
    const sy_status st =
        sy_all_to_all_dispatch_start(s->ctx, s->comm, &s->call->dispatch, s->guilty ? NULL : &request);
    return st == SY_OK ? sy_request_free(request) : st;
}

/* Requests that the guilty process keeps open during `then`. */
static sy_status with_open(struct scene *s, int n, sy_status (*then)(struct scene *s))
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

static sy_status start_one_more(struct scene *s)
{
    sy_request *request = NULL;
    const sy_status st = mesh_call_start(s->ctx, s->comm, s->call, &request);
    return st == SY_OK ? sy_request_free(request) : st;
}

static sy_status too_many_requests(struct scene *s)
{
    return with_open(s, 2, start_one_more);
}

static sy_status alloc_one(struct scene *s)
{
    void *data = NULL;
    const sy_status st = sy_comm_alloc(s->ctx, s->comm, 100, &data);
    return st == SY_OK ? sy_comm_free(s->ctx, s->comm, data) : st;
}

static sy_status alloc_with_an_open_request(struct scene *s)
{
    return with_open(s, 1, alloc_one);
}

static sy_status reserve_some(struct scene *s)
{
    return sy_comm_reserve(s->ctx, s->comm, 100000);
}

static sy_status reserve_with_an_open_request(struct scene *s)
{
    return with_open(s, 2, reserve_some);
}

static sy_status alloc_without_a_place(struct scene *s)
{
    void *data = NULL;
    const sy_status st = sy_comm_alloc(s->ctx, s->comm, 100, s->guilty ? NULL : &data);
    if (data != NULL)
        sy_comm_free(s->ctx, s->comm, data);
    return st;
}

static sy_status alloc_without_a_context(struct scene *s)
{
    void *data = NULL;
    return sy_comm_alloc(s->guilty ? NULL : s->ctx, s->comm, 100, &data);
}

static sy_status reserve_without_a_context(struct scene *s)
{
    return sy_comm_reserve(s->guilty ? NULL : s->ctx, s->comm, 100);
}

/* Frees one of two pieces, the guilty process something else; then both. */
static sy_status free_instead(struct scene *s, int what)
{
    void *data[2] = {NULL, NULL};
    int other = 0;
    if (sy_comm_alloc(s->ctx, s->comm, 100, &data[0]) != SY_OK ||
        sy_comm_alloc(s->ctx, s->comm, 200, &data[1]) != SY_OK)
        return SY_ERR_COMM;
    void *const wrong[] = {&other, (unsigned char *)data[0] + 64, data[1], NULL};
    const sy_status st = keep(s, sy_comm_free(s->ctx, s->comm, s->guilty ? wrong[what] : data[0]));
    const bool freed =
        sy_comm_free(s->ctx, s->comm, data[0]) == SY_OK && sy_comm_free(s->ctx, s->comm, data[1]) == SY_OK;
    return freed ? st : SY_ERR_UNSUPPORTED;
}

static sy_status free_of_a_wrong_pointer(struct scene *s)
{
    return free_instead(s, 0);
}

static sy_status free_of_the_middle(struct scene *s)
{
    return free_instead(s, 1);
}

static sy_status free_of_other_memory(struct scene *s)
{
    return free_instead(s, 2);
}

static sy_status free_of_nothing(struct scene *s)
{
    return free_instead(s, 3);
}

static sy_status alloc_against_dispatch(struct scene *s)
{
    void *data = NULL;
    return s->guilty ? sy_comm_alloc(s->ctx, s->comm, 100, &data) : dispatch(s, s->ctx);
}

static sy_status dispatch_against_reserve(struct scene *s)
{
    return s->guilty ? dispatch(s, s->ctx) : sy_comm_reserve(s->ctx, s->comm, 100);
}

static sy_status combine_against_free(struct scene *s)
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

static sy_status a_rejected_dispatch(struct scene *s)
{
    return s->guilty ? sy_comm_reject(s->ctx, s->comm, SY_ERR_DTYPE, "binding: x is a list, want an array")
                     : dispatch(s, s->ctx);
}

static sy_status a_rejected_alloc(struct scene *s)
{
    void *data = NULL;
    return s->guilty ? sy_comm_reject(s->ctx, s->comm, SY_ERR_VALUE, "binding: shape is 'x', want numbers")
                     : sy_comm_alloc(s->ctx, s->comm, 100, &data);
}

static sy_status a_rejection_that_is_none(struct scene *s)
{
    return s->guilty ? sy_comm_reject(s->ctx, s->comm, SY_OK, "all is well") : dispatch(s, s->ctx);
}

static const struct {
    const char *name;
    sy_status (*act)(struct scene *s);
    sy_status want;
    const char *says; /* %d: the guilty device */
} misuses[] = {
    {"no context", no_context, SY_ERR_NULL, "all_to_all_dispatch: ctx of device %d is NULL, want a context"},
    {"no arguments", no_arguments, SY_ERR_NULL, "args"},
    {"no place for the request", no_place_for_the_request, SY_ERR_NULL,
     "request of device %d is NULL, want a place for the request"},
    {"too many requests", too_many_requests, SY_ERR_STATE,
     "comm of device %d has 2 open requests, want fewer"},
    {"alloc with an open request", alloc_with_an_open_request, SY_ERR_STATE,
     "sy_comm_alloc: comm of device %d has 1 open requests, want none"},
    {"reserve with open requests", reserve_with_an_open_request, SY_ERR_STATE,
     "sy_comm_reserve: comm of device %d has 2 open requests, want none"},
    {"alloc without a place", alloc_without_a_place, SY_ERR_NULL, "data of device %d is NULL"},
    {"alloc without a context", alloc_without_a_context, SY_ERR_NULL, "ctx of device %d is NULL"},
    {"reserve without a context", reserve_without_a_context, SY_ERR_NULL, "ctx of device %d is NULL"},
    {"free of a wrong pointer", free_of_a_wrong_pointer, SY_ERR_STATE, "data of device %d is not memory of"},
    {"free of the middle", free_of_the_middle, SY_ERR_STATE, "data of device %d is not memory of"},
    {"free of other memory", free_of_other_memory, SY_ERR_MISMATCH, "disagree about which memory to free"},
    {"free of nothing", free_of_nothing, SY_ERR_MISMATCH, "disagree about which memory to free"},
    {"alloc against dispatch", alloc_against_dispatch, SY_ERR_MISMATCH, "disagree about which operator"},
    {"dispatch against reserve", dispatch_against_reserve, SY_ERR_MISMATCH, "disagree about which operator"},
    {"combine against free", combine_against_free, SY_ERR_MISMATCH, "disagree about which operator"},
    {"a rejected dispatch", a_rejected_dispatch, SY_ERR_DTYPE, "binding: x is a list, want an array"},
    {"a rejected alloc", a_rejected_alloc, SY_ERR_VALUE, "binding: shape is 'x', want numbers"},
    {"a rejection that is none", a_rejection_that_is_none, SY_ERR_VALUE,
     "status of device %d is 0, want an error"},
};

int mesh_misuse_count(void)
{
    return (int)COUNT_OF(misuses);
}

const char *mesh_misuse_name(int number)
{
    return misuses[number].name;
}

bool run_mesh_misuse(sy_ctx *ctx, sy_comm *comm, int number, int guilty, char *story, size_t story_bytes,
                     char *why, size_t why_bytes)
{
    struct scene s = {.ctx = ctx, .comm = comm, .guilty = sy_comm_first_device(comm) == guilty};
    char says[200], after[300] = "";
    mesh_case_random(&s.of, sy_comm_mesh(comm), 3);
    s.call = mesh_dispatch_new(comm, &s.of, NULL);
    const sy_status status = misuses[number].act(&s);
    if (s.sentence[0] == '\0')
        keep(&s, status);
    /* A call without a context leaves its sentence to the others. */
    const bool told = strstr(misuses[number].says, "ctx of") == NULL || !s.guilty;
    snprintf(says, sizeof says, misuses[number].says,
             guilty); /* NOLINT(clang-diagnostic-format-nonliteral) */
    snprintf(story, story_bytes, "%s: %s", sy_status_name(status), told ? s.sentence : "");
    bool good = status == misuses[number].want && (!told || strstr(story, says) != NULL);
    if (!good)
        snprintf(why, why_bytes, "%s: \"%s\", want %s with \"%s\"", misuses[number].name, story,
                 sy_status_name(misuses[number].want), says);
    if (!told)
        story[0] = '\0';
    if (good && !mesh_call_untouched(s.call, why, why_bytes))
        good = false;
    mesh_call_free(s.call);
    mesh_case_free(&s.of);
    if (!run_mesh_case(ctx, comm, 1, after, sizeof after)) {
        if (good)
            snprintf(why, why_bytes, "%s: the next call fails: %s", misuses[number].name, after);
        good = false;
    }
    return good;
}
