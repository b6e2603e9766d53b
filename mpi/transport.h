/*
 * The transport of switchyard_transport.h over MPI 3.1. One process is one device; rank = device.
 *
 * MPI matches collectives of one communicator in the order in which they begin, so every channel and axis that may
 * begin in its own order has a communicator of its own. Messages carry the number of their exchange as tag, modulo the
 * tags there are, and one communicator serves them all: exchanges begin in the same order in all processes, and MPI
 * matches messages of equal tags in the order in which they were sent and asked for.
 *
 * Shared memory is POSIX's: whether it can be had is found out in each process by itself, without waiting in MPI.
 */
#ifndef SYI_MPI_TRANSPORT_H
#define SYI_MPI_TRANSPORT_H

#include <limits.h>

#include <switchyard_mpi.h>
#include <switchyard_transport.h>

enum {
    SYI_MPI_AXES = 3,        /* all, columns, rows */
    SYI_MPI_SENTENCE = 512,  /* bytes of an error sentence */
    SYI_MPI_DEVICES = 65536, /* of a mesh at most */
};

/* Something begun. Tickets and their arrays are kept and used again. */
struct syi_mpi_ticket {
    struct syi_mpi_ticket *next; /* in the list of the free */
    bool fence;                  /* what others wrote before is seen when it has ended */
    int n, n_ended, room;        /* requests */
    MPI_Request *requests;
    int *counts; /* of a gather: counts, then displacements */
    int counts_room;
};

/* Memory the processes of one machine share. */
struct syi_mpi_segment {
    struct syi_mpi_segment *next;
    char name[64]; /* by which others find it; "": none, or no longer */
    struct syi_mpi_mapping {
        void *at; /* NULL: not mapped here */
        size_t bytes;
    } of[]; /* [D] */
};

/* What MPI reads and writes while a comm is made: a wait that is given up ends none of that. */
struct syi_mpi_mail {
    int64_t numbers[8];
    struct {
        int status;
        char sentence[SYI_MPI_SENTENCE];
    } story;
    unsigned char token[SY_SHARE_TOKEN_BYTES];
};

struct syi_mpi {
    sy_transport door;
    bool creating;      /* destroy waits: processes still agree whether there will be a comm */
    bool finalise;      /* MPI was initialised here */
    bool failed;        /* an operation of MPI failed: nothing collective is tried any more */
    int n_open;         /* tickets that have not ended */
    uint64_t n_tags;    /* that MPI has */
    uint64_t n_shares;  /* segments made so far, for their names */
    int64_t timeout_ms; /* of waits while the comm is made; negative: for ever */
    size_t longest;     /* bytes that one count of MPI can name; tests set it lower */
    MPI_Comm base;      /* agreement while the comm is made */
    struct syi_mpi_mail mail;
    MPI_Comm mesh; /* the grid, and all messages */
    MPI_Comm gather[SY_N_CHANNELS][SYI_MPI_AXES];
    struct syi_mpi_ticket *free_tickets;
    struct syi_mpi_segment *segments;
    void *(*alloc)(void *user, size_t bytes);
    void (*dealloc)(void *user, void *ptr);
    void *alloc_user;
    char error[SYI_MPI_SENTENCE];
};

/* ---- comm.c: communicators ---- */

/*
 * Collective over `comm`: a transport for comm options that have been checked. The status and sentence are the same in
 * all processes; on failure nothing is left behind. MPI is initialised.
 */
sy_status syi_mpi_open(struct syi_mpi **self, MPI_Comm comm, sy_mesh mesh, const sy_comm_options *options,
                       sy_status status, char sentence[SYI_MPI_SENTENCE]);
/* broken: see destroy. */
void syi_mpi_close(struct syi_mpi *self, bool broken);

/*
 * Collective: the status and sentence of the lowest process that failed, in all of them; SY_OK when none has. All
 * get COMM where MPI itself fails, and TIMEOUT where a process does not come.
 */
sy_status syi_mpi_agree(struct syi_mpi *self, sy_status status, char sentence[SYI_MPI_SENTENCE]);

/* Waits for an operation that `code` says was begun: COMM, TIMEOUT. */
sy_status syi_mpi_wait(int code, MPI_Request *request, int64_t timeout_ms, const char *what,
                       char sentence[SYI_MPI_SENTENCE]);

/* Whether `code` is MPI_SUCCESS; else "what: MPI's words" becomes the sentence. */
bool syi_mpi_worked(int code, const char *what, char sentence[SYI_MPI_SENTENCE]);

/* The same for operations of the transport, which is broken then. */
bool syi_mpi_ok(struct syi_mpi *self, int code, const char *what);

/* Devices of a group. */
static inline int syi_mpi_group_size(const struct syi_mpi *self, sy_axis axis)
{
    const sy_mesh mesh = self->door.mesh;
    return axis == SY_AXIS_0 ? mesh.rows : axis == SY_AXIS_1 ? mesh.cols : mesh.rows * mesh.cols;
}

/* ---- ticket.c ---- */

/* An empty ticket with room for requests and counts; NOMEM. */
sy_status syi_mpi_ticket_new(struct syi_mpi *self, int64_t requests, int64_t counts,
                             struct syi_mpi_ticket **ticket);
/* Hands it to the caller, or takes back what was begun when a call of MPI failed. */
sy_status syi_mpi_ticket_give(struct syi_mpi *self, struct syi_mpi_ticket *made, bool ok,
                              sy_transport_ticket *ticket);
sy_status syi_mpi_test(void *self, sy_transport_ticket *ticket, bool *done);
void syi_mpi_tickets_free(struct syi_mpi *self);

/* ---- gather.c, exchange.c, share.c: see switchyard_transport.h ---- */

sy_status syi_mpi_gather(void *self, int channel, sy_axis axis, const void *send, size_t bytes, void *recv,
                         const size_t *counts, sy_transport_ticket *ticket);
sy_status syi_mpi_exchange(void *self, const sy_transport_exchange *exchange, sy_transport_ticket *ticket);
sy_status syi_mpi_share(void *self, size_t bytes, unsigned char token[SY_SHARE_TOKEN_BYTES], void **segment);
sy_status syi_mpi_attach(void *self, void *segment, const unsigned char *tokens, void **base);
void syi_mpi_settle(void *self, void *segment);
void syi_mpi_unshare(void *self, void *segment);

/* Collective: SY_OK, and whether all processes of the mesh can share memory; COMM, TIMEOUT. */
sy_status syi_mpi_can_share(struct syi_mpi *self, bool *can);

/* A type of `bytes` bytes to be used with count 1, or MPI_BYTE and the count where an int can tell it. A type that is
   not MPI_BYTE is the caller's to free. */
bool syi_mpi_bytes(struct syi_mpi *self, size_t bytes, MPI_Datatype *type, int *count);
void syi_mpi_bytes_free(MPI_Datatype *type);

#endif
