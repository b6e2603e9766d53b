/*
 * Communication between processes: the comm, shared memory, and agreement on a call. There is no code for operators or
 * rows here.
 */
#pragma once

#include <switchyard_transport.h>

#include "plan/memory.h"
#include "plan/mesh.h"

enum { SYI_MAX_SEGMENTS = 255, SYI_NO_SEGMENT = 255, SYI_PAGE = 4096 };

/* Memory that only grows; growing loses the contents. */
struct syi_block {
    void *raw; /* the pointer from the allocator */
    unsigned char *data;
    size_t bytes;
};

/* Kinds of memory that processes of one machine can share, each on its own. */
enum syi_kind { SYI_IN_CPU, SYI_ON_GPU, SYI_KINDS };

/* Memory of all processes, or of this one only if nothing is shared. */
struct syi_segment {
    bool used;
    bool shared;                     /* the parts of all processes can be read here */
    const struct syi_memory *memory; /* on a GPU; NULL: in CPU memory */
    void *handle;                    /* of the transport, or of `memory`; NULL: memory of the allocator */
    void **base;       /* [D] address of each device's part in this process; plain memory: its own only */
    uint64_t *bytes;   /* [D] of each device; plain memory: its own only */
    void *raw;         /* plain memory: the pointer from the allocator */
    size_t slot_bytes; /* of a stage: bytes of each request */
};

/* How one kind of memory is shared. */
struct syi_sharing {
    bool on;          /* rows can be read in place in another process */
    uint64_t lost_at; /* number of the call in which sharing ended; 0: it has not */
    int stage; /* the segment into which private rows are copied for others; SYI_NO_SEGMENT: none yet */
    size_t slot_bytes; /* of one request in it, the same in all processes */
};

/* What processes exchange to share a segment. */
struct syi_share {
    int64_t status; /* sy_status of share in this process */
    uint64_t bytes;
    unsigned char token[SY_SHARE_TOKEN_BYTES];
};

struct sy_comm {
    void *raw; /* the allocation of this struct and its arrays */
    sy_mesh mesh;
    int n_devices;
    int device;   /* the first of this process */
    int n_shards; /* devices of this process */
    bool local;
    sy_transport transport;
    sy_comm_options options; /* with defaults filled in */
    uint64_t options_hash;   /* hash of the options that must be equal in all processes */
    bool may_share;          /* when the comm was made; sharing may have ended since */
    struct syi_sharing sharing[SYI_KINDS];
    int cuda_device;             /* 1 + the ordinal of the device on which it has memory; 0: none yet */
    bool broken;                 /* a process may never answer again */
    bool compared;               /* all processes are known to have the same options */
    uint64_t sequence;           /* number of the next collective call, the same in all processes */
    struct syi_segment *segment; /* [SYI_MAX_SEGMENTS] */
    int signs;                   /* that in which syi_comm_give_up writes; SYI_NO_SEGMENT: none */
    int growing;                 /* the segment that is being opened */
    enum syi_kind growing_kind;  /* the kind of a stage that is */
    int n_open;                  /* requests that are not freed */
    int n_requests;              /* max_inflight, and one for calls without rows */
    sy_request *requests;        /* [n_requests], see exchange/exchange.h */
    int32_t *statuses;           /* [D], see syi_comm_agree */
    struct syi_share share;      /* of this process, and the outcome of a step: buffers of a gather */
    int32_t outcome;
    struct syi_share *shares; /* [D]; NULL where the transport shares nothing */
    unsigned char *tokens;    /* [D][SY_SHARE_TOKEN_BYTES], likewise */
    struct sy_ctx spare;      /* holds the sentence of a call without a context */
};

void *syi_comm_new(const sy_comm *comm, size_t bytes); /* aligned as by malloc; NULL: no memory */
void syi_comm_delete(const sy_comm *comm, void *data);
bool syi_block_grow(const sy_comm *comm, struct syi_block *block, size_t bytes);
void syi_block_free(const sy_comm *comm, struct syi_block *block);

/* ---- Shared memory (segment.c) ---- */

/*
 * Memory on a GPU is that of a context; `memory` is then its table, else NULL. It is mapped by the others as CPU memory is,
 * but must be freed after they have unmapped it: closing such a segment is collective.
 */
static inline enum syi_kind syi_kind_of(const struct syi_memory *memory)
{
    return memory != NULL && memory->on_gpu ? SYI_ON_GPU : SYI_IN_CPU;
}

/* SY_OK, or DEVICE: the comm has memory on another CUDA device than the context, or its transport is for one. */
sy_status syi_comm_check_device(sy_ctx *ctx, const sy_comm *comm, const struct syi_memory *memory);

/* From now on it has memory on the device of the context. */
void syi_comm_bind_device(const sy_ctx *ctx, sy_comm *comm, const struct syi_memory *memory);

/* A segment of `bytes` in this process: shared if the comm can, else plain. Collective and blocking; the outcome is the
   same in all processes. *index on success. */
sy_status syi_segment_open(sy_comm *comm, sy_ctx *ctx, const struct syi_memory *memory, size_t bytes,
                           int *index);

/* Memory of another process is kept until that process closes it. On a GPU: COMM, TIMEOUT; the memory is then kept. */
sy_status syi_segment_close(sy_comm *comm, int index);
void syi_segment_close_all(sy_comm *comm); /* collective; a comm that breaks keeps what it has */

/* This process gives up, so that its program may write over rows that others read in place. Whether another has: asked when its window
   has been read. */
void syi_comm_give_up(sy_comm *comm);
bool syi_comm_gave_up(const sy_comm *comm, int device);

