/*
 * What the parts of cuda_random share: its random numbers, and contents for the tensors of a call.
 */
#ifndef SWITCHYARD_TESTS_CUDA_RANDOM_H
#define SWITCHYARD_TESTS_CUDA_RANDOM_H

#include "fuzz/args.h"

extern uint64_t rng; /* its state; a seed makes a call */
int64_t below(int64_t n);
bool chance(int64_t one_of);

/* A whole number among the scalars of the call; 0: there is none of that name. */
int64_t scalar_of(const struct call *c, const char *name);

/* Writes contents into the tensor, which are valid together with those of the tensors before it, unless disturbed. */
void fill(struct call *c, const struct item *x, bool disturbed);
void forget(void); /* before each call, and at the end: frees what fill remembers of other tensors */

/* Where a call breaks a promise that no operator checks, its result is not specified: the promise is withdrawn. */
void settle(struct call *c);

#endif
