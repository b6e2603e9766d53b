/*
 * One exchange on its way: what the two operators hand to the engine, the routing it makes, and the request it lives in.
 * The engine (exchange.c) takes a request through its steps; the rows move in exchange_rows.c.
 */
#ifndef SYI_EXCHANGE_H
#define SYI_EXCHANGE_H

#include "comm/comm.h"
#include "cpu/all_to_all.h"
#include "base/plan.h"

/* What is equal for all devices of a call. */
struct syi_exchange {
    enum syi_op_id id; /* SYI_ALL_TO_ALL_DISPATCH or _COMBINE */
    sy_axis axis;
    int n_positions; /* G */
    int dim;         /* the tokens of a group are concatenated along, 1 or 2 */
    sy_a2a_order order;
    int64_t batch, run; /* B, S of a device; 0: known as B*S alone */
    int64_t interleave; /* S where a group's tokens are interleaved, else 0 */
    int64_t most;       /* tokens of a device, at most; exactly unless ragged */
    bool ragged;
    int64_t n_slots, n_experts; /* K, E */
    sy_type index_type;
    sy_a2a_layout layout;
    int64_t align;
    bool zero, strict, local_reduce, sum;
    int64_t hidden; /* elements of a row */
    sy_type type;   /* of them, for sum */
    int n_planes;
    size_t row_bytes[SY_A2A_MAX_PLANES];
    uint64_t elem_types; /* of the planes, for the comparison between devices */
    int num_links;
    sy_topology topology;
    struct syi_rows mapping; /* [copies,E,D] */
    int64_t n_copies;
    sy_routing *routing; /* of the caller: in where `routed`, else out; NULL: none */
    bool routed;         /* the routing is given: no table of choices is read or gathered */
};

/* Where a device's tensors lie, to compare them with those of other devices of this process. */
struct syi_a2a_span {
    const DLTensor *t;
    uintptr_t start, end;
    const char *name;
    bool out;
};

/* What belongs to one device of this process. */
struct syi_a2a_shard {
    int device;
    int64_t n_tokens;    /* at home here */
    int64_t room, table; /* rows of the tokens tensor, of the table of choices */
    struct syi_rows from[SY_A2A_MAX_PLANES], to[SY_A2A_MAX_PLANES];
    struct syi_rows indices;  /* dispatch: of its own tokens; combine: of the group's */
    struct syi_rows metadata; /* dispatch: where the group's go */
    struct syi_rows weights;  /* combine with sum */
    sy_type weight_type;
    int64_t input_rows;   /* combine: rows of the input, per local expert when PADDED */
    int64_t input_first;  /* combine, PADDED: extent of its expert dimension */
    struct syi_rows mask; /* present [1,T], written [K,N] */
    struct syi_rows src;
    unsigned char *expert_counts, *expert_offsets, *rows_from, *rows_to;
    uint64_t table_hash;        /* combine: of its table of choices */
    int64_t n_slots, n_experts; /* as it was called, should devices disagree */
    size_t row_bytes;

    /* Made by the engine. */
    const struct syi_a2a_group *group;
    int position;
    int64_t n_rows; /* of the output */
    struct syi_a2a_pick *pick;
    int32_t *slot;
    struct syi_rows *source; /* [n_planes][G+1] */
};

struct sy_routing {
    sy_comm *comm;
    bool filled;
    uint64_t epoch;         /* sequence number of the dispatch that filled it */
    struct syi_block block; /* of everything below */
    struct syi_exchange of; /* how it was made */
    struct syi_a2a_hosts hosts;
    unsigned char *mapping;      /* [E,D] the hosts were read from */
    size_t mapping_bytes;        /* 0: not read yet */
    int n_groups;                /* of this process */
    struct syi_a2a_group *group; /* [n_groups] */
    int64_t *first;              /* [n_groups][G+1] */
    int32_t *choice;             /* [n_groups][T,K] */
    int64_t *tokens;             /* [shards] at home on each */
};

