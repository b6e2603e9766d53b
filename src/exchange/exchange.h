/*
 * The operators between devices after their check. A device has a position in its group; a group is the mesh, a column or a row of it.
 *
 *     request --- shard 0, 1, ...    the tensors of each device of this process, and where its output rows come from (`pick`)
 *        |------- header [D]         what every device has sent: hashes, numbers of tokens, the place of its rows
 *        |------- by --> routing     hosts of every expert, choices of every token of a group; `own`, or one that the caller keeps
 *        |------- sends, receives    rows by position, made only where rows are packed or sent in messages
 *        `------- travel             memory on a GPU through which packed rows are sent
 *
 *     pick (position, row) -> source[position] -> a tensor of this process | a window or stage of another, in shared memory | a message
 *
 * A request advances through its steps in this order; those in brackets are skipped where nothing needs them:
 *
 *     HEADER -> [GROW -> MAPPED -> PUBLISH] -> CHOICES -> [FITS] -> ROWS -> [FENCE] -> DONE
 *       |          `--- sharing failed: FALLBACK ---^        |
 *       `---- a process rejects, or headers differ ----------`--> REJECTED -> DONE     in one process: QUEUED (on a GPU) -> DONE
 *
 * Invariants
 * - All processes take the same steps: every decision depends only on data that all of them have. What one process chooses alone (its slot
 *   of the stage, the order in which it frees requests) identifies no message.
 * - Messages of one kind begin in order of the requests; a request waits for older ones before it sends.
 * - Everything is allocated and laid out before the header is sent (syi_exchange_reserve): only the transport or a device can fail later,
 *   which breaks the comm.
 * - Nothing is written to an output before all processes agree, and memory that a header names is checked before it is read.
 *
 * Terms: a device is a rank of the mesh, no GPU; a window is memory of sy_comm_alloc (no MPI_Win), whose rows are read in place; the stage
 * is shared memory into which other rows are copied, one slot for each request; choices are expert_indices of all tokens, in a table, and
 * metadata is their copy for the caller; a fence (no MPI_Win_fence) ends when all processes have read.
 *
 * engine.c has the steps, request.c the calls, routing.c routings, exchange_rows.c lists and rows in shared memory, exchange_messages.c
 * rows in messages, exchange_tables.c the other outputs, exchange_counts.c sizes and rejections, exchange_gpu.c what a GPU runs.
 */
#pragma once

#include "comm/comm.h"
#include "cpu/all_to_all.h"
#include "plan/mesh_device.h"
#include "plan/plan.h"

/* The part of a call that is equal for all devices. */
struct syi_exchange {
    enum syi_op_id id; /* SYI_ALL_TO_ALL_DISPATCH or _COMBINE */
    sy_axis axis;
    int n_positions; /* G */
    int dim;         /* dimension along which the tokens of a group are concatenated, 1 or 2 */
    sy_a2a_order order;
    int64_t batch, run; /* B, S of a device; 0: only B*S is known */
    int64_t interleave; /* S where a group's tokens are interleaved, else 0 */
    int64_t max_tokens; /* of a device; exactly so many unless ragged */
    bool ragged;
    struct syi_a2a_rule rule;   /* of replicas */
    int64_t n_slots, n_experts; /* K, E */
    sy_type index_type;
    sy_a2a_layout layout;
    int64_t align, expert_rows;
    bool zero, strict, local_reduce, sum;
    int64_t hidden; /* elements of a row */
    sy_type type;   /* of them, for sum */
    int n_planes;
    size_t row_bytes[SY_A2A_MAX_PLANES];
    uint64_t elem_types; /* of the planes and of codes, for the comparison between devices */
    /* `given`: a dispatch makes codes of rows before they are sent; a combine adds numbers of codes. The last plane has scales. */
    struct syi_row_codes_plan codes;
    int num_links;
    sy_topology topology;
    struct syi_rows mapping; /* [copies,E,D] */
    bool mapping_in_cpu;     /* in CPU memory, wherever other tensors are */
    int64_t n_copies;
    sy_routing *routing; /* of the caller: an input if reused, else an output; NULL: none */
    bool reuses_routing; /* it is given: no choices are read or gathered */
};

