/*
 * Exchanges between devices, one code for every kind of comm: a case is a problem on a whole mesh with all its data; a
 * call is what the devices of this process contribute to it, with the bytes that must come out. No function here fails
 * a test by itself, so that threads and processes can use them.
 *
 *     for (int i = 0; i < mesh_case_count(sy_comm_mesh(comm)); i++)
 *         if (!run_mesh_case(ctx, comm, i, why, sizeof why)) ...                collective: every process runs each case
 */
#pragma once

#include <switchyard_describe.h>

#include "oracle/all_to_all.h"

/* ---- Cases ---- */

enum { MESH_PLANES = SY_A2A_MAX_PLANES - 1, MESH_FORMATS = 8 };

struct mesh_case {
    struct a2a_case a2a; /* points to mapping and chosen below */
    int64_t hidden;
    DLDataType type, index_type, weight_type, mask_type;
    int n_planes;
    DLDataType plane_type[MESH_PLANES];
    int64_t plane_width[MESH_PLANES];
    sy_fill fill;
    bool strict_unique;
    bool local_reduce, sum, weighted; /* of combine */
    bool combines;                    /* what mesh_call_new makes of it; of a line */
    int64_t max_tokens;               /* when ragged */

    /* Dispatch makes codes: `type` is that of codes, and plane n_planes, which is no input, has the scales. */
    bool coded;
    sy_row_format format;
    int named;        /* its word in the description; 0: it has none */
    bool scale_bytes; /* scales of 8 bits as bytes */
    DLDataType dense_type;

    /* Combine gets codes of `format`, with scales; `type` is that of sums. */
    bool coded_results;
    DLDataType code_type;

    /* How it is asked for. None of this changes a byte of a result. */
    int form;         /* of token dimensions: [B,1,S], [B,S,1], [N] */
    bool short_out;   /* [T] and [N] in outputs */
    int mapping_form; /* [E,D], [1,1,E,D], [D,1,E,D] */
    int64_t gap;      /* elements between rows */
    size_t misalign;
    bool without;    /* leaves optional outputs out */
    bool by_routing; /* combine gets a routing in place of metadata and mapping */
    bool repeat;     /* and repeats what the routing knows */
    int64_t spare;   /* rows too many in PACKED and EXPERT */
    int64_t room;    /* or so many rows of every device, whatever it gets; 0: no */
    int num_links;
    sy_topology topology;
    sy_memory memory;

    /* Data of all devices, dense. */
    uint16_t *mapping;
    int64_t *chosen[A2A_DEVICES];      /* [N,K] */
    unsigned char *rows[A2A_DEVICES];  /* [N,H] of dispatch; codes, if those are what it sends */
    unsigned char *dense[A2A_DEVICES]; /* [N,H] numbers that they are made of */
    unsigned char *planes[MESH_PLANES][A2A_DEVICES]; /* [N,X] */
    unsigned char *results[A2A_DEVICES];             /* input of combine; rows nobody asks for are NaN */
    unsigned char *scales[A2A_DEVICES];              /* of results that are codes */
    unsigned char *weights[A2A_DEVICES];             /* [N,K] */
};

/* Where the choices of a case come from: a number of this name, one of the n from `least` on. */
struct mesh_reader {
    int64_t (*draw)(void *user, const char *name, int64_t least, int64_t n);
    void *user;
};
void mesh_case_make(struct mesh_case *m, sy_mesh mesh, const struct mesh_reader *in);

/* A case of stated numbers, as in tests/case: "combine=1 B=2 S=3 K=2 E=6 H=5". What a line leaves out is the least; of several
   numbers for a name the first counts. */
void mesh_case_line(struct mesh_case *m, sy_mesh mesh, const char *line);

/* A random case; the same for the same mesh and number. mesh_case_data fills in what a case by hand has left NULL. */
void mesh_case_random(struct mesh_case *m, sy_mesh mesh, int number);
void mesh_case_data(struct mesh_case *m, uint64_t seed);
void mesh_case_renew(struct mesh_case *m, int64_t hidden,
                     uint64_t seed); /* other contents, rows of another length; of whole groups */
void mesh_case_free(struct mesh_case *m);

int64_t mesh_case_groups(const struct mesh_case *m); /* scales of a row of codes */
DLDataType mesh_case_scale_type(const struct mesh_case *m);
DLDataType mesh_case_input_type(const struct mesh_case *m, bool combines);
int64_t mesh_case_row_bytes(const struct mesh_case *m, bool combines); /* that travel for a row */