/* Steps of a request, in order. A step's message goes out when it is entered. */
enum syi_step {
    SYI_STEP_HEADER,  /* all processes tell what they were called with */
    SYI_STEP_GROW,    /* some have no room to show their rows: each makes its part */
    SYI_STEP_ATTACH,  /* and reaches that of the others */
    SYI_STEP_STAGE,   /* those that had none show their rows */
    SYI_STEP_MESSAGE, /* sharing has ended: whether all are ready to use messages */
    SYI_STEP_TABLE,   /* the choices of all tokens come */
    SYI_STEP_AGREED,  /* whether all rows have room */
    SYI_STEP_ROWS,    /* it is known who sends what: rows move */
    SYI_STEP_FENCE,   /* others may still be reading ours */
    SYI_STEP_REFUSED, /* all tell why it does not go on */
    SYI_STEP_DONE
};

struct sy_request {
    sy_comm *comm;
    sy_ctx *ctx;
    bool open;
    uint8_t op;        /* enum syi_op_id or syi_comm_call */
    int slot;          /* of the stage. Each process chooses it alone: it identifies nothing on the wire */
    uint64_t sequence; /* number of the call, the same in all processes: its identity on the wire */
    enum syi_step step;
    bool posted;           /* the step's message is on its way */
    bool chosen;           /* choices were read while they were judged */
    bool listed;           /* picks and lists are made */
    sy_status list_status; /* whether rows have room */
    size_t stage_bytes;    /* what others are to read of this process */
    bool routed;           /* phase ROUTED is reached */
    bool direct;           /* rows are read where they lie */
    bool windowed;         /* its own rows lie where others can read them */
    bool
        fencing; /* a fence of an operation that is done is still out: nobody may write to the slot before it ends */
    bool waiting[SY_A2A_MAX_PLANES];
    sy_transport_ticket ticket[SY_A2A_MAX_PLANES], fence;
    sy_status status;
    sy_fault fault;
    char error[512];
    uint64_t start_ns, bytes;

    struct syi_exchange x;
    const struct syi_memory *memory; /* of all tensors */
    struct syi_a2a_shard *shard;     /* [shards] */
    struct syi_a2a_span *spans;      /* [shards][SYI_MAX_TENSORS] */
    int *n_spans;                    /* [shards] */
    struct syi_header mine, sent;    /* as it is, and as it goes over the wire */
    struct syi_header *header;       /* [D] */
    struct syi_verdict verdict;
    struct syi_notice notice;    /* of this process */
    struct syi_notice *notices;  /* [D] */
    size_t *counts;              /* [G] bytes of each position's table */
    struct sy_routing own;       /* made here, changes places with the caller's */
    const struct sy_routing *by; /* the one in use */

    struct syi_block block;      /* of everything below */
    int64_t n_sends, n_receives; /* longest lists */
    unsigned char *raw;          /* [T,K] indices as they came, by position */
    unsigned char *mine_raw;     /* [N,K] those of this process, next to each other */
    int64_t n_counters;          /* of each task */
    int64_t *counters, *expert_counts, *expert_offsets;
    struct syi_a2a_lists sends, receives;
    bool has_sends, has_receives;             /* they are made */
    int32_t *seen;                            /* [T] */
    unsigned char *packed[SY_A2A_MAX_PLANES]; /* rows that go, next to each other */
    unsigned char *landed[SY_A2A_MAX_PLANES]; /* rows that came */
    sy_transport_rows *send[SY_A2A_MAX_PLANES], *recv[SY_A2A_MAX_PLANES]; /* [G] */
    struct syi_a2a_job *jobs;                                             /* [shards] */
    int64_t *fan_first;                                                   /* [T+2] */
    struct syi_a2a_place *fan_place;
    struct syi_a2a_sum *sums; /* [shards] */
    void *add_scratch;
    int threads; /* it is large enough for */
};

/* ---- The engine (exchange.c) -------------------------------------------------------------------------- */

struct syi_call; /* ops/call.h */

