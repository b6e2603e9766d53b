/*
 * For authors of a transport: what a comm needs to reach the other processes. libswitchyard_mpi is one such transport
 * and uses nothing of the library but this header.
 *
 * Process d of the transport is device d of the mesh. gather and exchange begin an operation and return; `test`
 * reports when its ticket has ended, and everything handed over stays valid until then. No function waits for
 * another process: the library does the waiting, and bounds it by the comm's timeout_ms. A ticket is tested by one
 * thread at a time. A transport never aborts and never prints; a failure is a status, SY_ERR_COMM unless another
 * one is more exact, and a sentence in `error`.
 *
 * Which messages belong together follows only from what all processes agreed on, never from what one of them decided
 * (a free buffer, an address, the order of arrival):
 * - the gathers of one channel begin in the same order in all processes, on whatever axes; with one_order, all operations do;
 * - so do the exchanges, and each has a `number` that is the same in all processes and is used once in
 *   the life of the comm. A transport with fewer tags than numbers may use the number modulo its tags if it matches
 *   messages of equal tags in the order in which they began; one without tags matches by order alone.
 */
#ifndef SWITCHYARD_TRANSPORT_H
#define SWITCHYARD_TRANSPORT_H

#include <switchyard.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Gathers of different channels may begin in a different order in different processes. */
enum {
    SY_CHANNEL_HEADER = 0,  /* of a call */
    SY_CHANNEL_TABLE = 1,   /* indices of the tokens */
    SY_CHANNEL_CONTROL = 2, /* errors, and buffers that must grow */
    SY_CHANNEL_FENCE = 3,   /* no process reads any more */
    SY_N_CHANNELS
};

/*
 * What `exchange` does with rows in memory of a CUDA device. Such tensors can be exchanged whatever a transport can do: the
 * library packs rows on the device, and where the transport accepts CPU memory only, copies them to pinned memory of
 * the host, and what arrives from there to the device. Gathers are always in CPU memory. Processes need not have the
 * same value: what they send is the same.
 *
 * CPU: every row is in CPU memory.
 * DEVICE: it accepts rows on a device. They are written before exchange is called; those that arrive are written when
 * the ticket has ended. For MPI that accepts device memory.
 * STREAM: it accepts rows on a device, and queues its work into exchange->stream, after the kernels that pack. What is
 * queued there after the ticket has ended comes after the rows have arrived, so the ticket may end before. For NCCL.
 */
typedef enum sy_transport_device {
    SY_TRANSPORT_CPU = 0,
    SY_TRANSPORT_DEVICE = 1,
    SY_TRANSPORT_STREAM = 2
} sy_transport_device;

/* Rows of one message: base + rows[i]*stride, row_bytes each, in this order. rows NULL: 0, 1, 2, ... On a device rows is NULL
   and stride is row_bytes. */
typedef struct sy_transport_rows {
    void *base;
    size_t row_bytes, stride;
    const int32_t *rows;
    int64_t n;
} sy_transport_rows;

/* What one process sends to and receives from the others of its group. Rows for itself are not among them. Both sides
   know how many rows a pair exchanges, so an empty message is not sent. */
typedef struct sy_transport_exchange {
    sy_axis axis;
    uint64_t number; /* of this exchange: ascending, the same in all processes of the group */
    int n_positions; /* devices of the group */
    int position;    /* of this process in it */
    const sy_transport_rows *send, *recv; /* [n_positions] each */
    size_t chunk_bytes;                   /* no message is longer, unless a single row is */
    int num_links; /* messages a pair's rows are cut into where there are as many rows; >= 1 */
    sy_topology topology;
    bool on_device;  /* all rows are in memory of a CUDA device; never with SY_TRANSPORT_CPU */
    int cuda_device; /* its ordinal, if on_device */
    void *stream;    /* the cudaStream_t of the caller's context there; NULL: the default stream */
} sy_transport_exchange;

enum { SY_SHARE_TOKEN_BYTES = 128 }; /* of what one process needs to find memory of another */

typedef struct sy_transport_ticket {
    void *of_transport;
} sy_transport_ticket;

typedef struct sy_transport {
    const char *name; /* "mpi"; static storage */
    void *self;       /* first argument of every function */
    sy_mesh mesh;
    int device; /* this process */

    /*
     * Every process of the group gives `bytes` and gets those of all, in order of position: recv has room for all of
     * them, or is NULL when no process gives any, and the ticket ends when all have begun. counts: bytes of each position
     * where they differ, else NULL. recv may not overlap send.
     */
    sy_status (*gather)(void *self, int channel, sy_axis axis, const void *send, size_t bytes, void *recv,
                        const size_t *counts, sy_transport_ticket *ticket);

    sy_status (*exchange)(void *self, const sy_transport_exchange *exchange, sy_transport_ticket *ticket);

    /* Whether it has ended; then the ticket is gone. */
    sy_status (*test)(void *self, sy_transport_ticket *ticket, bool *done);

    /*
     * Memory that all processes can read, in local steps; the library carries tokens and outcomes between processes.
     * share: makes `bytes` of this process, and the token by which the others find them; NOMEM when there are none.
     * attach: from the tokens of all devices, base[d] is where the memory of device d begins here; it is 64-byte
     * aligned. NOMEM when some of it cannot be reached. settle: all processes have attached, or have given up, so
     * what only served to find the memory can be freed. unshare: ends share and attach, whether they succeeded or not.
     * A write before a gather begins is seen by every process after it has ended. NULL, all four of them: there is
     * no such memory.
     */
    sy_status (*share)(void *self, size_t bytes, unsigned char token[SY_SHARE_TOKEN_BYTES], void **segment);
    sy_status (*attach)(void *self, void *segment, const unsigned char *tokens, void **base);
    void (*settle)(void *self, void *segment);
    void (*unshare)(void *self, void *segment);

    /* broken: some process may never answer again, so nothing collective is called any more; what cannot be freed
       without the others stays allocated. */
    void (*destroy)(void *self, bool broken);
    const char *(*error)(void *self); /* the sentence of the last failure; "" when there was none */

    sy_transport_device device_rows; /* decided once, when the transport is made */
    bool only_device; /* exchange accepts no rows in CPU memory: a call with such tensors is rejected with
                         UNSUPPORTED before anything is sent */
    int one_device;   /* 1 + the ordinal of the only CUDA device whose memory exchange accepts; 0: any */

    /* NULL, or: the comm is broken, at once after it was found to be. Ends what is under way without waiting for another process, so
       that nothing waits for it on a device; `error` keeps its sentence. Called at most once, before destroy. */
    void (*stop)(void *self);

    /* All operations begin in the same order in all processes, whatever their channel: those of a call follow those of the call before.
       For a transport that may execute them one after the other. */
    bool one_order;
} sy_transport;

/*
 * A comm over a transport, which it owns from then on, also when this fails. Not collective by itself.
 * Returns as sy_comm_create_local; also NULL (a function is missing) and VALUE (device outside the mesh).
 */
SY_API sy_status sy_comm_create_n(sy_comm **comm, const sy_transport *transport, size_t transport_bytes,
                                  const sy_comm_options *options, size_t options_bytes);
static inline sy_status sy_comm_create(sy_comm **comm, const sy_transport *transport,
                                       const sy_comm_options *options)
{
    return sy_comm_create_n(comm, transport, sizeof *transport, options, sizeof *options);
}

#ifdef __cplusplus
}
#endif

#endif /* SWITCHYARD_TRANSPORT_H */