/* The memory of a device's tensors, to compare with that of other devices of this process. */
struct syi_a2a_span {
    const DLTensor *t;
    uintptr_t start, end;
    const char *name;
    bool out;
};

/* The rows of a device's output: made by syi_exchange_lists when all choices are known, in memory of the request. */
struct syi_a2a_listed {
    const struct syi_a2a_group *group;
    int position;
    int64_t n_rows;
    struct syi_a2a_pick *pick; /* [n_rows] */
    int32_t *slot;             /* [n_rows] of EXPERT with `src`; else NULL */
    struct syi_rows *source;   /* [n_planes][G+1], by syi_exchange_find_sources or when messages are sent */
};

/* Outputs of a dispatch besides rows; absent ones are NULL. */
struct syi_a2a_extras {
    struct syi_rows metadata; /* where those of the group go */
    struct syi_rows src;
    unsigned char *expert_counts, *expert_offsets, *rows_from, *rows_to;
};

/* One device of this process: what `check` of the operator finds in its arguments, which then stays as it is. */
struct syi_a2a_shard {
    int device;
    int64_t n_tokens; /* own tokens */
    struct syi_rows from[SY_A2A_MAX_PLANES], to[SY_A2A_MAX_PLANES];
    struct syi_rows dense;      /* numbers that become codes: from[0] and the last of `from` */
    struct syi_rows indices;    /* dispatch: of its own tokens; combine: of the group's */
    struct syi_rows mask;       /* present [1,T], written [K,N] */
    int64_t table;              /* rows of tensors with one for each token of the group, the fewest */
    int64_t n_slots, n_experts; /* the arguments of its call, if devices disagree */
    size_t row_bytes;
    int64_t capacity;             /* dispatch: rows of the tokens tensor */
    struct syi_a2a_extras extras; /* dispatch */
    int64_t input_rows;           /* combine: rows of the input, per local expert when PADDED */
    int64_t input_first;          /* combine, PADDED: extent of its expert dimension */
    struct syi_rows weights;      /* combine with sum */
    sy_type weight_type;

    /* Of `contents`. */
    struct syi_rows read; /* dispatch: indices in CPU memory, until the context reads again */
    uint64_t table_hash;  /* combine: of its table of choices */

    struct syi_a2a_listed out;
};

struct sy_routing {
    sy_comm *comm;
    bool filled;
    bool on_gpu;                      /* its choices are in `device` */
    bool fetched;                     /* and in CPU memory, too */
    struct syi_device_routing device; /* swapped between processes only: graphs may use it */
    uint64_t epoch;                   /* sequence number of the dispatch that filled it */
    struct syi_block block;           /* of everything below */
    struct syi_exchange of;           /* the call that made it */
    struct syi_a2a_hosts hosts;
    struct syi_a2a_replicas replicas; /* with a rule; `choice` then holds pairs */
    unsigned char *mapping;           /* [E,D] the hosts were read from */
    size_t mapping_bytes;             /* 0: not read yet */
    int n_groups;                     /* of this process */
    struct syi_a2a_group *group;      /* [n_groups] */
    int64_t *first;                   /* [n_groups][G+1] */
    int32_t *choice;                  /* [n_groups][T,K] */
    int64_t *tokens;                  /* [shards] own tokens of each */
    int64_t *need;                    /* [D] on_gpu, between processes: rows of every device; not of PADDED */
};

