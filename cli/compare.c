/*
 * switchyard compare A B: the accuracy metrics of the accelerator vendors, over two safetensors files.
 * A holds the evaluated tensors (e), B the baseline (b). Everything is computed in double precision.
 *   diff1   sum|e-b| / (sum|b| + eps)                   diff2   sqrt(sum(e-b)^2 / (sum b^2 + eps))
 *   diff3   max of |e-b| where |b| <= th, of |e-b| / (|b| + eps) elsewhere
 *   diff3_1 max |e-b| / |b|, where 0/0 is 0             diff3_2 max |e-b|
 *   diff4   share of e > b (p1) and of e < b (p2) among the n unequal elements
 *   bits    number of elements with different bits; any NaN equals any NaN, but with --nan-bits
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "emit.h"
#include "number.h"
#include "safetensors.h"

static const double eps = 1e-9;

enum metric { BITS, DIFF1, DIFF2, DIFF3, DIFF3_1, DIFF3_2, DIFF4, N_METRICS };
static const char *const metric_names[N_METRICS] = {"bits",    "diff1",   "diff2", "diff3",
                                                    "diff3_1", "diff3_2", "diff4"};

enum { MAX_NAMED = 32 };

struct compare {
    const char *paths[2];
    bool wanted[N_METRICS];
    double tolerance[N_METRICS];
    const char *named[MAX_NAMED]; /* --tensor */
    int n_named;
    bool as_json, exact_nan;
    struct st_file files[2];
    struct emit json;
    int width; /* of the tensor column */
    int results, failures;
};

/* ---- Metrics ---- */

struct sums {
    double abs_error, abs_base, square_error, square_base;
    double m1, m2, single; /* diff3: relative where |b| > th, absolute elsewhere, and the larger with eps */
    double relative;       /* diff3_1 */
    double absolute;       /* diff3_2 */
    uint64_t elements, different_bits, above, below;
    uint64_t not_finite; /* NaN or infinity on one side only */
    uint64_t first;      /* element with different bits */
};

/* th of diff3: below it the absolute error is used, not the relative one. */
static double small_base(DLDataType type)
{
    if (!type_is_float(type) || type.bits == 64 || type.bits == 8)
        return 0;
    return type.bits == 32 ? 1e-6 : 1e-4;
}

/* e-b, with the right sign and size for 64-bit integers too. */
static double difference(DLDataType type, const char *e, const char *b, double e_value, double b_value)
{
    if (type_is_float(type) || type.bits != 64)
        return e_value - b_value;
    uint64_t e_bits, b_bits;
    memcpy(&e_bits, e, sizeof e_bits);
    memcpy(&b_bits, b, sizeof b_bits);
    /* Flipping the sign bit makes signed numbers compare as unsigned ones. */
    const uint64_t flip = type.code == 0 ? (uint64_t)1 << 63 : 0;
    return (e_bits ^ flip) > (b_bits ^ flip) ? (double)(e_bits - b_bits) : -(double)(b_bits - e_bits);
}

static void add_element(struct sums *sums, DLDataType type, const char *e, const char *b, bool exact_nan)
{
    const double x = element_value(type, e), y = element_value(type, b);
    const bool same_bits = memcmp(e, b, st_type_bytes(type)) == 0;
    if (!same_bits && (exact_nan || !(isnan(x) && isnan(y))) && sums->different_bits++ == 0)
        sums->first = sums->elements;
    sums->elements++;
    /* Both NaN or both the same infinity: equal, and not part of any sum. */
    if ((isnan(x) && isnan(y)) || (isinf(x) && x == y))
        return;
    if (!isfinite(x) || !isfinite(y)) {
        sums->not_finite++;
        return;
    }
    const double signed_error = difference(type, e, b, x, y);
    const double error = fabs(signed_error), base = fabs(y);
    sums->abs_error += error;
    sums->abs_base += base;
    sums->square_error += error * error;
    sums->square_base += base * base;
    sums->above += signed_error > 0;
    sums->below += signed_error < 0;
    sums->absolute = fmax(sums->absolute, error);
    sums->relative = fmax(sums->relative, error > 0 ? error / base : 0);
    if (base > small_base(type)) {
        sums->m1 = fmax(sums->m1, error / base);
        sums->single = fmax(sums->single, error / (base + eps));
    } else {
        sums->m2 = fmax(sums->m2, error);
        sums->single = fmax(sums->single, error);
    }
}

static struct sums sum_up(const struct st_tensor *e, const struct st_tensor *b, bool exact_nan)
{
    struct sums sums = {0};
    const DLDataType type = e->view.dtype;
    const size_t step = st_type_bytes(type);
    for (size_t at = 0; at < e->bytes; at += step)
        add_element(&sums, type, (const char *)e->view.data + at, (const char *)b->view.data + at, exact_nan);
    return sums;
}

