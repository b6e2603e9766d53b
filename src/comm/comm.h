/*
 * Bytes between processes: the comm, memory the processes share, and how they agree on a call. Nothing here knows an
 * operator or touches a row.
 */
#ifndef SYI_COMM_H
#define SYI_COMM_H

#include <switchyard_transport.h>

#include "base/mesh.h"

enum { SYI_MAX_SEGMENTS = 255, SYI_NO_SEGMENT = 255, SYI_PAGE = 4096 };

/* Memory that only grows; growing loses the contents. */
struct syi_block {
    void *raw; /* what the allocator gave */
    unsigned char *data;
    size_t bytes;
};

/* Memory of all processes, or of this one alone where nothing is shared. */
struct syi_segment {
    bool used;
    void *of_transport; /* NULL: memory of this process */
    void **base;        /* [D] where that of each device begins here; plain memory: its own only */
    uint64_t *bytes;    /* [D] of each device; plain memory: its own only */
    void *raw;          /* plain memory as the allocator gave it */
    size_t slot_bytes;  /* of a stage: what each request has of it */
};

/* What processes exchange to share a segment. */
struct syi_share {
    int64_t status; /* sy_status of share in this process */
    uint64_t bytes;
    unsigned char token[SY_SHARE_TOKEN_BYTES];
};

struct sy_comm {
    void *raw; /* what the allocator gave for this and what belongs to it */
    sy_mesh mesh;
    int n_devices;
    int device;   /* the first of this process */
    int n_shards; /* devices of this process */
    bool local;
    sy_transport transport;
    sy_comm_options options; /* without zeros that mean something else */
    uint64_t options_hash;   /* of the options that all processes must have in common */
    bool shared;             /* rows can be read in place in another process */
    bool may_share;    /* it was so when the comm was made: decides where `shared` may change meanwhile */
    uint64_t lost_at;  /* number of the call in which sharing ended; 0: it has not */
    bool broken;       /* some process may never answer again */
    bool compared;     /* all processes were seen to have the same options */
    uint64_t sequence; /* number of the next collective call, the same in all processes */
    struct syi_segment *segment; /* [SYI_MAX_SEGMENTS] */
    int growing;                 /* the segment that is being opened */
    int stage; /* the segment private rows are copied into on their way; SYI_NO_SEGMENT: none yet */
    size_t stage_slot_bytes; /* of one request in it, the same in all processes */
    int n_open;              /* requests that are not freed */
    int n_requests;          /* max_inflight, and one for calls that hold no rows */
    sy_request *requests;    /* [n_requests], see ops/exchange.h */
    int32_t *statuses;       /* [D], see syi_comm_agree */
    struct syi_share share;  /* of this process, and the outcome of a step: on their way to all */
    int32_t outcome;
    struct syi_share *shares; /* [D]; NULL where the transport shares nothing */
    unsigned char *tokens;    /* [D][SY_SHARE_TOKEN_BYTES], likewise */
    struct sy_ctx spare;      /* takes the sentence of a call without a context */
};

void *syi_comm_new(const sy_comm *comm, size_t bytes); /* of any alignment malloc gives; NULL: none */
void syi_comm_delete(const sy_comm *comm, void *data);
bool syi_block_grow(const sy_comm *comm, struct syi_block *block, size_t bytes);
void syi_block_free(const sy_comm *comm, struct syi_block *block);

/* ---- Shared memory (segment.c) ------------------------------------------------------------------------ */

/* A segment of `bytes` here: shared where the comm can, else plain. Collective and waiting; the outcome is the same
   everywhere. *index on success. */
sy_status syi_segment_open(sy_comm *comm, size_t bytes, int *index);
void syi_segment_close(sy_comm *comm,
                       int index); /* local: memory of another process stays until it closes its own */

/* The segment that holds all of [data, data + bytes), SYI_NO_SEGMENT when none does or it is not shared. */
int syi_segment_of(const sy_comm *comm, const void *data, size_t bytes, size_t *offset);

/*
 * Makes the stage's slots at least so long, in steps that do not wait: _begin leaves comm->share to be gathered into
 * comm->shares, _attach leaves comm->outcome to be gathered into comm->statuses, and _end returns whether all processes
 * have it. Where one has not, nothing is shared any more. The old stage stays until the comm goes: requests that are
 * open may use it. The same bytes in all processes.
 */