/* Steps of a request, in order: see `steps` in engine.c. */
enum syi_step {
    SYI_STEP_HEADER,   /* headers are exchanged */
    SYI_STEP_GROW,     /* the stage is too small in some processes: each makes its part of a larger one */
    SYI_STEP_MAPPED,   /* whether all have mapped the parts of the others */
    SYI_STEP_PUBLISH,  /* processes that had no stage publish their rows */
    SYI_STEP_FALLBACK, /* sharing has ended: whether all can use messages; or list rows in the host */
    SYI_STEP_CHOICES,  /* those of all tokens are gathered */
    SYI_STEP_FITS,     /* whether all rows fit */
    SYI_STEP_ROWS,     /* the routing is known: rows move */
    SYI_STEP_FENCE,    /* others may still be reading ours */
    SYI_STEP_REJECTED, /* all gather the reason of the rejection */
    SYI_STEP_QUEUED,   /* a GPU works on it */
    SYI_STEP_DONE
};

/* How far a call is. `enter` sets step and clears posted; everything else is set once, and stays until the next call. */
struct syi_progress {
    enum syi_step step;
    bool posted;                     /* the step's message has been sent */
    bool waiting[SY_A2A_MAX_PLANES]; /* for these operations of the transport */
    sy_transport_ticket ticket[SY_A2A_MAX_PLANES];
    bool chosen;           /* choices were read while they were validated */
    bool choices_packed;   /* lists.mine_raw is filled */
    bool listed;           /* picks and lists are made, or list_status is why they are not */
    sy_status list_status; /* whether rows fit */
    bool packing;          /* rows on a GPU are being packed, or read in place */
    bool reached_routed;   /* the phase */
};

/* How the rows of a call move. All but by_gpu is decided before the header is sent. */
struct syi_way {
    bool runs_on_gpu;   /* the whole call, in one process: see exchange_gpu.c */
    bool marked;        /* then: `mark` ends when it has */
    bool direct;        /* between processes: rows are read in place; ends if sharing does */
    bool windowed;      /* its own rows are in memory that others can read; then direct */
    bool by_gpu;        /* the GPU lists the rows, in all of them: known from the headers; then direct */
    size_t stage_bytes; /* the data of this process that others read; 0 unless direct */
};

/* What waits return: valid in step DONE. */
struct syi_result {
    sy_status status;
    sy_fault fault;
    char error[512];
    uint64_t bytes; /* for the trace */
};

/* What processes have exchanged. `header` is valid from the end of step HEADER on, `verdict` too; `notices` in REJECTED. */
struct syi_agreement {
    struct syi_header mine, sent; /* plain, and as sent */
    struct syi_header *header;    /* [D] */
    struct syi_verdict verdict;
    struct syi_notice notice;   /* of this process */
    struct syi_notice *notices; /* [D] */
    size_t *counts;             /* [G] bytes of each position's table */
};

/* What syi_exchange_reserve lays out in the block of the request, before the header is sent: of one call. */
struct syi_request_lists {
    int64_t n_sends, n_receives; /* longest lists */
    unsigned char *raw;          /* [T,K] gathered indices, by position */
    unsigned char *mine_raw;     /* [N,K] those of this process, next to each other */
    int64_t *starts;             /* [G] on a GPU: the first row staged for each position */
    int64_t n_counters;          /* of each task */
    int64_t *counters, *expert_counts, *expert_offsets;
    struct syi_a2a_lists sends, receives;
    bool has_sends, has_receives;             /* they are made */
    int32_t *seen;                            /* [T] */
    unsigned char *packed[SY_A2A_MAX_PLANES]; /* packed rows to send */
    unsigned char *landed[SY_A2A_MAX_PLANES]; /* received rows */
    struct syi_a2a_pick *send_pick;           /* [n_sends] of rows on a GPU */
    struct syi_a2a_device *devices;           /* [D] on a GPU: what it needs to list rows */
    sy_transport_rows *send[SY_A2A_MAX_PLANES], *recv[SY_A2A_MAX_PLANES]; /* [G] */
    struct syi_a2a_job *jobs;                                             /* [shards] */
    int64_t *fan_first;                                                   /* [T+2] */
    struct syi_a2a_place *fan_place;
    struct syi_a2a_sum *sums; /* [shards] */
    void *add_scratch;
    int threads; /* it is large enough for */
};

