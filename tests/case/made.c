#include "made.h"

#include "case.h"

struct made_call {
    struct call c;
    struct reader in;
};

struct made_call *made_new(int number, bool large)
{
    struct made_call *const made = calloc(1, sizeof *made);
    const struct op_case *const op = all_cases[number];
    if (made == NULL)
        abort();
    if (n_case_ctx == 0)
        case_open();
    for (int i = 0; large && i < CASE_LINES && op->lines[i] != NULL; i++) { /* some are rejected */
        made->in = reader_text(op->lines[i]);
        call_make(&made->c, op, &made->in);
        if (made->c.want.status == SY_OK)
            return made;
        call_free(&made->c);
    }
    made->in = reader_text(op->small);
    call_make(&made->c, op, &made->in);
    return made;
}

void made_free(struct made_call *made)
{
    if (made != NULL)
        call_free(&made->c);
    free(made);
}

const sy_op_info *made_op(const struct made_call *made)
{
    return made->c.info;
}

const void *made_args(const struct made_call *made)
{
    return &made->c.args;
}

bool made_tensor(const struct made_call *made, int i, struct made_tensor *x)
{
    const struct operand *const from = &made->c.operand[i];
    *x = (struct made_tensor){.name = from->field->name,
                              .offset = from->field->offset,
                              .type = from->type,
                              .rank = from->rank,
                              .shape = from->shape,
                              .contents = from->in ? from->dense : NULL,
                              .output = from->out};
    return from->given;
}