void syi_stage_begin(sy_comm *comm, size_t slot_bytes);
void syi_stage_attach(sy_comm *comm);
bool syi_stage_end(sy_comm *comm);

/* The same, waiting: SY_OK, NOMEM, COMM, TIMEOUT. */
sy_status syi_stage_grow(sy_comm *comm, size_t slot_bytes);

/* ---- Agreement (agree.c) ------------------------------------------------------------------------------- */

/* Collective calls that are no operators; they follow enum syi_op_id in syi_header.op. */
enum syi_comm_call { SYI_COMM_ALLOC = 200, SYI_COMM_FREE, SYI_COMM_RESERVE, SYI_COMM_REJECT };

/* What every process sends to all others before anything of a collective call happens. */
struct syi_header {
    uint8_t version; /* of this struct */
    uint8_t op;      /* enum syi_op_id or syi_comm_call */
    uint8_t status;  /* sy_status of its own checks */
    uint8_t slot;    /* of the stage */
    uint8_t stage;   /* segment that holds what it copied there */
    uint8_t window;  /* segment that holds its rows; of sy_comm_free: the one to close */
    uint8_t axis;    /* sy_axis of the call */
    uint8_t ragged;  /* token counts may differ */
    uint64_t sequence;
    uint64_t params;  /* hash of everything that must be equal in all processes; sealed on the wire */
    uint64_t mapping; /* hash of who hosts what */
    uint64_t routing; /* hash of the table of choices, or which routing: equal inside a group */
    uint64_t offset;  /* of its rows in the window */
    uint32_t tokens;  /* at home there */
    uint32_t room;    /* rows its tokens tensor holds */
    uint32_t table;   /* rows of its table of choices */
    uint32_t wanted;  /* pages it must still copy into the stage before others may read; 0: it has. Of
                         sy_comm_reserve: pages of a slot */
};
_Static_assert(sizeof(struct syi_header) == 64, "a header is one cache line");

enum { SYI_HEADER_VERSION = 2, SYI_TEXT_BYTES = 472 };

/* What a process has to say when a call is not made: its sentence, or how it was called. */
struct syi_notice {
    char text[SYI_TEXT_BYTES];
    int32_t code;
    int32_t unused;
    int64_t batch, position, value, limit;
};

/* What two headers can differ in; the first is reported. */
enum syi_difference {
    SYI_SAME,
    SYI_VERSION,
    SYI_OPERATOR,
    SYI_SEQUENCE,
    SYI_MEMORY,
    SYI_PARAMS,
    SYI_MAPPING,
    SYI_TOKENS,
    SYI_TABLE
};

/* What all processes make of the headers. */
struct syi_verdict {
    sy_status status;
    int device; /* the lowest that failed, or that differs */
    int other;  /* from this one; -1: it failed by itself */
    enum syi_difference what;
};

/* On the wire `params` is combined with a hash of all other fields. Calling it again undoes that; a header that was
   damaged in between then disagrees about its parameters. */
void syi_seal_header(struct syi_header *header);

struct syi_verdict syi_judge_headers(const sy_comm *comm, const struct syi_header *header);

/* The sentence and fault of a verdict, from what the two devices had to say. `op`: what the other device called. */
void syi_tell_verdict(sy_ctx *ctx, const char *op, const struct syi_verdict *verdict,
                      const struct syi_notice *of_device, const struct syi_notice *of_other);

/* Whole pages of so many bytes; more than a header can hold are as many as it can, which no machine has. */
static inline uint32_t syi_pages(size_t bytes)
{
    const size_t pages = bytes / SYI_PAGE + (bytes % SYI_PAGE > 0);
    return pages > UINT32_MAX ? UINT32_MAX : (uint32_t)pages;
}

/* Nanoseconds a wait may last; 0: for ever. */
uint64_t syi_comm_limit(const sy_comm *comm);

/* Gathers `bytes` of every process and waits for them, outside of any request; the comm is broken if that fails. */
sy_status syi_comm_gather(sy_comm *comm, const void *mine, size_t bytes, void *all);

/* The status of the lowest device whose status is not SY_OK, in all processes. Waits for them. */
sy_status syi_comm_agree(sy_comm *comm, sy_status status);

#endif