static double metric_value(enum metric metric, const struct sums *sums)
{
    const double values[N_METRICS] = {[BITS] = (double)sums->different_bits,
                                      [DIFF1] = sums->abs_error / (sums->abs_base + eps),
                                      [DIFF2] = sqrt(sums->square_error / (sums->square_base + eps)),
                                      [DIFF3] = sums->single,
                                      [DIFF3_1] = sums->relative,
                                      [DIFF3_2] = sums->absolute,
                                      [DIFF4] = (double)(sums->above + sums->below)};
    return values[metric];
}

/* A hundred errors or more with the same sign: the result is biased. */
static bool one_sided(const struct sums *sums)
{
    return sums->above + sums->below >= 100 && (sums->above == 0 || sums->below == 0);
}

static bool metric_passes(enum metric metric, const struct sums *sums, double tolerance)
{
    if (sums->not_finite > 0)
        return false;
    const double value = metric_value(metric, sums);
    return metric == DIFF4 ? !one_sided(sums) : isfinite(value) && value <= tolerance;
}

/* ---- Reports ---- */

static void share(const struct sums *sums, double *p1, double *p2)
{
    const double n = (double)(sums->above + sums->below);
    *p1 = n > 0 ? (double)sums->above / n : 0;
    *p2 = n > 0 ? (double)sums->below / n : 0;
}

static void print_result(const struct compare *compare, const char *tensor, enum metric metric,
                         const struct sums *sums, bool pass)
{
    char value[96], limit[32];
    double p1, p2;
    share(sums, &p1, &p2);
    snprintf(limit, sizeof limit, "<= %.6g", compare->tolerance[metric]);
    if (metric == BITS)
        snprintf(value, sizeof value, "%" PRIu64 " of %" PRIu64 " differ", sums->different_bits,
                 sums->elements);
    else if (sums->not_finite > 0)
        snprintf(value, sizeof value, "%" PRIu64 " NaN or inf on one side", sums->not_finite);
    else if (metric == DIFF3)
        snprintf(value, sizeof value, "%.6g (m1 %.6g, m2 %.6g)", sums->single, sums->m1, sums->m2);
    else if (metric == DIFF4)
        snprintf(value, sizeof value, "p1 %.4f, p2 %.4f, n %" PRIu64, p1, p2, sums->above + sums->below);
    else
        snprintf(value, sizeof value, "%.6g", metric_value(metric, sums));
    if (metric == DIFF4)
        snprintf(limit, sizeof limit, "two-sided");
    printf("%-*s  %-7s  %-38s  %-12s  %s\n", compare->width, shown_name(tensor).text, metric_names[metric],
           value, limit, pass ? "pass" : "FAIL");
}

static void json_result(struct compare *compare, const char *tensor, enum metric metric,
                        const struct sums *sums, bool pass)
{
    struct emit *const json = &compare->json;
    double p1, p2;
    share(sums, &p1, &p2);
    emit_begin(json, NULL, '{');
    emit_string(json, "tensor", tensor);
    emit_string(json, "metric", metric_names[metric]);
    emit_number(json, "value", metric == BITS || sums->not_finite == 0 ? metric_value(metric, sums) : NAN);
    if (metric == DIFF3) {
        emit_number(json, "m1", sums->m1);
        emit_number(json, "m2", sums->m2);
    }
    if (metric == DIFF4) {
        emit_number(json, "p1", p1);
        emit_number(json, "p2", p2);
        emit_integer(json, "n", (int64_t)(sums->above + sums->below));
    } else {
        emit_number(json, "tolerance", compare->tolerance[metric]);
    }
    emit_integer(json, "elements", (int64_t)sums->elements);
    emit_integer(json, "not_finite", (int64_t)sums->not_finite);
    emit_bool(json, "pass", pass);
    emit_end(json, '}');
}

/* A tensor that cannot be compared at all: one failed result. */
static void report_mismatch(struct compare *compare, const char *tensor, const char *reason)
{
    compare->results++;
    compare->failures++;
    if (!compare->as_json) {
        char text[512];
        printable(text, sizeof text, reason);
        printf("%-*s  %-7s  %-52s  FAIL\n", compare->width, shown_name(tensor).text, "-", text);
        return;
    }
    emit_begin(&compare->json, NULL, '{');
    emit_string(&compare->json, "tensor", tensor);
    emit_string(&compare->json, "metric", NULL);
    emit_string(&compare->json, "reason", reason);
    emit_bool(&compare->json, "pass", false);
    emit_end(&compare->json, '}');
}

/* ---- Tensors ---- */

