/* Beyond ranks.h, for tests that end one of the processes. */
#pragma once

#include "ranks.h"

#include <switchyard_nccl.h>

/* The communicator of all processes, from ranks_begin on. */
extern ncclComm_t ranks_nccl;

/* Collective: another one. */
ncclComm_t ranks_nccl_new(void);
