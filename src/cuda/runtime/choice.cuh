/*
 * How an operator picks an implementation. They stand in one list, the fastest first; the first that has
 * nothing against a call runs it. The last one takes every call.
 */
#pragma once

#include "cuda/runtime/context.cuh"
#include "cuda/cuda.h"

/* Of calls that `Job` describes: a plan, or a plan and what the operator derives of it. */
template <class Job> struct syc_implementation {
    const char *name;
    /* A sentence in plain English that depends on the job and the device only; NULL: takes it. */
    const char *(*why_not)(const syc_device *device, const Job *job);
    size_t (*scratch)(const syc_device *device, const Job *job); /* bytes; NULL: none */
    void (*launch)(syc_call *call, const Job *job);
};

/* `chosen`, if it is not NULL, gets the list as far as it was read. */
template <class Job, int n>
const syc_implementation<Job> *syc_choose(const syc_implementation<Job> (&list)[n], const syc_device *device,
                                          const Job *job, syc_chosen *chosen = NULL)
{
    static_assert(n <= (int)SYC_MOST_IMPLEMENTATIONS, "room for their names");
    for (int i = 0;; i++) {
        const char *const why_not = i + 1 < n ? list[i].why_not(device, job) : NULL;
        if (chosen != NULL) {
            chosen->of[i] = {list[i].name, why_not};
            chosen->n = i + 1;
        }
        if (why_not == NULL)
            return &list[i];
    }
}