/* An operator between devices. The engine knows its description and calls `validate`; the rest is for that. */
struct syi_exchange_op {
    const sy_op_info *info;
    /* Validates a call and fills request->x, its shards and its headers. */
    sy_status (*validate)(sy_ctx *ctx, const struct syi_exchange_op *op, const void *args, size_t args_bytes,
                          sy_request *request);
    /* Copies the arguments, and says which tensors this call does without. */
    sy_status (*prepare)(struct syi_call *call, const void *args, size_t args_bytes);
    /* Everything about one device that needs no data; fills x and shard. */
    sy_status (*check)(struct syi_call *call, const sy_request *request, struct syi_exchange *x,
                       struct syi_a2a_shard *shard);
    /* The data of one device. The first device's makes the routing. */
    sy_status (*contents)(struct syi_call *call, sy_request *request, const struct syi_exchange *x,
                          struct syi_a2a_shard *shard);
};

/* A request that was judged: does it in one process, begins it between several. */
void syi_exchange_begin(sy_request *request, sy_status judged);

/* Moves all open requests of a comm on as far as they go. */
void syi_exchange_progress(sy_comm *comm);

/* A request that will not end, and with it everything that goes through the comm. */
void syi_exchange_break(sy_request *request, sy_status status);

/* The sentence of a transport that failed, or of a process that did not answer in time. */
sy_status syi_fail_transport(sy_ctx *ctx, const sy_comm *comm, sy_status status);

/* ---- Requests (request.c) ----------------------------------------------------------------------------- */

/*
 * Every collective call takes a number and part in one agreement, also when it is rejected in this process: otherwise
 * the others would wait for it, or pair with the next call. _begin clears the fault and checks context and comm; a call
 * without a context gets one for its sentence. _agree takes what the process found and returns the outcome of all;
 * after SY_OK all processes are in this call, no request is open and no row is read any more.
 */
sy_status syi_call_begin(sy_ctx **ctx, sy_comm *comm, const char *name);
sy_status syi_call_agree(sy_ctx *ctx, sy_comm *comm, const struct syi_header *mine, sy_status found);

sy_status syi_exchange_start(sy_ctx *ctx, sy_comm *comm, const struct syi_exchange_op *op, const void *args,
                             size_t args_bytes, sy_request **request);
sy_status syi_exchange_run(sy_ctx *ctx, sy_comm *comm, const struct syi_exchange_op *op, const void *args,
                           size_t args_bytes);

/* Waits until all requests have ended and nobody reads our rows. */
void syi_exchange_close(sy_comm *comm);

/* ---- Routing (routing.c) ------------------------------------------------------------------------------ */

/* Makes room for the routing of this call and reads who hosts what; or takes the one that is given. */
sy_status syi_routing_begin(sy_request *request);

/* The order of every group's tokens, once their numbers are known. */
void syi_routing_order(sy_request *request);

/* Indices of the tokens of one position, as they came. */
struct syi_rows syi_routing_table(const sy_request *request, const struct syi_a2a_group *group, int position);

/* What all tokens chose. */
void syi_routing_read(sy_request *request);

/* Whether an open dispatch will fill it. */
bool syi_routing_awaited(const sy_routing *routing);

/* Whether an older request still reads the routing that this one fills. */
bool syi_routing_busy(const sy_request *request);

/* Hands a routing to the caller who asked for it. */
void syi_routing_give(sy_request *request);

int64_t syi_routing_group_tokens(const sy_routing *routing, int device);

/* Of the options that must be the same in all processes. */
uint64_t syi_a2a_hash_options(const sy_comm *comm);

static inline size_t syi_index_bytes(sy_type type)
{
    return type == SY_TYPE_U16 ? 2 : type == SY_TYPE_I32 ? 4 : 8;
}

/* ---- Rows (exchange_rows.c) --------------------------------------------------------------------------- */

sy_status syi_exchange_reserve(sy_request *request); /* all scratch: nothing is allocated later */
void syi_exchange_lists(sy_request *request);  /* where every row comes from, once all choices are known */
void syi_exchange_tables(sy_request *request); /* metadata, counts, sources */
void syi_exchange_stage(sy_request *request);  /* shows others the rows they will read */

/* The lowest device whose header names memory that does not exist or is too small; -1: none. */
int syi_exchange_damaged(const sy_request *request);

/* Reads rows in place; returns -1, or the device whose memory does not hold what it should. */
int syi_exchange_direct(sy_request *request);

sy_status syi_exchange_post(sy_request *request); /* sends rows, and receives them */
void syi_exchange_landed(sy_request *request);    /* they have come */

#endif
