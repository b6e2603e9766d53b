/* What the tests of the transport share. */
#pragma once

#include "ranks.h"
#include "support_memory.h"

#include "transports/mpi/transport.h"

/* A transport on a mesh of all processes; `memory` NULL: malloc. */
struct syi_mpi *open_transport(sy_mesh mesh, struct allocator *memory);
/* Closes it; fails when memory is left. */
void close_transport(struct syi_mpi *mpi, struct allocator *memory);

int position_of(sy_mesh mesh, sy_axis axis, int device);
int device_at(sy_mesh mesh, sy_axis axis, int device, int position);

/* Waits for tickets, the last one first; fails on any error. */
void finish(struct syi_mpi *mpi, sy_transport_ticket *tickets, int n);
/* Fails with the transport's sentence. */
void expect_ok(struct syi_mpi *mpi, sy_status status);

/* A byte that identifies its origin. */
unsigned char byte_of(int64_t device, int64_t row, int64_t column);