static void describe(const struct st_tensor *tensor, char *text, size_t bytes)
{
    const int used = snprintf(text, bytes, "%s ", st_type_name(tensor->view.dtype));
    st_shape_text(tensor, text + used, bytes - (size_t)used);
}

static bool same_form(const struct st_tensor *a, const struct st_tensor *b)
{
    return a->view.dtype.code == b->view.dtype.code && a->view.dtype.bits == b->view.dtype.bits &&
           a->view.ndim == b->view.ndim &&
           memcmp(a->shape, b->shape, (size_t)a->view.ndim * sizeof a->shape[0]) == 0;
}

/* "first at [3,0]: 1.5, baseline 1.25" */
static void print_first(const struct compare *compare, const struct st_tensor *e, const struct st_tensor *b,
                        uint64_t first)
{
    const DLDataType type = e->view.dtype;
    const size_t at = first * st_type_bytes(type);
    const int digits = type.bits == 64 ? 17 : 9;
    uint64_t stride = 1;
    for (int d = 0; d < e->view.ndim; d++)
        stride *= (uint64_t)e->shape[d];
    printf("%-*s  first at [", compare->width, "");
    for (int d = 0; d < e->view.ndim; d++) {
        stride /= (uint64_t)e->shape[d];
        printf("%s%" PRIu64, d > 0 ? "," : "", first / stride % (uint64_t)e->shape[d]);
    }
    printf("]: %.*g, baseline %.*g\n", digits, element_value(type, (const char *)e->view.data + at), digits,
           element_value(type, (const char *)b->view.data + at));
}

static void compare_tensor(struct compare *compare, const char *name)
{
    const struct st_tensor *const e = st_find(&compare->files[0], name);
    const struct st_tensor *const b = st_find(&compare->files[1], name);
    char reason[256], left[100], right[100];
    if (!e || !b) {
        snprintf(reason, sizeof reason, "only in %.200s", compare->paths[e ? 0 : 1]);
        report_mismatch(compare, name, reason);
        return;
    }
    if (!same_form(e, b)) {
        describe(e, left, sizeof left);
        describe(b, right, sizeof right);
        snprintf(reason, sizeof reason, "%s against %s", left, right);
        report_mismatch(compare, name, reason);
        return;
    }
    const struct sums sums = sum_up(e, b, compare->exact_nan);
    for (enum metric metric = BITS; metric < N_METRICS; metric++) {
        if (!compare->wanted[metric])
            continue;
        const bool pass = metric_passes(metric, &sums, compare->tolerance[metric]);
        compare->results++;
        compare->failures += !pass;
        if (compare->as_json)
            json_result(compare, name, metric, &sums, pass);
        else
            print_result(compare, name, metric, &sums, pass);
    }
    if (!compare->as_json && compare->wanted[BITS] && sums.different_bits > 0)
        print_first(compare, e, b, sums.first);
}

static bool is_named(const struct compare *compare, const char *name)
{
    bool found = compare->n_named == 0;
    for (int i = 0; i < compare->n_named && !found; i++)
        found = strcmp(compare->named[i], name) == 0;
    return found;
}

/* Tensors of A in its order, then those only B has. */
static void compare_files(struct compare *compare)
{
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < compare->files[side].n_tensors; i++) {
            const int length = (int)strlen(shown_name(compare->files[side].tensors[i].name).text);
            compare->width = length > compare->width && length < 64 ? length : compare->width;
        }
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < compare->files[side].n_tensors; i++) {
            const char *const name = compare->files[side].tensors[i].name;
            if (is_named(compare, name) && (side == 0 || !st_find(&compare->files[0], name)))
                compare_tensor(compare, name);
        }
}

/* ---- Command line ---- */

static enum metric find_metric(const char *name, size_t length)
{
    enum metric metric = BITS;
    while (metric < N_METRICS &&
           (strlen(metric_names[metric]) != length || memcmp(metric_names[metric], name, length) != 0))
        metric++;
    return metric;
}

static int take_metrics(struct compare *compare, const char *list)
{
    for (const char *at = list;; at++) {
        const size_t length = strcspn(at, ",");
        const enum metric metric = find_metric(at, length);
        if (metric == N_METRICS)
            return usage_error("compare",
                               "unknown metric %.*s, want bits, diff1, diff2, diff3, diff3_1, diff3_2, diff4",
                               (int)length, at);
        compare->wanted[metric] = true;
        at += length;
        if (*at == '\0')
            return EXIT_DONE;
    }
}

