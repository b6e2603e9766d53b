#include "common.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Transports ---- */

static void destroy(void *self, bool broken)
{
    struct syi_common *const c = self;
    if (!c->creating)
        c->close(self, broken);
}

static const char *error_of(void *self)
{
    return ((struct syi_common *)self)->error;
}

struct syi_common syi_common(const char *name, void *self, sy_mesh mesh, const sy_comm_options *options)
{
    return (struct syi_common){
        .transport = {.name = name, .self = self, .mesh = mesh, .destroy = destroy, .error = error_of},
        .creating = true,
        .timeout_ms = options->timeout_ms == 0 ? SY_DEFAULT_TIMEOUT_MS : options->timeout_ms,
        .alloc = options->alloc,
        .dealloc = options->dealloc,
        .alloc_user = options->alloc_user};
}

int syi_common_group_size(const struct syi_common *c, sy_axis axis)
{
    const sy_mesh mesh = c->transport.mesh;
    return axis == SY_AXIS_0 ? mesh.rows : axis == SY_AXIS_1 ? mesh.cols : mesh.rows * mesh.cols;
}

int syi_common_rank_at(const struct syi_common *c, sy_axis axis, int position)
{
    const int cols = c->transport.mesh.cols;
    const int device = c->transport.device;
    return axis == SY_AXIS_0   ? position * cols + device % cols
           : axis == SY_AXIS_1 ? device / cols * cols + position
                               : position;
}

int64_t syi_rows_per_message(const sy_transport_exchange *x, const sy_transport_rows *rows)
{
    const size_t n = rows->row_bytes == 0 ? 1 : x->chunk_bytes / rows->row_bytes;
    return n < 1 ? 1 : n > INT_MAX ? INT_MAX : (int64_t)n;
}

int64_t syi_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

bool syi_is_late(const struct syi_common *c, int64_t begin_ms, char sentence[SYI_SENTENCE])
{
    sched_yield();
    if (c->timeout_ms < 0 || syi_now_ms() - begin_ms <= c->timeout_ms)
        return false;
    snprintf(sentence, SYI_SENTENCE, "waited %lld ms for another process, which did not arrive in time",
             (long long)c->timeout_ms);
    return true;
}

/* ---- Creation ---- */

void syi_creation_reject(struct syi_creation *c, sy_status status, const char *sentence)
{
    if (c->status != SY_OK)
        return;
    c->status = status;
    snprintf(c->sentence, sizeof c->sentence, "%s", sentence);
}

static void *default_alloc(void *user, size_t bytes)
{
    (void)user;
    return malloc(bytes);
}

static void default_free(void *user, void *data)
{
    (void)user;
    free(data);
}

void syi_creation_read(struct syi_creation *c, void *to, size_t to_bytes, sy_comm_options *comm,
                       const void *options, size_t options_bytes)
{
    if (options != NULL) {
        memcpy(to, options, options_bytes < to_bytes ? options_bytes : to_bytes);
        for (size_t i = to_bytes; i < options_bytes; i++)
            if (((const unsigned char *)options)[i] != 0)
                syi_creation_reject(c, SY_ERR_UNSUPPORTED, "options set a field this library does not know");
    }
    c->error = comm->error;
    c->error_bytes = comm->error_bytes;
    if ((comm->alloc == NULL) != (comm->dealloc == NULL))
        syi_creation_reject(c, SY_ERR_NULL,
                            comm->alloc == NULL ? "alloc is NULL, want alloc and dealloc"
                                                : "dealloc is NULL, want alloc and dealloc");
    if (comm->alloc == NULL || comm->dealloc == NULL) {
        comm->alloc = default_alloc;
        comm->dealloc = default_free;
    }
}

bool syi_creation_check_mesh(struct syi_creation *c, sy_mesh mesh)
{
    char words[160];
    if (mesh.rows >= 1 && mesh.cols >= 1 && mesh.rows <= SYI_MAX_DEVICES / mesh.cols)
        return true;
    snprintf(words, sizeof words, "mesh is %d x %d, want at least 1 x 1 and at most %d devices", mesh.rows,
             mesh.cols, SYI_MAX_DEVICES);
    syi_creation_reject(c, SY_ERR_VALUE, words);
    return false;
}

bool syi_check_processes(const char *name, int n, sy_mesh mesh, char sentence[SYI_SENTENCE])
{
    if (n == mesh.rows * mesh.cols)
        return true;
    snprintf(sentence, SYI_SENTENCE, "%s has %d %s, want %d, one for each device of a %dx%d mesh", name, n,
             n == 1 ? "process" : "processes", mesh.rows * mesh.cols, mesh.rows, mesh.cols);
    return false;
}

void *syi_transport_new(const sy_comm_options *options, size_t bytes, sy_status *status,
                        char sentence[SYI_SENTENCE])
{
    void *const made = options->alloc(options->alloc_user, bytes);
    if (made != NULL || *status != SY_OK)
        return made;
    snprintf(sentence, SYI_SENTENCE, "a transport could not be allocated");
    *status = SY_ERR_NOMEM;
    return NULL;
}

void syi_creation_make_comm(struct syi_creation *c, struct syi_common *made, sy_comm_options *options,
                            sy_comm **comm)
{
    void *const self = made->transport.self;
    options->error = c->sentence;
    options->error_bytes = sizeof c->sentence;
    made->creating = true;
    c->status = sy_comm_create(comm, &made->transport, options);
    c->status = made->agree(self, c->status, c->sentence);
    if (c->status == SY_OK) {
        made->creating = false;
        return;
    }
    sy_comm_destroy(*comm);
    *comm = NULL;
    made->close(self, c->status == SY_ERR_TIMEOUT);
}

sy_status syi_creation_report(const struct syi_creation *c, const char *function)
{
    static const char core[] = "sy_comm_create"; /* a sentence of the core begins with its own name */
    const bool named = strncmp(c->sentence, core, sizeof core - 1) == 0;
    if (c->error == NULL || c->error_bytes == 0)
        return c->status;
    if (c->status == SY_OK)
        c->error[0] = '\0';
    else
        snprintf(c->error, c->error_bytes, "%s%s%s", named ? "" : function, named ? "" : ": ", c->sentence);
    return c->status;
}