/* A place for a call. It and the arrays of its parts are made with the comm; open_request begins a call, whose parts become valid
   as they say. */
struct sy_request {
    sy_comm *comm;
    int slot;     /* of the stage. Each process chooses it on its own: it identifies no message */
    bool open;    /* until the caller frees it */
    bool fencing; /* of the last call, also when it is closed: the slot may not be written before the end */
    sy_transport_ticket fence;
    struct syi_mark mark;     /* kept from call to call, as the next three are */
    struct syi_travel travel; /* of rows on a GPU */
    struct syi_block block;   /* of `lists` */
    struct sy_routing own;    /* made here, swapped with the caller's */

    /* The call. */
    sy_ctx *ctx;
    uint8_t op;                         /* enum syi_op_id or syi_comm_call */
    const struct syi_exchange_op *kind; /* of an operator */
    uint64_t sequence; /* number of the call, the same in all processes: identifies its messages */
    bool blocking;     /* the caller has no request: nothing waits for a device */
    uint64_t start_ns;

    /* Of an operator, by its `validate`. */
    struct syi_exchange x;
    const struct syi_memory *memory; /* of all tensors */
    struct syi_a2a_shard *shard;     /* [shards] */
    struct syi_a2a_span *spans;      /* [shards][SYI_MAX_TENSORS] */
    int *n_spans;                    /* [shards] */
    const struct sy_routing *by;     /* the routing in use */

    struct syi_progress now;
    struct syi_way way;
    struct syi_agreement agreed;
    struct syi_request_lists lists;
    struct syi_result result;
};

/* ---- The engine (engine.c) ---- */

struct syi_call; /* ops/call.h */

/* An operator between devices. The engine uses its description and calls `validate`; the rest is for `validate`. */
struct syi_exchange_op {
    const sy_op_info *info;
    /* Validates a call and fills request->x, its shards and its headers. */
    sy_status (*validate)(sy_ctx *ctx, const struct syi_exchange_op *op, const void *args, size_t args_bytes,
                          sy_request *r);
    /* Copies the arguments, and marks the tensors that this call does not use. */
    sy_status (*copy_args)(struct syi_call *call, const void *args, size_t args_bytes);
    /* Everything about one device that needs no data; fills x and shard. */
    sy_status (*check)(struct syi_call *call, const sy_request *r, struct syi_exchange *x,
                       struct syi_a2a_shard *shard);
    /* The data of one device. The first device's makes the routing. */
    sy_status (*contents)(struct syi_call *call, sy_request *r, const struct syi_exchange *x,
                          struct syi_a2a_shard *shard);
    /* Between processes, on a GPU: validates the choices of this process, which `contents` has not read; NULL: there are none. */
    sy_status (*choices)(sy_ctx *ctx, sy_request *r);
    /* The sentence of what a device found in those of all processes; NULL likewise. */
    sy_status (*fail_found)(sy_ctx *ctx, const struct syi_found *found);
    /* The fault that a GPU has reported, if any. */
    sy_status (*poll)(sy_ctx *ctx);
};

/* A validated request: completes it in one process, begins it between several. */
void syi_exchange_begin(sy_request *r, sy_status validated);

/* Advances all open requests of a comm as far as possible. */
void syi_exchange_progress(sy_comm *comm);

/* Whether the stream of the request's context is being captured: what it queues would not run, so it does not advance. */
bool syi_exchange_captured(const sy_request *r);

/* Fails a request that cannot end, and breaks the comm. */
void syi_exchange_break(sy_request *r, sy_status status);

const char *syi_call_name(uint8_t op); /* of enum syi_op_id or syi_comm_call */

/* The sentence of a transport that failed, or of a process that did not answer in time. */
sy_status syi_fail_transport(sy_ctx *ctx, const sy_comm *comm, sy_status status);

/* ---- Requests (request.c) ---- */