/* "1e-3" for every metric, or "diff1=1e-3,diff3=0". */
static int take_tolerances(struct compare *compare, const char *list)
{
    for (const char *at = list;; at++) {
        const size_t length = strcspn(at, ",");
        char item[64], *number = item;
        snprintf(item, sizeof item, "%.*s", (int)(length < 63 ? length : 63), at);
        enum metric metric = N_METRICS;
        char *const equals = strchr(item, '=');
        if (equals) {
            metric = find_metric(item, (size_t)(equals - item));
            number = equals + 1;
            if (metric == N_METRICS || metric == DIFF4)
                return usage_error("compare", "--tol: %.*s has no tolerance", (int)(equals - item), item);
        }
        double tolerance = 0;
        if (!parse_double(number, &tolerance) || !(tolerance >= 0))
            return usage_error("compare", "--tol: %s is not a number from 0 up", number);
        for (enum metric m = BITS; m < N_METRICS; m++)
            if (m == metric || metric == N_METRICS)
                compare->tolerance[m] = tolerance;
        at += length;
        if (*at == '\0')
            return EXIT_DONE;
    }
}

static int take_option(struct compare *compare, struct arg_list *list, const struct arg *arg)
{
    if (arg_is(arg, "json") && !arg->value) {
        compare->as_json = true;
        return EXIT_DONE;
    }
    if (arg_is(arg, "nan-bits") && !arg->value) {
        compare->exact_nan = true;
        return EXIT_DONE;
    }
    if (!arg_is(arg, "metric") && !arg_is(arg, "tol") && !arg_is(arg, "tensor"))
        return usage_error("compare", "compare has no option --%.*s", arg->length, arg->text);
    const char *const value = arg_value(list, arg);
    if (!value)
        return usage_error("compare", "--%.*s needs a value", arg->length, arg->text);
    if (arg_is(arg, "metric"))
        return take_metrics(compare, value);
    if (arg_is(arg, "tol"))
        return take_tolerances(compare, value);
    if (compare->n_named == MAX_NAMED)
        return usage_error("compare", "--tensor is given more than %d times", MAX_NAMED);
    compare->named[compare->n_named++] = value;
    return EXIT_DONE;
}

static int parse_line(struct compare *compare, struct arg_list *list)
{
    for (struct arg arg = arg_next(list); arg.kind != ARG_END; arg = arg_next(list)) {
        int code = EXIT_DONE;
        if (arg.kind == ARG_OPTION)
            code = take_option(compare, list, &arg);
        else if (compare->paths[1])
            code = usage_error("compare", "one word too many: %s", arg.text);
        else
            compare->paths[compare->paths[0] ? 1 : 0] = arg.text;
        if (code != EXIT_DONE)
            return code;
    }
    if (!compare->paths[1])
        return usage_error("compare", "compare needs two files");
    bool any = false;
    for (enum metric metric = BITS; metric < N_METRICS; metric++)
        any = any || compare->wanted[metric];
    compare->wanted[BITS] = compare->wanted[BITS] || !any;
    return EXIT_DONE;
}

static int load_files(struct compare *compare)
{
    for (int side = 0; side < 2; side++) {
        struct st_message message;
        if (!st_load(compare->paths[side], &compare->files[side], &message))
            return plain_error("%s: %s", compare->paths[side], message.text);
    }
    if (compare->files[0].n_tensors == 0 && compare->files[1].n_tensors == 0)
        return plain_error("neither %s nor %s holds a tensor: nothing to compare", compare->paths[0],
                           compare->paths[1]);
    for (int i = 0; i < compare->n_named; i++)
        if (!st_find(&compare->files[0], compare->named[i]) &&
            !st_find(&compare->files[1], compare->named[i]))
            return usage_error("compare", "neither file has a tensor %s", compare->named[i]);
    return EXIT_DONE;
}

static void report(struct compare *compare)
{
    if (!compare->as_json) {
        compare_files(compare);
        if (compare->failures > 0)
            printf("%d of %d comparisons failed\n", compare->failures, compare->results);
        else
            printf("%d comparison%s, all pass\n", compare->results, compare->results == 1 ? "" : "s");
        return;
    }
    emit_begin(&compare->json, NULL, '{');
    emit_string(&compare->json, "evaluated", compare->paths[0]);
    emit_string(&compare->json, "baseline", compare->paths[1]);
    emit_begin(&compare->json, "results", '[');
    compare_files(compare);
    emit_end(&compare->json, ']');
    emit_bool(&compare->json, "pass", compare->failures == 0);
    emit_end(&compare->json, '}');
}

int command_compare(struct common *common, struct arg_list *list)
{
    (void)common;
    struct compare compare = {.json = {.out = stdout}, .tolerance = {[DIFF1] = 3e-3, [DIFF2] = 3e-3}};
    int code = parse_line(&compare, list);
    if (code == EXIT_DONE)
        code = load_files(&compare);
    if (code == EXIT_DONE) {
        report(&compare);
        code = compare.failures > 0 ? EXIT_REJECTED : EXIT_DONE;
    }
    st_free(&compare.files[0]);
    st_free(&compare.files[1]);
    return code;
}