/* ---- Calls ---- */

enum mesh_field {
    MESH_INPUT,
    MESH_INDICES, /* metadata of combine */
    MESH_MAPPING,
    MESH_WEIGHTS,
    MESH_PLANE,                             /* scales of combine */
    MESH_TOKENS = MESH_PLANE + MESH_PLANES, /* output of combine */
    MESH_METADATA,
    MESH_PLANE_TOKENS,                           /* scales of its output */
    MESH_MASK = MESH_PLANE_TOKENS + MESH_PLANES, /* present, written */
    MESH_SRC,
    MESH_COUNTS,
    MESH_OFFSETS,
    MESH_FROM,
    MESH_TO,
    MESH_FIELDS
};

struct mesh_tensor {
    const char *name;
    int64_t shape[4], strides[4];
    unsigned char *block;      /* its memory, with what is before and after it */
    unsigned char *mem, *want; /* what it holds, and what it must hold after the call */
    unsigned char *before;
    size_t bytes, step, row_bytes; /* of all, from row to row, of a row */
    int64_t rows;
};

/* One call. It must not be copied: the arguments point into it. */
struct mesh_call {
    const struct mesh_case *of;
    int shards, first; /* devices of this process */
    bool combines;
    sy_all_to_all_dispatch_args dispatch;
    sy_all_to_all_combine_args combine;
    DLTensor fields[MESH_FIELDS][A2A_DEVICES];
    struct mesh_tensor tensors[MESH_FIELDS][A2A_DEVICES];
};

/* routing NULL: dispatch leaves none behind; combine uses one if it is given. */
struct mesh_call *mesh_call_new(const sy_comm *comm, const struct mesh_case *m, sy_routing *routing);
struct mesh_call *mesh_dispatch_new(const sy_comm *comm, const struct mesh_case *m, sy_routing *routing);
struct mesh_call *mesh_combine_new(const sy_comm *comm, const struct mesh_case *m, const sy_routing *routing);
void mesh_call_free(struct mesh_call *call);

const sy_op_info *mesh_call_op(const struct mesh_call *call);
void *mesh_call_args(struct mesh_call *call);
struct mesh_tensor *mesh_call_tensor(struct mesh_call *call, const DLTensor *t); /* of fields */

sy_status mesh_call_run(sy_ctx *ctx, sy_comm *comm, struct mesh_call *call);
sy_status mesh_call_start(sy_ctx *ctx, sy_comm *comm, struct mesh_call *call, sy_request **request);

/* The call by its description, with outputs that sy_infer_mesh gives; those it cannot give are the call's own. */
sy_status mesh_call_described(sy_ctx *ctx, sy_comm *comm, struct mesh_call *call);
void mesh_call_reset(struct mesh_call *call); /* all tensors as they were before the call */

/* Every byte is what it must be; as before the call. */
bool mesh_call_check(struct mesh_call *call, char *why, size_t why_bytes);
bool mesh_call_untouched(struct mesh_call *call, char *why, size_t why_bytes);

/* Runs the call, checks it, and frees it; on failure `why` has a sentence. */
bool mesh_call_right(sy_ctx *ctx, sy_comm *comm, struct mesh_call *call, char *why, size_t why_bytes);

/* What a process of one device may send and receive, in bytes of rows: those that another device needs, each once. */
void mesh_call_bytes(const struct mesh_call *call, int64_t *sent, int64_t *received);

/* ---- Worked examples ---- */

int mesh_example_count(void);
sy_mesh mesh_example_mesh(int number);
void mesh_example_make(struct mesh_case *m, int number);

/* Whether what the oracle wants of a call is what was written by hand. */
bool mesh_example_agrees(const struct mesh_call *call, int number, char *why, size_t why_bytes);

/* ---- Cases by number ---- */

/* The worked examples of the mesh come first. */
int mesh_case_count(sy_mesh mesh);

/* Dispatch, then combine, each compared with the oracle. All processes of the comm call it with the same number; each
   tells of its own devices. On failure `why` has a sentence. */
bool run_mesh_case(sy_ctx *ctx, sy_comm *comm, int number, char *why, size_t why_bytes);

/* All of them; `why` is of the first that failed. No process leaves early: the others would wait. */
bool run_mesh_cases(sy_ctx *ctx, sy_comm *comm, char *why, size_t why_bytes);