/*
 * Every collective call takes a number and part in one agreement, also when it is rejected in this process: otherwise
 * the others would wait for it, or pair with the next call. _begin clears the fault and checks context and comm; a call
 * without a context gets one for its sentence. _agree takes the status of the process and returns the outcome of all;
 * after SY_OK all processes are in this call, no request is open and no row is read any more.
 */
sy_status syi_call_begin(sy_ctx **ctx, sy_comm *comm, const char *name);
sy_status syi_call_agree(sy_ctx *ctx, sy_comm *comm, const struct syi_header *mine, sy_status found);

sy_status syi_exchange_start(sy_ctx *ctx, sy_comm *comm, const struct syi_exchange_op *op, const void *args,
                             size_t args_bytes, sy_request **request);
sy_status syi_exchange_run(sy_ctx *ctx, sy_comm *comm, const struct syi_exchange_op *op, const void *args,
                           size_t args_bytes);

/* Memory of a device; `memory` is that of the context's, NULL: it has none. */
sy_status syi_comm_alloc_device(sy_ctx *ctx, sy_comm *comm, size_t bytes, void **data,
                                const struct syi_memory *memory);

/* Waits until all requests have ended and no process reads our rows. */
void syi_exchange_close(sy_comm *comm);

/* ---- Routing (routing.c) ---- */

/* Allocates the routing of this call and reads the mapping; or uses the given one. */
sy_status syi_routing_begin(sy_request *r);
/* The order of every group's tokens, once their numbers are known. */
void syi_routing_order(sy_request *r);
/* The gathered indices of the tokens of one position. */
struct syi_rows syi_routing_table(const sy_request *r, const struct syi_a2a_group *group, int position);
/* The choices of all tokens. Once for each request. Fails on a GPU only. */
sy_status syi_routing_read(sy_request *r);

/* The hosts of what choices name: experts, or pairs where a rule has chosen one host. */
static inline const struct syi_a2a_hosts *syi_routing_hosts(const sy_routing *routing)
{
    return routing->of.rule.replica == SY_A2A_REPLICA_ALL ? &routing->hosts : &routing->replicas.hosts;
}

/* Choices that are on a GPU only, to CPU memory. A failure leaves its sentence in ctx->backend_error. */
sy_status syi_routing_fetch(sy_ctx *ctx, sy_routing *routing);
/* Whether an open dispatch will fill it. */
bool syi_routing_awaited(const sy_routing *routing);
/* Whether an older request still reads the routing that this one fills. */
bool syi_routing_busy(const sy_request *r);
/* Stores the routing in the caller's. */
void syi_routing_give(sy_request *r);

int64_t syi_routing_group_tokens(const sy_routing *routing, int device);

static inline size_t syi_index_bytes(sy_type type)
{
    return type == SY_TYPE_U16 ? 2 : type == SY_TYPE_I32 ? 4 : 8;
}

/* Bytes of the choices of a token; tokens of a group, at most. */
static inline size_t syi_exchange_choice_bytes(const struct syi_exchange *x)
{
    return (size_t)x->n_slots * syi_index_bytes(x->index_type);
}

static inline int64_t syi_exchange_max_tokens(const struct syi_exchange *x)
{
    return x->max_tokens * x->n_positions;
}

static inline bool syi_is_combine(const struct syi_exchange *x)
{
    return x->id == SYI_ALL_TO_ALL_COMBINE;
}

/* Whether rows become codes. */
static inline bool syi_exchange_encodes(const struct syi_exchange *x)
{
    return x->codes.given && x->id == SYI_ALL_TO_ALL_DISPATCH;
}

/* Codes and scales of a shard's own tokens. */
static inline struct syi_row_codes_plan syi_exchange_codes(const struct syi_exchange *x,
                                                           const struct syi_a2a_shard *shard)
{
    struct syi_row_codes_plan plan = x->codes;
    plan.n_rows = shard->n_tokens;
    plan.dense = shard->dense;
    plan.codes = shard->from[0];
    plan.scales = shard->from[x->n_planes - 1];
    return plan;
}

