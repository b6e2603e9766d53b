/*
 * local_reduce with a rule for replicas: a copy of the table of choices in which those that other hosts serve
 * are none. The kernels of local_reduce then read that one. Entries that name no expert are copied as they
 * are, and so rejected as they are.
 */
#pragma once

#include "plan/plan.h"
#include "cuda/runtime/context.cuh"

size_t syc_served_bytes(const syi_local_reduce_plan *p, int processors);
/* aligned rows */
syi_tensor syc_served(syc_call *call, const syi_local_reduce_plan *p, u8 *scratch);
