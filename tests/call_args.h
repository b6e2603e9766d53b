/*
 * Room for the argument struct of any operator.
 */
#pragma once

#include <stddef.h>

#include <switchyard_describe.h>

union test_args {
    sy_moe_permute_args permute;
    max_align_t room[40]; /* tests/op/describe.c: it is enough */
};
