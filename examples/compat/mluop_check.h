/* Shared by the programs of this folder in the style of Cambricon MLU-OPS: a call that fails ends the program. */
#ifndef EXAMPLES_COMPAT_MLUOP_CHECK_H
#define EXAMPLES_COMPAT_MLUOP_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "cnrt.h"
#include "mlu_op.h"

#define MLUOP_CHECK(expression) \
    do { \
        const mluOpStatus_t status = (expression); \
        if (status != MLUOP_STATUS_SUCCESS) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #expression, \
                    mluOpGetErrorString(status)); \
            exit(1); \
        } \
    } while (0)

#endif
