/*
 * The transport of switchyard_transport.h over MPI 3.1. One process is one device; rank = device.
 *
 * MPI matches collectives of one communicator in the order in which they begin, so every channel and axis that may
 * begin in its own order has a communicator of its own. Messages have the number of their exchange as tag, modulo the
 * number of tags, and share one communicator: exchanges begin in the same order in all processes, and MPI matches
 * messages of equal tags in the order of sends and receives.
 *
 * Shared memory is POSIX's: each process tries on its own whether it works, without waiting in MPI.
 */
#pragma once

#include <limits.h>

#include <switchyard_mpi.h>
#include "../common/common.h"

enum {
    SYI_MPI_AXES = 3,   /* all, columns, rows */
    SYI_MPI_SHORT = 64, /* bytes of each process in a gather through the board, at most */
};

/* A pending gather or exchange. Tickets and their arrays are reused. */
struct syi_mpi_ticket {
    struct syi_mpi_ticket *next; /* in the list of free tickets, or of a line */
    bool fence;                  /* a fence: when it ends, earlier writes of others are visible */
    int n, n_ended, room;        /* requests */
    MPI_Request *requests;
    int *counts; /* of a gather: counts, then displacements */
    int counts_room;
    bool on_board; /* without MPI, by what follows */
    int channel;
    uint64_t number; /* among the gathers of its channel that are on the board */
    const void *send;
    size_t bytes;
    void *recv;
};

/* Gathers of a channel on the board: those that are not written yet, in order. */
struct syi_mpi_line {
    struct syi_mpi_ticket *first, *last;
    uint64_t n_begun;
    uint32_t is_ended; /* a bit for each slot: those after the first that has not ended */
};

/* Memory that the processes of one machine share. */
struct syi_mpi_segment {
    struct syi_mpi_segment *next;
    char name[64]; /* by which others find it; "" once it is removed */
    struct syi_mpi_mapping {
        void *at; /* NULL: not mapped here */
        size_t bytes;
    } of[]; /* [D] */
};

/* Buffers that MPI uses while a comm is made: MPI may still use them after a wait has timed out. */
struct syi_mpi_buffers {
    int64_t numbers[8];
    struct {
        int status;
        char sentence[SYI_SENTENCE];
    } record;
    unsigned char token[SY_SHARE_TOKEN_BYTES];
};

struct syi_mpi {
    struct syi_common common;
    bool finalise;     /* this library initialised MPI */
    bool failed;       /* an operation of MPI failed: no further collective calls */
    int n_open;        /* tickets that have not ended */
    uint64_t n_tags;   /* number of tags */
    uint64_t n_shares; /* segments made so far, for their names */
    size_t longest;    /* largest count of MPI, in bytes; tests set it lower */
    MPI_Comm base;     /* for agreement while the comm is made */
    struct syi_mpi_buffers buffers;
    MPI_Comm mesh; /* the grid, and all messages */
    MPI_Comm gather[SY_N_CHANNELS][SYI_MPI_AXES];
    struct syi_mpi_ticket *free_tickets;
    struct syi_mpi_segment *segments;
    struct syi_mpi_segment *board; /* one of them, or NULL: processes are on several machines */
    struct syi_mpi_line line[SY_N_CHANNELS];
};

/* ---- comm.c: communicators ---- */

/*
 * Collective over `comm`: a transport for comm options that have been checked. The status and sentence are the same in
 * all processes; on failure nothing is kept. MPI must be initialised.
 */
sy_status syi_mpi_open(struct syi_mpi **self, MPI_Comm comm, sy_mesh mesh, const sy_comm_options *options,
                       sy_status status, char sentence[SYI_SENTENCE]);
/* broken: see destroy. */
void syi_mpi_close(void *self, bool broken);

/* `agree` of struct syi_common. */
sy_status syi_mpi_agree(void *self, sy_status status, char sentence[SYI_SENTENCE]);

/* Waits for an operation; `code` is the result of its start: COMM, TIMEOUT. */
sy_status syi_mpi_wait(const struct syi_mpi *self, int code, MPI_Request *request, const char *what,
                       char sentence[SYI_SENTENCE]);

/* Whether `code` is MPI_SUCCESS; else "what: MPI's error text" becomes the sentence. */
bool syi_mpi_worked(int code, const char *what, char sentence[SYI_SENTENCE]);

/* The same for operations of the transport, which a failure breaks. */
bool syi_mpi_ok(struct syi_mpi *self, int code, const char *what);

/* ---- device.c ---- */

sy_transport_device syi_mpi_device_rows(void);

/* ---- ticket.c ---- */

/* An empty ticket with space for requests and counts; NOMEM. */
sy_status syi_mpi_ticket_new(struct syi_mpi *self, int64_t requests, int64_t counts,
                             struct syi_mpi_ticket **ticket);
/* Returns it to the caller; if a call of MPI failed, cancels what was begun. */
sy_status syi_mpi_ticket_give(struct syi_mpi *self, struct syi_mpi_ticket *made, bool ok,
                              sy_transport_ticket *ticket);
sy_status syi_mpi_test(void *self, sy_transport_ticket *ticket, bool *done);
void syi_mpi_tickets_free(struct syi_mpi *self);

/* ---- board.c: gathers of at most SYI_MPI_SHORT bytes of each process of the mesh, in shared memory ---- */

size_t syi_mpi_board_bytes(void); /* of each process; zeros at first */
void syi_mpi_board_begin(struct syi_mpi *self, int channel, const void *send, size_t bytes, void *recv,
                         struct syi_mpi_ticket *ticket);
bool syi_mpi_board_test(struct syi_mpi *self, const struct syi_mpi_ticket *ticket); /* whether it has ended */

/* ---- gather.c, exchange.c, share.c: see switchyard_transport.h ---- */

sy_status syi_mpi_gather(void *self, int channel, sy_axis axis, const void *send, size_t bytes, void *recv,
                         const size_t *counts, sy_transport_ticket *ticket);
sy_status syi_mpi_exchange(void *self, const sy_transport_exchange *exchange, sy_transport_ticket *ticket);
sy_status syi_mpi_share(void *self, size_t bytes, unsigned char token[SY_SHARE_TOKEN_BYTES], void **segment);
sy_status syi_mpi_attach(void *self, void *segment, const unsigned char *tokens, void **base);
void syi_mpi_settle(void *self, void *segment);
void syi_mpi_unshare(void *self, void *segment);

/* Collective: SY_OK, and whether all processes of the mesh can share memory, which is the board then; COMM, TIMEOUT. */
sy_status syi_mpi_can_share(struct syi_mpi *self, bool *can);

/* A type of `bytes` bytes to be used with count 1, or MPI_BYTE and the count if it fits an int. The caller frees a type
   other than MPI_BYTE. */
bool syi_mpi_bytes(struct syi_mpi *self, size_t bytes, MPI_Datatype *type, int *count);
void syi_mpi_bytes_free(MPI_Datatype *type);
