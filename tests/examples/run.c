/*
 * Runs the worked examples of one operator through sy_call:   run_examples tests/examples/OP.txt [PATTERN]
 *
 * Every case, in each of its types, on 1, 2 and 3 threads and every kernel table of this CPU (on a device: launches for 1, 3 and
 * all multiprocessors), with tensors at usual addresses and at odd ones. sy_infer and the query agree with the outputs, nothing but
 * the outputs changes. A rejected case has this status, fault and sentence, and writes nothing. Strides, and calls without some of
 * their outputs, are those of tests/case.
 */
#include "examples/read.h"

#include <libgen.h>

static struct examples file;
static const sy_op_info *op;
static struct {
    sy_ctx *ctx;
    char name[48];
} contexts[24];
static int n_contexts;

/* A case in one of its types. */
struct run {
    struct run *next;
    const struct example *ex;
    int alt;
};

struct part {
    const sy_field_info *field;
    bool output; /* the call may write it */
    struct tensor x;
    unsigned char *before, *want; /* its memory before the call; after it, NULL: as before */
};

/* One call with its tensors. It must not be copied. */
struct call {
    const struct run *run;
    const char *where; /* for messages */
    sy_ctx *ctx;
    bool odd;                         /* so are the addresses of its tensors */
    struct part parts[SY_MAX_FIELDS]; /* by number of the field; mem is NULL where there is none */
    sy_kv_format format;
    union test_args args;
};

/* ---- Fields ---- */

/* An output, or an input that another entry of the description names as one. */
static bool is_output(const sy_field_info *field)
{
    for (int i = 0; i < op->n_tensors; i++)
        if (sy_op_field(op, i)->offset == field->offset && (sy_op_field(op, i)->flags & SY_FIELD_OUT))
            return true;
    return false;
}

static int field_named(const char *name)
{
    for (int i = 0; i < op->n_fields; i++)
        if (strcmp(sy_op_field(op, i)->name, name) == 0)
            return i;
    return -1;
}

/* The type of a number for all rows, written as a scalar. */
static sy_type row_type(const sy_field_info *field)
{
    static const sy_type order[] = {SY_TYPE_F32, SY_TYPE_U32, SY_TYPE_U64, SY_TYPE_I64};
    for (size_t i = 0; i < COUNT_OF(order); i++)
        if (field->types >> order[i] & 1u)
            return order[i];
    return SY_TYPE_I32;
}

/* The number of a word in "softmax sigmoid none"; "zero|0" has two spellings. */
static int word_number(const char *words, const char *word)
{
    const size_t length = strlen(word);
    int number = 0;
    for (const char *at = words; *at; number += *at == ' ', at++)
        if ((at == words || at[-1] == ' ' || at[-1] == '|') && strncmp(at, word, length) == 0 &&
            (at[length] == '\0' || at[length] == ' ' || at[length] == '|'))
            return number;
    return -1;
}

static void set_scalar(struct call *c, const sy_field_info *field, const char *value, int line)
{
    static const sy_type types[SY_N_KINDS] = {
        [SY_KIND_BOOL] = SY_TYPE_BOOL, [SY_KIND_INT] = SY_TYPE_I32, [SY_KIND_I64] = SY_TYPE_I64,
        [SY_KIND_U32] = SY_TYPE_U32,   [SY_KIND_U64] = SY_TYPE_U64, [SY_KIND_F32] = SY_TYPE_F32,
        [SY_KIND_F64] = SY_TYPE_F64};
    char word[32] = "", *to = (char *)&c->args + field->offset;
    sscanf(value, "%31s", word);
    if (field->kind == SY_KIND_ENUM) {
        const int number = word_number(field->words, word);
        if (number < 0)
            bad_line(&file, line, "%s has no word %s", field->name, word);
        memcpy(to, &number, sizeof number);
    } else if (field->kind == SY_KIND_FORMAT) {
        const sy_kv_format *format = &c->format;
        if (sy_kv_format_named(word, &c->format) != SY_OK)
            bad_line(&file, line, "no format %s", word);
        memcpy(to, &format, sizeof format);
    } else if (types[field->kind] == SY_TYPE_OTHER) {
        bad_line(&file, line, "%s cannot be written in a file", field->name);
    } else {
        char text[40];
        snprintf(text, sizeof text, "%s",
                 strcmp(word, "true") == 0    ? "1"
                 : strcmp(word, "false") == 0 ? "0"
                                              : word);
        const struct entry one = {.name = field->name,
                                  .n_types = 1,
                                  .types = {types[field->kind]},
                                  .rank = 1,
                                  .shape = {1},
                                  .values = text,
                                  .line = line};
        entry_values(&file, &one, 0, (unsigned char *)to);
    }
}

