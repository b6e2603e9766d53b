/*
 * switchyard bench --cliffs N: random neighbours of the cases, whose time per byte is compared with that of the case
 * they come from. Sizes that a kernel may depend on change by up to two; rows get odd lengths, and on a device begin
 * between vectors.
 */
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TEXT = 96 };

/* More than this many times the time per byte is a cliff. A call below `least_seconds` is not expected to get faster. */
static const double most_times = 2, least_seconds = 10e-6;

/* Between half and twice the size. A few odd ones are as likely as multiples of `unit`, unless only these are allowed. */
static long vary(long size, long unit, bool odd, uint64_t *state)
{
    const long other = (long)((double)size * exp2(2 * random_unit(state) - 1));
    if (odd && random_unit(state) < 0.5)
        return other + 1 - other % 2;
    return other < unit ? unit : other / unit * unit;
}

/* What follows a number between two texts; NULL: it is not there. */
static const char *read_size(const char *at, const char *before, const char *after, long *size)
{
    if (strncmp(at, before, strlen(before)) != 0)
        return NULL;
    char *end;
    *size = strtol(at + strlen(before), &end, 10);
    return end != at + strlen(before) && strncmp(end, after, strlen(after)) == 0 ? end + strlen(after) : NULL;
}

/* The word at `at` with another size, if it names one that may change; returns its length. */
static int vary_word(const char *op, const char *shape, const char *at, char *text, int room, uint64_t *state)
{
    const bool coded = strstr(shape, "fp8") || strstr(shape, "mx") || strstr(shape, "int8");
    const bool whole = strstr(shape, "swizzle") != NULL; /* tokens are tiled */
    const int length = (int)strcspn(at, " ");
    const char *const end = at + length, *next;
    long first, second;
    if (random_unit(state) < 0.3)
        return snprintf(text, (size_t)room, "%.*s", length, at);
    if ((next = read_size(at, "[", ",", &first)) != NULL && read_size(next, "", "]", &second) == end)
        return snprintf(text, (size_t)room, "[%ld,%ld]", vary(first, 1, true, state),
                        vary(second, 1000, true, state));
    if (read_size(at, "T=", "", &first) == end)
        return snprintf(text, (size_t)room, "T=%ld",
                        whole ? vary(first, 128, false, state) : vary(first, 1, true, state));
    if (read_size(at, "H=", "", &first) == end)
        return snprintf(text, (size_t)room, "H=%ld", vary(first, coded ? 512 : 8, !coded, state));
    if (at == shape && strncmp(op, "kv_", 3) == 0 && read_size(at, "", " B", &first) != NULL)
        return snprintf(text, (size_t)room, "%ld", 2 * vary(first / 2, 8, true, state));
    return snprintf(text, (size_t)room, "%.*s", length, at);
}

static void vary_shape(const char *op, const char *shape, char *text, uint64_t *state)
{
    int used = 0;
    for (const char *at = shape; *at != '\0' && used < MOST_TEXT - 32; at += *at == ' ') {
        used += vary_word(op, shape, at, text + used, MOST_TEXT - 32 - used, state);
        at += strcspn(at, " ");
        used += snprintf(text + used, (size_t)(MOST_TEXT - used), "%s", *at == ' ' ? " " : "");
    }
    if (random_unit(state) < 0.25)
        snprintf(text + used, (size_t)(MOST_TEXT - used), " offset=2");
}

/* Measures the form and adds its time; false where it could not be. */
static bool measure(struct bench *bench, const struct bench_op *op, const char *shape,
                    struct bench_record *found)
{
    bench->n_records = 0;
    bench->op = op;
    bench_described(bench, op, shape);
    *found = bench->records[0];
    return bench->n_records > 0;
}

void bench_cliff(struct bench *bench, const struct bench_op *op, const char *shape)
{
    char text[MOST_TEXT];
    struct bench_record own, other;
    vary_shape(op->name, shape, text, &bench->seed);
    if (!measure(bench, op, shape, &own) || !measure(bench, op, text, &other))
        return;
    const double expected = fmax(own.seconds * other.bytes / own.bytes, fmin(own.seconds, least_seconds)),
                 times = other.seconds / expected;
    bench->cliffs += times > most_times;
    printf("%*s  %.2f times the time per byte%s\n", bench->op_width, "", times,
           times > most_times ? ": a cliff" : "");
}
