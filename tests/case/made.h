/*
 * Valid calls of every operator, for tests that need some call and not a particular one: those of the cases' lines.
 */
#pragma once

#include <switchyard_describe.h>

struct made_tensor {
    const char *name;
    size_t offset; /* of its pointer in the arguments */
    DLDataType type;
    int rank;
    const int64_t *shape;
    const void *contents; /* dense; NULL: written only */
    bool output;
};

struct made_call;
struct made_call *made_new(int number,
                           bool large); /* `small` of this case, or its first line that succeeds */
void made_free(struct made_call *made);
const sy_op_info *made_op(const struct made_call *made);
const void *
made_args(const struct made_call *made); /* scalars; what they point to is valid until made_free */
bool made_tensor(const struct made_call *made, int i,
                 struct made_tensor *x); /* tensor i; false: not in the call */

/* Small calls use all threads, in programs that have split.c. */
void made_split(bool split);