/* The segment that contains [data, data + bytes), SYI_NO_SEGMENT when none does or it is not shared. */
int syi_segment_of(const sy_comm *comm, enum syi_kind kind, const void *data, size_t bytes, size_t *offset);

/*
 * Grows the stage's slots to this size, in steps that do not wait: the caller gathers comm->share of _begin into
 * comm->shares and comm->outcome of _attach into comm->statuses; _end returns whether all processes succeeded. If one
 * did not, nothing is shared any more. The old stage is kept until the comm is destroyed: open requests may use it. The
 * same bytes in all processes.
 */
void syi_stage_begin(sy_comm *comm, sy_ctx *ctx, const struct syi_memory *memory, size_t slot_bytes);
void syi_stage_attach(sy_comm *comm, sy_ctx *ctx);
bool syi_stage_end(sy_comm *comm);

/* The same in CPU memory, blocking: SY_OK, NOMEM, COMM, TIMEOUT. */
sy_status syi_stage_grow(sy_comm *comm, size_t slot_bytes);

/* ---- Agreement (agree.c) ---- */

/* Collective calls that are no operators; they follow enum syi_op_id in syi_header.op. */
enum syi_comm_call {
    SYI_COMM_ALLOC = 200,
    SYI_COMM_FREE,
    SYI_COMM_RESERVE,
    SYI_COMM_REJECT,
    SYI_COMM_ALLOC_DEVICE
};

/* What every process sends to all others at the start of a collective call. */
struct syi_header {
    uint8_t version; /* of this struct */
    uint8_t op;      /* enum syi_op_id or syi_comm_call */
    uint8_t status;  /* sy_status of its own checks */
    uint8_t slot;    /* of the stage; or of TABLE_IN_PLACE */
    uint8_t stage;   /* segment of its staged rows */
    uint8_t window;  /* segment that holds its rows; of sy_comm_free: the one to close */
    uint8_t axis;    /* sy_axis of the call */
    uint8_t flags;   /* SYI_RAGGED and others */
    uint64_t sequence;
    uint64_t params;   /* hash of everything that must be equal in all processes; sealed on the wire */
    uint64_t mapping;  /* hash of the mapping */
    uint64_t routing;  /* hash of choices, or number of the routing: equal in a group; or of TABLE_IN_PLACE */
    uint64_t offset;   /* offset of its rows in the window */
    uint32_t tokens;   /* tokens of the device */
    uint32_t capacity; /* rows its tokens tensor holds */
    uint32_t table;    /* fewest rows of tensors with one for each token of the group */
    uint32_t requested; /* pages it must still copy into the stage before others may read; 0: done. For
                         sy_comm_reserve: pages of a slot */
};
_Static_assert(sizeof(struct syi_header) == 64, "a header is one cache line");

enum { SYI_HEADER_VERSION = 3, SYI_TEXT_BYTES = 472 };

/* RAGGED: token counts may differ. LISTS_ON_GPU: its GPU can list rows, which happens if all can. WHOLE: the rows of a combine are
   staged as they are in its input, not only those for others. TABLE_IN_PLACE: its choices are in the segment `slot`, from `routing` on. */
enum { SYI_RAGGED = 1, SYI_LISTS_ON_GPU = 2, SYI_WHOLE = 4, SYI_TABLE_IN_PLACE = 8 };

/* Whether its rows are read in memory of sy_comm_alloc, a window (not MPI's); else in the stage, which is then both segments. */
static inline bool syi_header_windowed(const struct syi_header *header)
{
    return header->window != header->stage;
}

/* The record of a process when a call is rejected: its sentence, or the arguments of its call. */
struct syi_notice {
    char text[SYI_TEXT_BYTES];
    int32_t code;
    int32_t unused;
    int64_t batch, position, value, limit;
};

/* Differences between two headers; the first is reported. */
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

/* The common result of comparing the headers. */
struct syi_verdict {
    sy_status status;
    int device; /* the lowest that failed, or that differs */
    int other;  /* the device it differs from; -1: it failed on its own */
    enum syi_difference what;
};

/* In messages `params` is combined with a hash of all other fields. A second call undoes that; a header that was damaged
   in between then differs in its parameters. */
void syi_seal_header(struct syi_header *header);

struct syi_verdict syi_validate_headers(const sy_comm *comm, const struct syi_header *header);

/* The sentence and fault of a verdict, from the records of the two devices. `op`: the call of the other device. */
void syi_fail_verdict(sy_ctx *ctx, const char *op, const struct syi_verdict *verdict,
                      const struct syi_notice *of_device, const struct syi_notice *of_other);

/* Whole pages of so many bytes; saturates at what a header can hold, which is more than any machine has. */
static inline uint32_t syi_pages(size_t bytes)
{
    const size_t pages = bytes / SYI_PAGE + (bytes % SYI_PAGE > 0);
    return pages > UINT32_MAX ? UINT32_MAX : (uint32_t)pages;
}

/* Limit of a wait in nanoseconds; 0: none. */
uint64_t syi_comm_limit(const sy_comm *comm);

/* A process may never answer again: what is under way ends, and no further call begins. */
void syi_comm_break(sy_comm *comm);

/* Gathers `bytes` of every process and waits for them, outside of any request; the comm is broken if that fails. */
sy_status syi_comm_gather(sy_comm *comm, const void *mine, size_t bytes, void *all);

/* The status of the lowest device whose status is not SY_OK, in all processes. Waits for them. */
sy_status syi_comm_agree(sy_comm *comm, sy_status status);
