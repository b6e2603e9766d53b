/*
 * The list of cases, and failures.
 */
#include "case.h"

#include <stdarg.h>
#include <stdio.h>

#include "plan/plan.h"

/* The operators of the library, each with the case of its file. */
#define X(id, op) extern const struct op_case case_##op;
SYI_OPERATORS(X)
#undef X
#define X(id, op) &case_##op,
const struct op_case *const all_cases[] = {SYI_OPERATORS(X)};
#undef X
const int n_all_cases = sizeof all_cases / sizeof *all_cases;

char case_where[400];
void (*case_end_test)(void);

_Noreturn void case_fail(const struct call *c, sy_ctx *ctx, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("# %s, %s: ", c->op->name, case_where);
    vprintf(format, arguments);
    va_end(arguments);
    if (ctx != NULL)
        printf(" (%s, %d threads) \"%s\"", sy_ctx_isa(ctx), sy_ctx_threads(ctx), sy_ctx_error(ctx));
    printf("\n");
    fflush(stdout);
    if (case_end_test != NULL)
        case_end_test();
    abort();
}