/* ---- Tensors ---- */

static void make_tensor(struct call *c, int i, DLDataType type, int rank, const int64_t *shape)
{
    struct part *p = &c->parts[i];
    const DLTensor *t = &p->x.t;
    tensor_make(&p->x, type, rank, shape, c->odd);
    if (p->x.bytes == 0)
        p->x.t.data = NULL; /* nothing to point to */
    memcpy((char *)&c->args + p->field->offset, &t, sizeof t);
}

/* Old contents and expected ones; an output without either keeps the fill of its memory. */
static void fill_tensor(struct call *c, int i, const struct entry *in, const struct entry *out)
{
    struct part *p = &c->parts[i];
    const struct run *run = c->run;
    if (in != NULL)
        entry_values(&file, in, run->alt, p->x.mem + p->x.t.byte_offset);
    p->before = tensor_snapshot(&p->x);
    if (out == NULL || run->ex->rejected)
        return;
    p->want = tensor_snapshot(&p->x);
    entry_values(&file, out, run->alt, p->want + p->x.t.byte_offset);
}

/* The entry, or for a number of all rows that is written as a scalar, a tensor [1]. */
static struct entry input_entry(const sy_field_info *field, const struct entry *in)
{
    struct entry e = *in;
    if (e.n_types > 0)
        return e;
    if (!(field->flags & SY_FIELD_PER_ROW))
        bad_line(&file, e.line, "%s needs a type and a shape", e.name);
    e.n_types = e.rank = 1;
    e.shape[0] = 1;
    e.types[0] = row_type(field);
    return e;
}

static void make_inputs(struct call *c)
{
    const struct example *ex = c->run->ex;
    for (int i = 0; i < op->n_fields; i++) {
        const sy_field_info *field = sy_op_field(op, i);
        const struct entry *in = example_entry(ex, field->name, false);
        c->parts[i].field = field;
        c->parts[i].output = field->kind == SY_KIND_TENSOR && is_output(field);
        if (field->kind != SY_KIND_TENSOR) {
            if (in != NULL || field->preset != NULL)
                set_scalar(c, field, in != NULL ? in->values : field->preset, in != NULL ? in->line : 0);
        } else if (in != NULL && field_named(field->name) == i) { /* once, though listed in two roles */
            const struct entry e = input_entry(field, in);
            const struct entry *out = example_entry(ex, field->name, true);
            make_tensor(c, i, type_of(entry_type(&e, c->run->alt)), e.rank, e.shape);
            fill_tensor(c, i, &e, out);
        }
    }
}

static bool lists_outputs(const struct example *ex)
{
    for (int i = 0; i < ex->n_entries; i++)
        if (ex->entries[i].out && !ex->entries[i].none)
            return true;
    return false;
}

/*
 * The outputs a case lists. One of an earlier case whose values a rejection dropped gets the shape that sy_infer gives it
 * now; a rejection that lists none has all that are required.
 */
static void make_outputs(struct call *c, const sy_shape *shapes, bool inferred)
{
    const struct example *ex = c->run->ex;
    for (int i = 0; i < op->n_tensors; i++) {
        const sy_field_info *field = c->parts[i].field;
        const struct entry *out = example_entry(ex, field->name, true);
        const bool known = inferred && shapes[i].rank >= 0;
        if (!c->parts[i].output || c->parts[i].x.mem != NULL || field_named(field->name) != i)
            continue;
        if (out != NULL && !out->none && (out->own || !ex->rejected || !known))
            make_tensor(c, i, type_of(entry_type(out, c->run->alt)), out->rank, out->shape);
        else if (out != NULL && !out->none)
            make_tensor(c, i, type_of(entry_type(out, c->run->alt)), shapes[i].rank, shapes[i].extent);
        else if (ex->rejected && known && !lists_outputs(ex) && !(field->flags & SY_FIELD_OPTIONAL))
            make_tensor(c, i, shapes[i].type, shapes[i].rank, shapes[i].extent);
        else
            continue;
        fill_tensor(c, i, NULL, out);
    }
}

