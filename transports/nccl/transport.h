/*
 * The transport of switchyard_transport.h over NCCL. One process is one device; rank = device.
 *
 * NCCL requires that operations are launched in the same order in all processes, also those of different communicators: a GPU may
 * execute kernels of different streams one after the other, and those of NCCL wait for each other. So all operations begin in one order
 * (one_order), and are launched in it. Every channel is a line of its own, a communicator and a stream: where the GPU can, operations of
 * different lines run at the same time. The communicators do not block: a call of NCCL that must reach another process returns
 * ncclInProgress, and the operations after it wait in a list until it is launched. So no function here waits for another process.
 *
 * Gathers use pinned memory, which the GPU can reach. An operation has ended when the event after it has. Operations are queued into the
 * stream of their line: no work in the stream of a context waits for another process, so that neither its calls nor its user
 * can be stuck there.
 */
#pragma once

#include <switchyard_nccl.h>
#include "../common/common.h"

enum {
    SYI_NCCL_ROWS = SY_CHANNEL_FENCE, /* the line of exchanges: no memory is shared, so there is no fence */
    SYI_NCCL_LINES = SY_N_CHANNELS,
};

struct syi_nccl_line {
    ncclComm_t comm; /* NULL: there is none, or it was aborted */
    cudaStream_t stream;
};

/* Bytes sent to or received from another process. */
struct syi_nccl_message {
    void *data;
    size_t bytes;
    int rank;
    bool send;
};

/* A pending gather or exchange. Tickets and their memory are reused. */
struct syi_nccl_ticket {
    struct syi_nccl_ticket *next;  /* in the list of those to launch, or of free tickets */
    struct syi_nccl_ticket *older; /* in the list of all */
    struct syi_nccl_line *line;
    enum { SYI_NCCL_QUEUED, SYI_NCCL_LAUNCHING, SYI_NCCL_RUNNING } state;
    cudaEvent_t ready, end; /* rows on the GPU are packed; the operation has ended */
    bool waits;             /* for `ready` */
    unsigned char *pinned;  /* what is sent, then what arrives */
    size_t pinned_bytes, arrives_at;
    size_t all_bytes; /* of each process in an ncclAllGather; 0: messages */
    struct syi_nccl_message *message;
    int64_t n, room;
    void *to; /* of a gather: where to copy to_bytes of what arrived; NULL: nowhere */
    size_t to_bytes;
    const sy_transport_rows *recv; /* of an exchange in CPU memory: [n_positions]; else NULL */
    int n_positions, position;
};

struct syi_nccl {
    struct syi_common common;
    bool stopped; /* the communicators were aborted */
    int cuda_device, rank, n_ranks;
    uint64_t sent_bytes;       /* rows sent to other processes, for tests */
    struct syi_nccl_line base; /* the caller's communicator, while the comm is made */
    struct syi_nccl_line line[SYI_NCCL_LINES];
    struct syi_nccl_ticket *first, *last; /* not launched yet, in order; the first is about to be */
    struct syi_nccl_ticket
        meeting; /* the first ticket: processes can agree without memory of the allocator */
    struct syi_nccl_ticket *tickets, *free_tickets; /* all, and those that are free */
    void *old_pinned; /* memory that was too small: freeing it would wait for the GPU */
};

/* ---- line.c: operations under way ---- */

/* False after a failure, with a sentence. ncclInProgress is none. */
bool syi_nccl_ok(struct syi_nccl *self, ncclResult_t result, ncclComm_t comm, const char *what);
bool syi_nccl_cuda_ok(struct syi_nccl *self, cudaError_t result, const char *what);

/* Makes the GPU of the transport current; the one before, for syi_nccl_leave. */
int syi_nccl_enter(const struct syi_nccl *self);
void syi_nccl_leave(int before);

bool syi_nccl_line_open(struct syi_nccl *self, struct syi_nccl_line *line);

/* Makes the ticket of meetings, with so much pinned memory. */
bool syi_nccl_meeting_open(struct syi_nccl *self, size_t pinned_bytes);

/* An empty ticket with pinned memory and space for messages; NOMEM, COMM. */
sy_status syi_nccl_ticket_new(struct syi_nccl *self, struct syi_nccl_line *line, size_t pinned_bytes,
                              int64_t messages, struct syi_nccl_ticket **ticket);
/* Of one that was not begun. */
void syi_nccl_ticket_drop(struct syi_nccl *self, struct syi_nccl_ticket *ticket);
/* It takes its turn. */
sy_status syi_nccl_begin(struct syi_nccl *self, struct syi_nccl_ticket *t, sy_transport_ticket *ticket);
sy_status syi_nccl_test(void *self, sy_transport_ticket *ticket, bool *done);
/* Frees tickets and pinned memory; nothing is under way. */
void syi_nccl_tickets_free(struct syi_nccl *self);

/* ---- transfer.c: see switchyard_transport.h ---- */

sy_status syi_nccl_gather(void *self, int channel, sy_axis axis, const void *send, size_t bytes, void *recv,
                          const size_t *counts, sy_transport_ticket *ticket);
/* The same for all processes of a line. recv NULL: what arrives stays in the memory of the ticket. */
sy_status syi_nccl_gather_all(struct syi_nccl *self, struct syi_nccl_line *line, const void *send,
                              size_t bytes, void *recv, sy_transport_ticket *ticket);
sy_status syi_nccl_exchange(void *self, const sy_transport_exchange *x, sy_transport_ticket *ticket);
/* What arrived in pinned memory goes to its place. */
void syi_nccl_land(const struct syi_nccl_ticket *t);

/* ---- open.c: communicators of a mesh ---- */

/*
 * Collective over `nccl`: a transport for comm options that have been checked. The status and sentence are the same in
 * all processes; on failure nothing is kept.
 */
sy_status syi_nccl_open(struct syi_nccl **self, ncclComm_t nccl, sy_mesh mesh, const sy_nccl_options *options,
                        sy_status status, char sentence[SYI_SENTENCE]);
void syi_nccl_close(void *self, bool broken); /* see destroy */

/* `agree` of struct syi_common. */
sy_status syi_nccl_agree(void *self, sy_status status, char sentence[SYI_SENTENCE]);
