/*
 * One row per operator.
 */
#include "cpu/backend.h"

#define ROW(ID, op) [SYI_##ID] = {syi_cpu_##op##_workspace, syi_cpu_##op},
const struct syi_backend syi_cpu_backend = {.name = "cpu", .op = {SYI_BACKEND_OPERATORS(ROW)}};
#undef ROW
