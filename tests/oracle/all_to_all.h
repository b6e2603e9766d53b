/*
 * Truth for all_to_all_dispatch and all_to_all_combine, straight from the formulas: for every row of an output it searches
 * all devices, tokens and experts for the one that belongs there. Nothing is kept, sorted or sent.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbers.h"
#include "random.h"

enum { A2A_DEVICES = 8 };

/* One problem on the whole mesh. */
struct a2a_case {
    sy_mesh mesh;
    sy_axis axis;
    int dim; /* 1 or 2 */
    sy_a2a_order order;
    sy_a2a_layout layout;
    int64_t align;       /* of EXPERT, >= 1 */
    int64_t expert_rows; /* of EXPERT; 0: as many as there are */
    sy_a2a_replica replica;
    int64_t node_size;
    bool ragged;
    int64_t batch, seq;                 /* B, S of every device, when not ragged */
    int64_t tokens[A2A_DEVICES];        /* N of each device */
    int64_t experts, slots;             /* E, K */
    const uint16_t *mapping;            /* [E,D] */
    const int64_t *chosen[A2A_DEVICES]; /* [N,K] of each device; -1: none */
};

/* Where a row comes from. */
struct a2a_from {
    int device;   /* -1: from nowhere */
    int64_t row;  /* there: a token in dispatch, a row of the input in combine */
    int64_t slot; /* of the token, where an expert is meant */
};

int oracle_a2a_devices(const struct a2a_case *c);
int oracle_a2a_group(const struct a2a_case *c);                /* G */
int oracle_a2a_position(const struct a2a_case *c, int d);      /* of a device in its group */
int oracle_a2a_member(const struct a2a_case *c, int d, int q); /* the device at position q of d's group */
int64_t oracle_a2a_total(const struct a2a_case *c, int d);     /* T of d's group */
int64_t oracle_a2a_tau(const struct a2a_case *c, int s, int64_t n);

int64_t oracle_a2a_locals(const struct a2a_case *c, int d);            /* L */
int64_t oracle_a2a_expert(const struct a2a_case *c, int d, int64_t l); /* the l-th expert of a device */

/* The slot of a token that counts for an expert, or -1. */
int64_t oracle_a2a_live(const struct a2a_case *c, int s, int64_t n, int64_t e);

/* Does device d serve a choice of token n of device s? */
bool oracle_a2a_hit(const struct a2a_case *c, int d, int s, int64_t n);

/* Rows that device s sends to device d in a dispatch, and tokens of the l-th expert of a device. */
int64_t oracle_a2a_rows(const struct a2a_case *c, int s, int d);
int64_t oracle_a2a_count(const struct a2a_case *c, int d, int64_t l);

/* The rows of device d after a dispatch: how many; where each comes from (NULL: not asked). */
int64_t oracle_a2a_dispatch(const struct a2a_case *c, int d, struct a2a_from *from);

/* Slot k of token n at its home d after a combine. */
struct a2a_from oracle_a2a_combine(const struct a2a_case *c, int d, int64_t n, int64_t k, bool partial);

/* Rows of a combine's input on one device, H elements each. */
int64_t oracle_a2a_inputs(const struct a2a_case *c, int d, bool partial);

/* The sum over the slots of token n at home d: H elements of `type` from inputs[device], into `to`, of out_type. */
struct a2a_sum {
    DLDataType type, weight_type, out_type;
    int64_t hidden;
    const unsigned char *inputs[A2A_DEVICES];  /* dense rows */
    const unsigned char *weights[A2A_DEVICES]; /* [N,K], or NULL */
};
void oracle_a2a_sum(const struct a2a_case *c, const struct a2a_sum *sum, int d, int64_t n, bool partial,
                    unsigned char *to);
