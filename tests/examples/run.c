/*
 * Runs the worked examples of one operator:   run_examples tests/examples/OP.txt [PATTERN]
 *
 * A case of a file, in each of its types, is a case of tests/case: `make` takes the inputs, and `oracle` the results, from the lines.
 * It runs in every context of the cases (on a device in one), with compact tensors, at usual addresses and at odd ones. sy_infer and
 * the query agree with the outputs, nothing but the outputs changes. A rejected case has this status, fault and sentence, and writes
 * nothing.
 */
#include "case/case.h"
#include "examples/read.h"

#include <libgen.h>

static struct examples file;
static const sy_op_info *op;

/* A case in one of its types. */
struct run {
    struct run *next;
    const struct example *ex;
    int alt;
};
static const struct run *now;

/* ---- Fields ---- */

static int field_named(const char *name)
{
    for (int i = 0; i < op->n_fields; i++)
        if (strcmp(sy_op_field(op, i)->name, name) == 0)
            return i;
    return -1;
}

/* Whether a tensor of this name, in one of its roles, has this flag. */
static bool has_role(const char *name, uint32_t flag)
{
    for (int i = 0; i < op->n_tensors; i++)
        if (strcmp(sy_op_field(op, i)->name, name) == 0 && (sy_op_field(op, i)->flags & flag))
            return true;
    return false;
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

static void set_scalar(struct call *c, const sy_field_info *field, const char *value, int line)
{
    static const sy_type types[SY_N_KINDS] = {
        [SY_KIND_BOOL] = SY_TYPE_BOOL, [SY_KIND_INT] = SY_TYPE_I32, [SY_KIND_I64] = SY_TYPE_I64,
        [SY_KIND_U32] = SY_TYPE_U32,   [SY_KIND_U64] = SY_TYPE_U64, [SY_KIND_F32] = SY_TYPE_F32,
        [SY_KIND_F64] = SY_TYPE_F64};
    char word[32] = "", *to = (char *)&c->args + field->offset;
    sscanf(value, "%31s", word);
    if (field->kind == SY_KIND_ENUM) {
        case_set_word(c, field->name, word);
    } else if (field->kind == SY_KIND_FORMAT) {
        sy_kv_format *const format = case_memory(c, sizeof *format);
        if (sy_kv_format_named(word, format) != SY_OK)
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

static void make_input(struct call *c, const struct entry *in)
{
    const struct entry e = input_entry(sy_op_field(op, field_named(in->name)), in);
    struct operand *const x = (has_role(e.name, SY_FIELD_INOUT) ? case_inout_as : case_in_as)(
        c, e.name, type_of(entry_type(&e, now->alt)), e.rank, e.shape);
    entry_values(&file, &e, now->alt, x->dense);
    x->compact = true;
}

static bool lists_outputs(const struct example *ex)
{
    for (int i = 0; i < ex->n_entries; i++)
        if (ex->entries[i].out && !ex->entries[i].none)
            return true;
    return false;
}

/* An output is as sy_infer gives it; its type as well, in the first of several. */
static void expect_inferred(const struct entry *out, const sy_shape *shape)
{
    const DLDataType type = type_of(entry_type(out, 0));
    if ((shape->rank < 0) != out->none)
        fail_msg("%s: sy_infer gives rank %d", out->name, shape->rank);
    if (!out->none && (shape->rank != out->rank ||
                       memcmp(shape->extent, out->shape, (size_t)out->rank * sizeof *out->shape) != 0))
        fail_msg("%s has another shape than sy_infer gives", out->name);
    if (!out->none && now->alt == 0 && memcmp(&shape->type, &type, sizeof type) != 0)
        fail_msg("%s has another type than sy_infer gives", out->name);
}

/*
 * An output that the case lists. One of an earlier case whose values a rejection dropped gets the shape that sy_infer gives it
 * now; a rejection that lists none has all that are required.
 */
static void make_output(struct call *c, const sy_field_info *field, const sy_shape *shape)
{
    const struct example *const ex = now->ex;
    const struct entry *const out = example_entry(ex, field->name, true);
    const bool known = ex->rejected && shape->rank >= 0;
    if (out != NULL && !ex->rejected && ex->inferred)
        expect_inferred(out, shape);
    if (out != NULL ? out->none : !known || lists_outputs(ex) || (field->flags & SY_FIELD_OPTIONAL)) {
        case_leave(c, field->name);
        return;
    }
    const bool inferred = known && (out == NULL || !out->own);
    case_out_as(c, field->name, out != NULL ? type_of(entry_type(out, now->alt)) : shape->type,
                inferred ? shape->rank : out->rank, inferred ? shape->extent : out->shape)
        ->compact = true;
}

static void make(struct call *c)
{
    static sy_shape shapes[CASE_OPERANDS];
    const struct example *const ex = now->ex;
    for (int i = 0; i < op->n_fields; i++) {
        const sy_field_info *const field = sy_op_field(op, i);
        const struct entry *const in = example_entry(ex, field->name, false);
        if (field->kind != SY_KIND_TENSOR && (in != NULL || field->preset != NULL))
            set_scalar(c, field, in != NULL ? in->values : field->preset, in != NULL ? in->line : 0);
        else if (in != NULL && field_named(field->name) == i &&
                 (!has_role(field->name, SY_FIELD_OUT) || has_role(field->name, SY_FIELD_INOUT)))
            make_input(c, in);
    }
    for (c->want.status = 0; ex->rejected && strcmp(sy_status_name(c->want.status), ex->status) != 0;)
        c->want.status++;
    call_infer(c, shapes);
    for (int i = 0; i < op->n_tensors; i++)
        if ((sy_op_field(op, i)->flags & (SY_FIELD_OUT | SY_FIELD_INOUT)) == SY_FIELD_OUT)
            make_output(c, sy_op_field(op, i), &shapes[i]);
}

/* ---- What is expected ---- */

static void oracle(struct call *c)
{
    const struct example *const ex = now->ex;
    if (ex->query != NULL) {
        c->query.rows = pair_value(ex->query, "rows", -1);
        c->query.slots = pair_value(ex->query, "slots", -1);
    }
    for (int i = 0; i < op->n_tensors; i++) {
        struct operand *const x = &c->operand[i];
        const struct entry *const old = example_entry(ex, x->field->name, false), *const out = example_entry(
                                                                                      ex, x->field->name,
                                                                                      true);
        if (!x->given || !x->out)
            continue;
        if (old != NULL) { /* what an output holds before the call */
            entry_values(&file, old, now->alt, x->dense);
            memcpy(x->want, x->dense, x->bytes);
        }
        if (out != NULL && !ex->rejected)
            entry_values(&file, out, now->alt, x->want);
    }
}

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
static void print_difference(const struct operand *x)
{
    const unsigned char *const got = x->block + x->first;
    if (!x->given || !x->out || x->over != NULL || memcmp(got, x->want, x->bytes) == 0)
        return;
    print_error("got %s:", x->field->name);
    for (size_t at = 0; at < x->bytes && at < 4096 * x->element; at += x->element)
        print_element(x->type, got + at);
    print_error("\n");
}

static void expect_rejection(sy_ctx *ctx, sy_status status)
{
    const struct example *const ex = now->ex;
    sy_fault f;
    assert_int_equal(sy_ctx_fault(ctx, &f), SY_OK);
    const char *argument = *f.argument ? f.argument : "-";
    const bool same = strcmp(sy_status_name(status), ex->status) == 0 &&
                      strcmp(sy_fault_name(f.code), ex->code) == 0 && strcmp(argument, ex->argument) == 0 &&
                      f.batch == ex->numbers[0] && f.position == ex->numbers[1] &&
                      f.value == ex->numbers[2] && f.limit == ex->numbers[3];
    if (same && strcmp(sy_ctx_error(ctx), ex->sentence) == 0)
        return;
    char place[64] = "";
    if (f.batch >= 0)
        snprintf(place, sizeof place, " batch %lld", (long long)f.batch);
    if (f.position >= 0)
        snprintf(place + strlen(place), 32, " position %lld", (long long)f.position);
    fail_msg("%s: got\n    !! %s %s %s%s value %lld limit %lld\n    !! %s", case_where,
             sy_status_name(status), sy_fault_name(f.code), argument, place, (long long)f.value,
             (long long)f.limit, sy_ctx_error(ctx));
}

/* The query accepts what only contents make wrong, and rejects the rest in the same words, outputs aside. */
static void expect_rejected(struct call *c, sy_ctx *ctx, sy_status status)
{
    const struct example *const ex = now->ex;
    sy_query query;
    expect_rejection(ctx, status);
    call_untouched(c, ctx);
    const sy_status asked = op_query(c, ctx, call_bind(c), op->args_bytes, &query);
    if (ex->numbers[0] >= 0 || ex->numbers[1] >= 0)
        expect_status(ctx, asked, SY_OK);
    else if (!has_role(ex->argument, SY_FIELD_OUT))
        expect_rejection(ctx, asked);
}

/* ---- Runs ---- */

static void check_call(struct call *c, sy_ctx *ctx)
{
    const sy_status status = call_run(c, ctx);
    if (now->ex->rejected) {
        expect_rejected(c, ctx, status);
        return;
    }
    for (int i = 0; i < op->n_tensors && status == SY_OK; i++)
        print_difference(&c->operand[i]);
    call_check(c, ctx, status);
}

static void check_case(void **state)
{
    static struct call c;
    const struct op_case example = {.name = op->name, .make = make, .oracle = oracle};
    struct reader in = reader_text("");
    now = *state;
    snprintf(case_where, sizeof case_where, "%s, types %d", now->ex->name, now->alt + 1);
    call_make(&c, &example, &in);
    for (int k = 0; k < (test_on_device() && !test_full() ? 1 : n_case_ctx); k++)
        for (uint64_t odd = 0; odd < 2; odd++) {
            call_lay_out(&c, odd * (uint64_t)(k + 1), false);
            check_call(&c, case_ctx[k]);
        }
    call_free(&c);
}

/* ---- The program ---- */

/* Names that the description does not have. */
static void check_names(const struct example *ex)
{
    for (int i = 0; i < ex->n_entries; i++) {
        const int at = field_named(ex->entries[i].name);
        if (at < 0 || (ex->entries[i].out && !has_role(ex->entries[i].name, SY_FIELD_OUT)))
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
    const int failed = test_run_in_contexts(&list, test_name("examples_%s", name));
    free(copy);
    return failed;
}
