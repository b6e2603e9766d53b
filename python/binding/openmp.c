/*
 * Threads that PyTorch has already: where a GNU OpenMP runtime is loaded, contexts run their tasks on its threads, so that no second
 * pool competes for the CPUs. It is found among the libraries of the process; nothing here is linked with it. A forked child has none
 * of its threads, so there the tasks run one after the other.
 */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "binding.h"

static struct {
    void (*parallel)(void (*body)(void *data), void *data, unsigned threads, unsigned flags);
    int (*max_threads)(void), (*thread)(void), (*threads)(void);
    long process; /* whose threads these are; 0: there is no runtime */
} runtime;

struct job {
    void (*task)(void *data, int index);
    void *data;
    int n;
};

static void run_some(void *data)
{
    const struct job *job = data;
    const int step = runtime.threads();
    for (int i = runtime.thread(); i < job->n; i += step)
        job->task(job->data, i);
}

/* A team of another size is ended and started again, which takes longer than most calls: PyTorch's size is kept. */
static void run_on_openmp(void *user, int n_tasks, void (*task)(void *data, int index), void *data)
{
    (void)user;
    struct job job = {task, data, n_tasks};
    if (runtime.process == (long)getpid()) {
        const int usual = runtime.max_threads();
        runtime.parallel(run_some, &job, (unsigned)(n_tasks > usual ? n_tasks : usual), 0);
        return;
    }
    for (int i = 0; i < n_tasks; i++)
        task(data, i);
}

static int find_library(struct dl_phdr_info *info, size_t bytes, void *found)
{
    (void)bytes;
    const char *slash = strrchr(info->dlpi_name, '/');
    if (slash == NULL || strncmp(slash, "/libgomp", strlen("/libgomp")) != 0)
        return 0;
    *(void **)found = dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
    return *(void **)found != NULL;
}

static bool find(void *library, const char *name, void *to)
{
    void *const found = dlsym(library, name);
    memcpy(to, &found, sizeof found);
    return found != NULL;
}

bool syp_find_openmp(void)
{
    void *library = NULL;
    if (runtime.process != 0)
        return false;
    dl_iterate_phdr(find_library, &library);
    const bool usable = library != NULL && find(library, "GOMP_parallel", &runtime.parallel) &&
                        find(library, "omp_get_max_threads", &runtime.max_threads) &&
                        find(library, "omp_get_thread_num", &runtime.thread) &&
                        find(library, "omp_get_num_threads", &runtime.threads);
    runtime.process = usable ? (long)getpid() : 0;
    return usable;
}

void syp_use_openmp(sy_ctx_options *options)
{
    if (runtime.process == 0 || runtime.process != (long)getpid())
        return;
    options->parallel_for = run_on_openmp;
    const char *const given = getenv("SWITCHYARD_THREADS"); /* the library reads and validates it */
    if (options->threads == 0 && (given == NULL || *given == '\0'))
        options->threads = runtime.max_threads();
}