/* Rows of a device with so many experts, at most. false: more than INT32_MAX. */
static inline bool syi_exchange_max_rows(const struct syi_exchange *x, int64_t n_tokens, int64_t n_local,
                                         int64_t *rows)
{
    if (x->layout == SY_LAYOUT_EXPERT && x->expert_rows > 0)
        return syi_mul(n_local, x->expert_rows, rows) && *rows <= INT32_MAX;
    return syi_a2a_most_rows(n_tokens, x->n_slots, n_local, x->layout, x->align, rows);
}

/* ---- Counts (exchange_counts.c) ---- */

/* Tokens of a device and of its group, once headers have been exchanged. */
int64_t syi_exchange_tokens_at(const sy_request *r, int device);
int64_t syi_exchange_group_tokens(const sy_request *r, int device);
/* Checks counts that may differ and are known only from the headers of all processes; the sentence, the same in every process. */
struct syi_verdict syi_exchange_validate_counts(const sy_request *r);
void syi_exchange_note_counts(sy_request *r, struct syi_notice *notice);
/* expert_rows, before rows are listed: finds a device of this process that has an expert with more, or too few rows in all. */
sy_status syi_exchange_check_experts(sy_request *r);
sy_status syi_exchange_fail_experts(sy_request *r, int device, int64_t place, int64_t rows);
/* Finds a device of this process whose rows do not fit into its outputs; the same for a combine's input in these layouts. */
sy_status syi_exchange_check_capacity(sy_request *r);
sy_status syi_exchange_check_input(sy_request *r);
sy_status syi_exchange_fail_rows(sy_request *r, int device, const char *argument, int64_t found,
                                 int64_t want);
/* Whether a device may have more rows than fit, so that all processes must agree. */
bool syi_exchange_may_overflow(const sy_request *r);
/* For other processes: the error of a context; the arguments of this process's call, if they disagree. */
void syi_exchange_note_error(const sy_ctx *ctx, struct syi_notice *notice);
void syi_exchange_describe(const sy_request *r, const struct syi_exchange *x,
                           const struct syi_a2a_shard *shard, struct syi_notice *notice);
/* The sentence of SYI_BAD_TABLES_DIFFER, found on a GPU, in the words of a mesh in CPU memory. */
sy_status syi_exchange_fail_tables(sy_ctx *ctx, const char *op, const struct syi_found *found);

/* Other calls end when all processes have agreed. */
static inline bool syi_call_moves_rows(const sy_request *r)
{
    return r->op == SYI_ALL_TO_ALL_DISPATCH || r->op == SYI_ALL_TO_ALL_COMBINE;
}

/* ---- On a GPU (exchange_gpu.c) ---- */

/* In one process. Whether it runs there: when the first device's arguments are checked, and with the routing when replicas are known. */
bool syi_exchange_runs_on_gpu(const sy_request *r, const sy_routing *by);
sy_status syi_exchange_reserve_on_gpu(sy_request *r);
void syi_exchange_run_on_gpu(sy_request *r); /* queues it */
sy_status syi_exchange_poll(sy_request *r);  /* the step of a queued request: whether it has ended */
void syi_exchange_sync(sy_request *r);       /* waits until it has */
/* Between processes. Whether this one can list rows there; how many have said so in their headers. */
bool syi_exchange_lists_on_gpu(const sy_request *r);
int syi_exchange_list_on_gpu(const sy_request *r);
/* Queues that, and what reads the rows in place. */
sy_status syi_exchange_queue_on_gpu(sy_request *r);
/* Once it has ended: whether choices are good and rows fit, as the verdict of the request. */
void syi_exchange_read_counts(sy_request *r);
/* The same of a routing that a GPU has filled: whether rows fit. */
sy_status syi_exchange_check_counts(sy_request *r);
/* What was queued is written, so faults of earlier calls are known; the choices of this process are read, unless its GPU lists them. */
sy_status syi_exchange_wait_gpu(sy_request *r, sy_status staged);
/* The host reads and validates them. */
sy_status syi_exchange_read_choices(sy_request *r);
/* Of the dispatch that filled a routing. */
struct syi_a2a_plan syi_exchange_plan(const sy_routing *routing);
/* Of engine.c: ends a request, with the sentence of the context; or of a GPU that failed after all processes had agreed. */
void syi_exchange_finish(sy_request *r, sy_status status);
void syi_exchange_fail_gpu(sy_request *r, sy_status status);
/* Bytes that its trace reports, once the rows of its devices are known. */
void syi_exchange_count_bytes(sy_request *r);

