/*
 * Room for the argument struct of any operator.
 */
#ifndef SWITCHYARD_TESTS_CALL_ARGS_H
#define SWITCHYARD_TESTS_CALL_ARGS_H

#include <stddef.h>

#include <switchyard_describe.h>

union test_args {
    sy_moe_permute_args permute;
    max_align_t room[40]; /* tests/op/describe.c: it is enough */
};

#endif
