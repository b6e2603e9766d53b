/*
 * The C part of calls.py: calls an operator repeatedly from C, with the arrays of the Python call. It is the binding
 * with one more function, and no part of the package.
 */
#include <string.h>
#include <time.h>

#include "../binding/binding.h"

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* repeat(operator, times, values...) -> nanoseconds of all calls together */
__attribute__((visibility("default"))) int __tvm_ffi_repeat(void *self, const TVMFFIAny *values, int32_t n,
                                                            TVMFFIAny *result);
int __tvm_ffi_repeat(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    const struct syp_operator *op = n >= 2 ? syp_find_operator(syp_text(values)) : NULL;
    if (op == NULL || values[1].type_index != kTVMFFIInt)
        return syp_raise("TypeError", "want an operator, a number and its values");
    union syp_args args;
    struct syp_storage storage = {0};
    memset(&args, 0, sizeof args);
    for (int32_t i = 2; i < n; i++)
        if (op->fields[i - 2].name == NULL || !syp_set_field(&args, &op->fields[i - 2], &values[i], &storage))
            return syp_raise("TypeError", "a value is not of its field's kind");
    int status = 0;
    const int64_t start = now_ns();
    for (int64_t i = 0; i < values[1].v_int64 && status == 0; i++)
        status = syp_run(op, &args, values + 2, n - 2, NULL);
    syp_return_int(result, now_ns() - start);
    return status <= 0 ? status : syp_raise("ValueError", syp_last_failure()->error);
}