/* ---- Rows (exchange_rows.c) ---- */

/* All scratch, so that nothing is allocated later. */
sy_status syi_exchange_reserve(sy_request *r);
/* Codes of rows; in one process after its devices agree. */
sy_status syi_exchange_encode(sy_request *r);
/* The source of every row, once all choices are known. */
void syi_exchange_lists(sy_request *r);
/* Metadata, counts, src, masks (exchange_tables.c). */
void syi_exchange_write_extras(sy_request *r);
/* Rows readable for others, on a GPU once they are waited for. Fails there only. */
sy_status syi_exchange_stage(sy_request *r);
/* A combine stages all of its rows, not only those of others. */
void syi_exchange_take_whole(sy_request *r);
/* A dispatch leaves its choices where others can read them; it stages them after all. */
void syi_exchange_take_table(sy_request *r);
void syi_exchange_leave_table(sy_request *r);
/* The slot of the stage that a header names. */
unsigned char *syi_exchange_slot(const sy_request *r, int device, const struct syi_header *header);
/* The rows of another process, of a plane each, and where its choices are: memory that its header names. */
void syi_exchange_tokens_of(const sy_request *r, int device, struct syi_rows *rows, unsigned char **table);

/* How memory of the request's kind is shared. */
static inline struct syi_sharing *syi_sharing_of(const sy_request *r)
{
    return &r->comm->sharing[syi_kind_of(r->memory)];
}

/* The lowest device whose header names memory that does not exist or is too small; -1: none. */
int syi_exchange_damaged(const sy_request *r);
/* Where rows that are read in place come from; returns -1, or the device whose memory is invalid. */
int syi_exchange_find_sources(sy_request *r);
void syi_exchange_direct(sy_request *r); /* reads them */
/* The sources of a device's rows, [G+1] of a plane. */
struct syi_rows *syi_exchange_sources_of(const sy_request *r, const struct syi_a2a_shard *shard, int plane);
/* Copies or adds the rows of all devices here from their sources; leaves lists.jobs of a copy behind. */
void syi_exchange_move_all(sy_request *r);
/* Lists by peer are made on demand: rows that are read in place need none. */
void syi_exchange_list_sends(sy_request *r);
void syi_exchange_list_receives(sy_request *r);
/* Of rows on a GPU: picks those for all peers, where each peer's begin unless `starts` is NULL, and returns how many. */
int64_t syi_exchange_pick_sends(sy_request *r, int64_t *starts);
/* Rows of a list for the positions before p: this process sends none to itself. */
int64_t syi_exchange_rows_before(const sy_request *r, const struct syi_a2a_lists *lists, int p);

/* ---- Messages (exchange_messages.c) ---- */

/* Rows on a GPU: queues what packs them. Failures of these three and of _unpack are the GPU's. */
sy_status syi_exchange_pack(sy_request *r);
/* Queues a mark behind what reads them in place. */
sy_status syi_exchange_reading(sy_request *r);
/* Whether either has ended. */
sy_status syi_exchange_packed(sy_request *r, bool *done);
/* Packs this process's indices, which were read, to be sent. */
void syi_exchange_pack_choices(sy_request *r);
/* Reads and packs them. On the CPU for the first time; on a GPU again: a later call may have used the buffer they were read into. */
sy_status syi_exchange_load_choices(sy_request *r);
/* Sends rows, and receives them. */
sy_status syi_exchange_post(sy_request *r);
/* They have arrived: moves them to their places. */
sy_status syi_exchange_unpack(sy_request *r);
