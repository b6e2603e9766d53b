#include "case.h"

#include <stdio.h>

struct made {
    struct call c;
    struct reader in;
    char line[1000];
};

struct call *case_of_line(const struct op_case *op, const char *line, uint64_t seed)
{
    struct made *const made = calloc(1, sizeof *made);
    if (made == NULL)
        abort();
    if (n_case_ctx == 0)
        case_open();
    snprintf(case_where, sizeof case_where, "\"%s\", contents %llu", line, (unsigned long long)seed);
    snprintf(made->line, sizeof made->line, "%s", line);
    made->in = reader_text(made->line);
    made->in.seed = seed;
    call_make(&made->c, op, &made->in);
    call_lay_out(&made->c, 0, false);
    return &made->c;
}

struct call *case_new(int number, bool large)
{
    const struct op_case *const op = all_cases[number];
    for (int i = large ? 0 : CASE_LINES; i < CASE_LINES && op->lines[i] != NULL; i++) {
        struct call *const c = case_of_line(op, op->lines[i], 0);
        if (c->want.status == SY_OK)
            return c;
        case_delete(c);
    }
    return case_of_line(op, op->small, 0);
}

void case_delete(struct call *c)
{
    call_free(c);
    free(c);
}
