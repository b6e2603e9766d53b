#include "made.h"

#include "case.h"

struct made_call {
    struct call c;
    struct reader in;
};

/* The first large line that succeeds, from 1; -1: none. The oracle is asked once. */
static int find_line(const struct op_case *op)
{
    struct call *const c = calloc(1, sizeof *c);
    int found = -1;
    if (c == NULL)
        abort();
    for (int i = 0; found < 0 && i < CASE_LINES && op->lines[i] != NULL; i++) {
        struct reader in = reader_text(op->lines[i]);
        call_make(c, op, &in);
        found = c->want.status == SY_OK ? i + 1 : -1;
        call_free(c);
    }
    free(c);
    return found;
}

struct made_call *made_new(int number, bool large)
{
    static int line[SY_MAX_FIELDS]; /* by number; 0: not known */
    struct made_call *const made = calloc(1, sizeof *made);
    const struct op_case *const op = all_cases[number];
    if (made == NULL)
        abort();
    if (n_case_ctx == 0)
        case_open();
    if (large && line[number] == 0)
        line[number] = find_line(op);
    made->in = reader_text(large && line[number] > 0 ? op->lines[line[number] - 1] : op->small);
    call_make_only(&made->c, op, &made->in);
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

void made_split(bool split)
{
    case_split = split;
}