static bool same_type(DLDataType a, DLDataType b)
{
    return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

/* Outputs are as sy_infer gives them; types as well, in the first of several. */
static void expect_inferred(const struct call *c, const sy_shape *shapes)
{
    for (int i = 0; i < op->n_tensors; i++) {
        const struct part *p = &c->parts[i];
        const struct entry *out = example_entry(c->run->ex, p->field->name, true);
        if (out == NULL || (p->field->flags & (SY_FIELD_OUT | SY_FIELD_INOUT)) != SY_FIELD_OUT)
            continue;
        if ((shapes[i].rank < 0) != out->none)
            fail_msg("%s: sy_infer gives rank %d", out->name, shapes[i].rank);
        if (out->none)
            continue;
        if (shapes[i].rank != out->rank ||
            memcmp(shapes[i].extent, out->shape, (size_t)out->rank * sizeof *out->shape) != 0)
            fail_msg("%s has another shape than sy_infer gives", out->name);
        if (c->run->alt == 0 && !same_type(shapes[i].type, type_of(entry_type(out, 0))))
            fail_msg("%s has another type than sy_infer gives", out->name);
    }
}

static void make_call(struct call *c)
{
    sy_shape shapes[SY_MAX_FIELDS];
    const struct example *ex = c->run->ex;
    memset(&c->args, 0, sizeof c->args);
    memset(c->parts, 0, sizeof c->parts);
    make_inputs(c);
    const sy_status status = sy_infer(c->ctx, op, &c->args, op->args_bytes, shapes, SY_MAX_FIELDS);
    if (!ex->rejected)
        expect_status(c->ctx, status, SY_OK);
    if (!ex->rejected && ex->inferred)
        expect_inferred(c, shapes);
    make_outputs(c, shapes, status == SY_OK);
}

static void free_call(struct call *c)
{
    for (int i = 0; i < op->n_tensors; i++) {
        tensor_free(&c->parts[i].x);
        free(c->parts[i].before);
        free(c->parts[i].want);
    }
}

/* ---- What is expected ---- */

static void print_element(DLDataType type, const unsigned char *at)
{
    uint64_t bits = 0;
    double value = 0;
    memcpy(&bits, at, type_bytes(type));
    if (type.code == kDLInt)
        print_error(" %lld", (long long)(int64_t)(bits << (64 - type.bits)) >> (64 - type.bits));
    else if (type.code == kDLFloat && type.bits == 32)
        print_error(" %.9g", (double)f32_from_bits((uint32_t)bits));
    else if (type.code == kDLFloat && type.bits == 64)
        print_error(" %.17g", (memcpy(&value, at, 8), value));
    else
        print_error(" %#llx", (unsigned long long)bits);
}

/* Where an output differs, all of it as a line of the file. */
static void print_difference(const struct part *p)
{
    const size_t bytes = type_bytes(p->x.t.dtype);
    if (memcmp(p->x.mem, p->want, p->x.bytes) == 0)
        return;
    print_error("got %s:", p->field->name);
    for (size_t at = p->x.t.byte_offset; at < p->x.bytes && at < 4096 * bytes; at += bytes)
        print_element(p->x.t.dtype, p->x.mem + at);
    print_error("\n");
}

static void expect_tensors(const struct call *c, bool written)
{
    for (int i = 0; i < op->n_tensors; i++) {
        const struct part *p = &c->parts[i];
        char what[160];
        if (p->x.mem == NULL)
            continue;
        snprintf(what, sizeof what, "%s (%s)", p->field->name, c->where);
        if (written && p->want != NULL)
            print_difference(p);
        tensor_expect(&p->x, written && p->want != NULL ? p->want : p->before, what);
    }
}

static void expect_rejection(const struct call *c, sy_status status)
{
    const struct example *ex = c->run->ex;
    sy_fault f;
    assert_int_equal(sy_ctx_fault(c->ctx, &f), SY_OK);
    const char *argument = *f.argument ? f.argument : "-";
    const bool same = strcmp(sy_status_name(status), ex->status) == 0 &&
                      strcmp(sy_fault_name(f.code), ex->code) == 0 && strcmp(argument, ex->argument) == 0 &&
                      f.batch == ex->numbers[0] && f.position == ex->numbers[1] &&
                      f.value == ex->numbers[2] && f.limit == ex->numbers[3];
    if (same && strcmp(sy_ctx_error(c->ctx), ex->sentence) == 0)
        return;
    char place[64] = "";
    if (f.batch >= 0)
        snprintf(place, sizeof place, " batch %lld", (long long)f.batch);
    if (f.position >= 0)
        snprintf(place + strlen(place), 32, " position %lld", (long long)f.position);
    fail_msg("%s: got\n    !! %s %s %s%s value %lld limit %lld\n    !! %s", c->where, sy_status_name(status),
             sy_fault_name(f.code), argument, place, (long long)f.value, (long long)f.limit,
             sy_ctx_error(c->ctx));
}

/* The query accepts what only contents make wrong, and rejects the rest in the same words, outputs aside. */
static void check_query(const struct call *c)
{
    const struct example *ex = c->run->ex;
    sy_query query;
    const sy_status status = sy_call_query(c->ctx, op, &c->args, op->args_bytes, &query);
    if (!ex->rejected) {
        expect_status(c->ctx, status, SY_OK);
        if (ex->query != NULL) {
            assert_int_equal(query.rows, pair_value(ex->query, "rows", query.rows));
            assert_int_equal(query.slots, pair_value(ex->query, "slots", query.slots));
        }
        return;
    }
    const int i = field_named(ex->argument);
    const bool contents = ex->numbers[0] >= 0 || ex->numbers[1] >= 0;
    if (contents)
        expect_status(c->ctx, status, SY_OK);
    else if (i < 0 || !c->parts[i].output)
        expect_rejection(c, status);
}

/* ---- Runs ---- */

static void check_call(struct call *c)
{
    const struct example *ex = c->run->ex;
    make_call(c);
    const sy_status status = sy_call(c->ctx, op, &c->args, op->args_bytes);
    if (ex->rejected)
        expect_rejection(c, status);
    else if (status != SY_OK)
        fail_msg("%s: %s: %s", c->where, sy_status_name(status), sy_ctx_error(c->ctx));
    expect_tensors(c, !ex->rejected);
    check_query(c);
    free_call(c);
}

static void check_case(void **state)
{
    struct call *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->run = *state;
    for (int k = 0; k < n_contexts; k++)
        for (int odd = 0; odd < 2; odd++) {
            char where[96];
            snprintf(where, sizeof where, "%s%s", contexts[k].name, odd ? ", odd addresses" : "");
            c->ctx = contexts[k].ctx;
            c->where = where;
            c->odd = odd;
            check_call(c);
        }
    free(c);
}

/* ---- The program ---- */

static int open_contexts(void **state)
{
    const char *isa, *only = getenv("SWITCHYARD_TEST_LAUNCH"); /* on a device, of the three */
    (void)state;
    if (only == NULL && test_on_device() && !test_full())
        only = "3";
    for (int i = 0; (isa = sy_isa_name(i)) != NULL; i++)
        for (int threads = 1; threads <= 3 && n_contexts < (int)COUNT_OF(contexts); threads++) {
            const int launch = threads == 2 && test_on_device() ? 0 : threads;
            if (only != NULL && launch != strtol(only, NULL, 10))
                continue;
            contexts[n_contexts].ctx = test_ctx(launch, isa);
            snprintf(contexts[n_contexts].name, sizeof contexts->name, "%s, %d threads", isa, threads);
            n_contexts++;
        }
    return 0;
}

static int close_contexts(void **state)
{
    (void)state;
    while (n_contexts > 0)
        sy_ctx_destroy(contexts[--n_contexts].ctx);
    return 0;
}

/* Names that the description does not have. */
static void check_names(const struct example *ex)
{
    for (int i = 0; i < ex->n_entries; i++) {
        const int at = field_named(ex->entries[i].name);
        if (at < 0 || (ex->entries[i].out && !is_output(sy_op_field(op, at))))
            bad_line(&file, ex->entries[i].line, "%s has no %s%s", op->name,
                     ex->entries[i].out ? "output " : "", ex->entries[i].name);
    }
}

int main(int argc, char **argv)
{
    static struct run *runs; /* kept reachable */
    struct test_list list = {0};
    if (argc < 2)
        return fprintf(stderr, "usage: run_examples tests/examples/OP.txt [PATTERN]\n"), 2;
    file = examples_read(argv[1]);
    char *const copy = strdup(argv[1]), *const name = copy ? basename(copy) : NULL;
    if (name == NULL)
        return 1;
    name[strcspn(name, ".")] = '\0';
    op = sy_op_find(name);
    if (op == NULL || op->mesh || file.count == 0)
        bad_line(&file, 1, "%s is no operator of one device, or there are no cases", name);
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    for (int i = 0; i < file.count; i++) {
        const struct example *ex = &file.list[i];
        check_names(ex);
        if (ex->n_rows > 0)
            bad_line(&file, ex->line, "%s: lines of tests/compat", ex->name);
        const int n = ex->for_c ? example_alternatives(ex) : 0;
        for (int alt = 0; alt < n; alt++) {
            struct run *one = malloc(sizeof *one);
            if (one == NULL)
                return 1;
            *one = (struct run){runs, ex, alt};
            runs = one;
            test_add(&list, n > 1 ? test_name("%s, types %d", ex->name, alt + 1) : ex->name, check_case, one);
        }
    }
    const int failed = _cmocka_run_group_tests(test_name("examples_%s", name), list.tests, list.count,
                                               open_contexts, close_contexts);
    free(list.tests);
    free(copy);
    return failed;
}
