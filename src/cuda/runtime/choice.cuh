/*
 * How an operator picks one of many implementations. They are one list, the fastest first; the first that has
 * nothing against a call runs it. The last one takes every call.
 */
#pragma once

#include "cuda/runtime/context.cuh"

/* Of calls that `Job` describes: a plan, or a plan and what the operator derives of it. */
template <class Job> struct syc_implementation {
    const char *name;
    /* A sentence in plain English that depends on the job and the device only; NULL: takes it. */
    const char *(*why_not)(const syc_device *device, const Job *job);
    size_t (*scratch)(const syc_device *device, const Job *job); /* bytes; NULL: none */
    void (*launch)(syc_call *call, const Job *job);
};

/* `call`, if it is not NULL, notes the list as far as it was read. */
template <class Job, int n>
const syc_implementation<Job> *syc_choose(const syc_implementation<Job> (&list)[n], const syc_device *device,
                                          const Job *job, syc_call *call = NULL)
{
    static_assert(n <= SYC_MOST_CHOICES, "room for their names");
    for (int i = 0;; i++) {
        const char *const why_not = i + 1 < n ? list[i].why_not(device, job) : NULL;
        if (call != NULL ? syc_takes(call, list[i].name, why_not) : why_not == NULL)
            return &list[i];
    }
}
