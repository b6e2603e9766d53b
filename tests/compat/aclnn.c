/* The program of the aclnn layer: the cases and rows of aclnn.txt, and what follows for every operator. See aclnn.h. */
#include "aclnn.h"

#include <ctype.h>

struct examples aclnn_table;

bool on_device(void)
{
    return getenv("SWITCHYARD_COMPAT_DEVICE") != NULL;
}

/* ---- Tensors ---- */

/* Its elements; of more than 2^40 no more are counted. */
static int64_t arg_count(const struct arg *a)
{
    const int64_t most = INT64_C(1) << 40;
    int64_t count = 1;
    for (int d = 0; d < a->rank; d++)
        count = a->dims[d] <= 0 ? 0 : count > most / a->dims[d] ? most : count * a->dims[d];
    return count;
}

static size_t dense_bytes(const struct arg *a)
{
    return (size_t)arg_count(a) * aclDataTypeSize(a->type);
}

/* Where element i, counted in row order, is in mem. */
static size_t place_of(const struct arg *a, int64_t i)
{
    int64_t at = a->offset;
    for (int d = a->rank; d-- > 0;) {
        at += i % a->dims[d] * a->strides[d];
        i /= a->dims[d];
    }
    return (size_t)at * aclDataTypeSize(a->type);
}

void arg_get(const struct arg *a, void *dense)
{
    const size_t bytes = aclDataTypeSize(a->type);
    for (int64_t i = 0; i < arg_count(a); i++)
        memcpy((char *)dense + (size_t)i * bytes, a->mem + place_of(a, i), bytes);
}

static void arg_make_memory(struct arg *a, double reach)
{
    const size_t elem = aclDataTypeSize(a->type);
    const bool usual = a->offset >= 0 && reach >= 0 && reach < 1 << 28 && elem > 0;
    a->bytes = !usual || arg_count(a) == 0 ? 64 : ((size_t)reach + 1) * elem;
    a->mem = buf_new(a->bytes, a->misalign);
    for (int64_t i = 0; a->data != NULL && usual && i < arg_count(a); i++)
        memcpy(a->mem + place_of(a, i), a->data + (size_t)i * elem, elem);
    a->before = malloc(a->bytes);
    assert_non_null(a->before);
    memcpy(a->before, a->mem, a->bytes);
    if (on_device()) {
        void *block;
        ok(aclrtMalloc(&block, a->bytes + a->misalign, ACL_MEM_MALLOC_HUGE_FIRST));
        a->device = (unsigned char *)block + a->misalign;
    }
}

static unsigned char *arg_address(const struct arg *a)
{
    return a->bare ? NULL : a->device != NULL ? a->device : a->mem;
}

/* With `far_away` there is no memory. */
static void arg_make(struct arg *a, void *far_away)
{
    if (a->rank == 0 || a->over != NULL)
        return;
    uint64_t compact = 1;
    double reach = (double)a->offset; /* of any size: nothing touches the memory of a rejected shape */
    for (int d = a->rank; d-- > 0;) {
        if (!a->strided)
            a->strides[d] = (int64_t)compact;
        compact *= (uint64_t)a->dims[d];
        reach += a->dims[d] > 0 ? (double)(a->dims[d] - 1) * (double)a->strides[d] : 0;
    }
    if (far_away == NULL)
        arg_make_memory(a, reach);
    a->tensor = aclCreateTensor(a->dims, (uint64_t)a->rank, a->type, a->strides, a->offset, a->format,
                                a->dims, (uint64_t)a->rank, far_away != NULL ? far_away : arg_address(a));
    assert_non_null(a->tensor);
}

static void arg_free(struct arg *a)
{
    if (a->device != NULL)
        ok(aclrtFree(a->device - a->misalign));
    buf_free(a->mem);
    free(a->before);
    if (a->over == NULL)
        ok(aclDestroyTensor(a->tensor));
    free(a->data);
    free(a->want);
}

/* Every byte but those of the elements is what it was; with `all` those too. */
static void arg_expect_untouched(const struct arg *a, bool all, const char *what)
{
    if (a->mem == NULL)
        return;
    unsigned char *now = malloc(a->bytes);
    assert_non_null(now);
    memcpy(now, a->mem, a->bytes);
    for (int64_t i = 0; !all && i < arg_count(a); i++)
        memcpy(now + place_of(a, i), a->before + place_of(a, i), aclDataTypeSize(a->type));
    if (memcmp(now, a->before, a->bytes) != 0)
        fail_msg("%s: bytes of %s changed", what, a->name);
    free(now);
}

/* ---- Words ---- */

enum { WORD = 64 };

/* Copies the next word of *text, "" at its end. */
static char *next_word(const char **text, char word[WORD])
{
    *text += strspn(*text, " ");
    const size_t n = strcspn(*text, " ");
    assert_true(n < WORD);
    memcpy(word, *text, n);
    word[n] = '\0';
    *text += n;
    return word;
}

/* Cuts "name=value" at the sign and returns the value, NULL without one. */
static char *cut(char *word)
{
    char *const sign = strchr(word, '=');
    if (sign != NULL)
        *sign = '\0';
    return sign != NULL ? sign + 1 : NULL;
}

static bool read_type(const char *word, struct arg *a)
{
    static const aclDataType types[SY_N_TYPES] = {
        [SY_TYPE_F32] = ACL_FLOAT,  [SY_TYPE_F16] = ACL_FLOAT16, [SY_TYPE_BF16] = ACL_BF16,
        [SY_TYPE_F64] = ACL_DOUBLE, [SY_TYPE_I8] = ACL_INT8,     [SY_TYPE_I16] = ACL_INT16,
        [SY_TYPE_I32] = ACL_INT32,  [SY_TYPE_I64] = ACL_INT64,   [SY_TYPE_U8] = ACL_UINT8,
        [SY_TYPE_BOOL] = ACL_BOOL};
    for (int t = 1; t < SY_N_TYPES; t++)
        if (strcmp(sy_type_name((sy_type)t), word) == 0) {
            a->element = (sy_type)t;
            a->type = types[t];
            return true;
        }
    if (word[0] == '#')
        a->type = (aclDataType)strtol(word + 1, NULL, 10);
    return word[0] == '#';
}

static int read_numbers(const char *word, int64_t *to)
{
    int n = 0;
    for (char *end; *word; word = *end ? end + 1 : end) {
        assert_true(n < 4);
        to[n++] = strtoll(word, &end, 10);
        assert_true(end > word);
    }
    return n;
}

static void set_number(struct number *number, const char *text)
{
    text += strspn(text, " ");
    free(number->text);
    number->text = strdup(text);
    assert_non_null(number->text);
    for (char *end = number->text + strlen(text); end > number->text && isspace((unsigned char)end[-1]);)
        *--end = '\0';
    number->i = strtoll(text, NULL, 10);
    number->d = strtod(text, NULL);
}

/* The number of this name, or NULL. */
static struct number *find_number(struct call *c, const char *name)
{
    const char *rest = c->op->numbers;
    char word[WORD];
    for (int i = 0; *next_word(&rest, word); i++) {
        (void)cut(word);
        if (strcmp(word, name) == 0)
            return &c->number[i];
    }
    return NULL;
}

static struct arg *find_arg(struct call *c, const char *name)
{
    for (int i = 0; i < c->count; i++)
        if (strcmp(c->args[i].name, name) == 0)
            return &c->args[i];
    return NULL;
}

struct arg *acl_call_arg(struct call *c, const char *name)
{
    struct arg *const found = find_arg(c, name);
    if (found == NULL)
        fail_msg("%s has no %s", c->op->name, name);
    return found;
}

const aclIntArray *acl_call_array(struct call *c, int number)
{
    int64_t values[4];
    if (c->number[number].text == NULL)
        return NULL;
    c->array = aclCreateIntArray(values, (uint64_t)read_numbers(c->number[number].text, values));
    return c->array;
}

/* ---- Calls of cases ---- */

/* The word of `op` for this alternative. */
static const struct op *op_of(const struct example *ex, int alt)
{
    const struct entry *const entry = example_entry(ex, "op", false);
    const char *rest = entry != NULL ? entry->values : "";
    char word[WORD], *name = next_word(&rest, word);
    for (int i = 0; i < alt && strchr(name, '|') != NULL; i++)
        name = strchr(name, '|') + 1;
    name[strcspn(name, "|")] = '\0';
    for (int i = 0; i < n_aclnn_ops; i++)
        if (strcmp(aclnn_ops[i]->name, name) == 0)
            return aclnn_ops[i];
    bad_line(&aclnn_table, ex->line, "no operator %s", name);
}

static void *dense_memory(const struct arg *a, const void *from)
{
    unsigned char *const dense = malloc(dense_bytes(a) + 1);
    assert_non_null(dense);
    memset(dense, 0xA5, dense_bytes(a) + 1);
    if (from != NULL)
        memcpy(dense, from, dense_bytes(a));
    return dense;
}

/* A tensor that the case has as an input, as an output, or as both. */
static void load_arg(struct arg *a, const struct example *ex, int alt)
{
    const struct entry *const in = example_entry(ex, a->name, false),
                              *const out = example_entry(ex, a->name, true),
                              *const any = in != NULL ? in : out;
    a->format = ACL_FORMAT_ND;
    if (any == NULL)
        return;
    assert_true(read_type(sy_type_name(entry_type(any, alt)), a));
    a->rank = any->rank;
    memcpy(a->dims, any->shape, sizeof a->dims);
    a->bare = arg_count(a) == 0;
    a->data = dense_memory(a, NULL);
    if (in != NULL)
        entry_values(&aclnn_table, in, alt, a->data);
    if (out != NULL) {
        a->want = dense_memory(a, a->data);
        entry_values(&aclnn_table, out, alt, a->want);
    }
}

/* "name=value" words; a name alone is a number that the call does not have. */
static void load_numbers(struct call *c, const char *text, int line)
{
    char word[WORD];
    while (*next_word(&text, word)) {
        const char *const value = cut(word);
        struct number *const number = find_number(c, word);
        if (number == NULL)
            bad_line(&aclnn_table, line, "%s has no number %s", c->op->name, word);
        if (value != NULL)
            set_number(number, value);
    }
}

void acl_call_load(struct call *c, const struct example *ex, int alt)
{
    char word[WORD];
    *c = (struct call){.op = op_of(ex, alt)};
    for (const char *rest = c->op->tensors; *next_word(&rest, word);)
        if (strcmp(word, ">") == 0)
            c->first_output = c->count;
        else {
            struct arg *const a = &c->args[c->count++];
            a->optional = strchr(word, '?') != NULL;
            snprintf(a->name, sizeof a->name, "%.*s", (int)strcspn(word, "?"), word);
        }
    load_numbers(c, c->op->numbers, 0);
    for (int i = 0; i < ex->n_entries; i++) {
        const struct entry *const e = &ex->entries[i];
        if (strcmp(e->name, "op") == 0) {
            const char *rest = e->values;
            (void)next_word(&rest, word);
            load_numbers(c, rest, e->line);
        } else if (find_arg(c, e->name) == NULL) {
            bad_line(&aclnn_table, e->line, "%s has no %s", c->op->name, e->name);
        }
    }
    for (int i = 0; i < c->count; i++)
        load_arg(&c->args[i], ex, alt);
}

void acl_call_named(struct call *c, const char *name)
{
    for (int i = 0; i < aclnn_table.count; i++)
        if (strcmp(aclnn_table.list[i].name, name) == 0) {
            acl_call_load(c, &aclnn_table.list[i], 0);
            return;
        }
    fail_msg("no case %s", name);
}

/* ---- Changes ---- */

/* The values of the case do not fit any more, unless there are fewer. */
static void drop_data(struct arg *a, bool more)
{
    a->bare = false;
    free(a->want);
    a->want = NULL;
    if (more) {
        free(a->data);
        a->data = NULL;
    }
}

static void change_shape(struct arg *a, const char *word)
{
    const int64_t before = arg_count(a);
    a->rank = read_numbers(word, a->dims);
    drop_data(a, arg_count(a) > before);
}

/* Values of the type and shape that the tensor has now. */
static void change_values(struct arg *a, bool want, const char *values)
{
    struct entry e = {.name = a->name, .out = want, .n_types = 1, .types = {a->element}, .rank = a->rank};
    unsigned char **const to = want ? &a->want : &a->data;
    e.values = (char *)(uintptr_t)values;
    memcpy(e.shape, a->dims, sizeof a->dims);
    free(*to);
    *to = dense_memory(a, NULL);
    entry_values(&aclnn_table, &e, 0, *to);
}

static void change_arg(struct call *c, struct arg *a, bool want, const char *rest)
{
    char word[WORD];
    while (*next_word(&rest, word)) {
        if (strcmp(word, "=") == 0) {
            change_values(a, want, rest);
            return;
        }
        if (strcmp(word, "bare") == 0) {
            a->bare = true;
        } else if (strcmp(word, "strides") == 0) {
            a->strided = true;
            (void)read_numbers(next_word(&rest, word), a->strides);
        } else if (strcmp(word, "offset") == 0) {
            a->offset = strtoll(next_word(&rest, word), NULL, 10);
        } else if (strcmp(word, "format") == 0) {
            a->format = (aclFormat)strtol(next_word(&rest, word), NULL, 10);
        } else if (strcmp(word, "over") == 0) {
            a->over = acl_call_arg(c, next_word(&rest, word));
        } else if (read_type(word, a)) {
            drop_data(a, true);
        } else {
            change_shape(a, word);
        }
    }
}

static void change_one(struct call *c, const char *text)
{
    char name[WORD], sign[WORD];
    (void)next_word(&text, name);
    const bool none = strcmp(name, "no") == 0, want = strcmp(name, "->") == 0;
    if (none || want)
        (void)next_word(&text, name);
    struct number *const number = find_number(c, name);
    if (number != NULL && none) {
        free(number->text);
        number->text = NULL;
    } else if (number != NULL) {
        assert_string_equal(next_word(&text, sign), "=");
        set_number(number, text);
    } else if (none) {
        drop_data(acl_call_arg(c, name), true);
        acl_call_arg(c, name)->rank = 0;
    } else {
        change_arg(c, acl_call_arg(c, name), want, text);
    }
}

void acl_call_change(struct call *c, const char *changes)
{
    char *const copy = strdup(changes);
    assert_non_null(copy);
    for (char *one = copy, *next; one != NULL; one = next) {
        next = strstr(one, " & ");
        if (next != NULL) {
            *next = '\0';
            next += 3;
        }
        change_one(c, one);
    }
    free(copy);
}

/* ---- Both phases ---- */

void acl_call_make(struct call *c)
{
    for (int i = 0; i < c->count; i++)
        arg_make(&c->args[i], NULL);
    for (int i = 0; i < c->count; i++)
        if (c->args[i].over != NULL)
            c->args[i].tensor = c->args[i].over->tensor;
}

void acl_call_free(struct call *c)
{
    for (int i = 0; i < c->count; i++)
        arg_free(&c->args[i]);
    for (int i = 0; i < CALL_NUMBERS; i++)
        free(c->number[i].text);
}

aclnnStatus acl_call_ask(struct call *c, uint64_t *size, aclOpExecutor **executor)
{
    const aclnnStatus st = c->op->ask(c, size, executor);
    ok(aclDestroyIntArray(c->array));
    c->array = NULL;
    return st;
}

/* The memory of all tensors to the device, or back. */
static void move_args(struct call *c, bool there)
{
    for (int i = 0; i < c->count; i++) {
        struct arg *a = &c->args[i];
        if (a->device != NULL)
            ok(aclrtMemcpy(there ? a->device : a->mem, a->bytes, there ? a->mem : a->device, a->bytes,
                           there ? ACL_MEMCPY_HOST_TO_DEVICE : ACL_MEMCPY_DEVICE_TO_HOST));
    }
}

aclnnStatus acl_call_run(struct call *c)
{
    uint64_t size = 77;
    aclOpExecutor *executor = NULL;
    aclnnStatus st = acl_call_ask(c, &size, &executor);
    if (st != ACLNN_SUCCESS) {
        assert_null(executor);
        assert_int_equal(size, 77);
        return st;
    }
    assert_non_null(executor);
    void *workspace = NULL;
    if (on_device() && size > 0)
        ok(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
    else if (size > 0)
        workspace = buf_new((size_t)size, 0);
    move_args(c, true);
    st = c->op->execute(workspace, size, executor, NULL);
    move_args(c, false);
    if (workspace != NULL && on_device())
        ok(aclrtFree(workspace));
    else
        buf_free(workspace);
    return st;
}

void acl_call_expect_outputs(struct call *c)
{
    for (int i = 0; i < c->count; i++) {
        const struct arg *const a = &c->args[i], *const at = a->over != NULL ? a->over : a;
        bool changes = i >= c->first_output;
        for (int j = 0; j < c->count; j++)
            changes = changes || c->args[j].over == a;
        arg_expect_untouched(a, !changes, c->op->name);
        if (i < c->first_output || a->rank == 0 || a->want == NULL || arg_count(a) == 0)
            continue;
        unsigned char *const got = malloc(dense_bytes(a));
        assert_non_null(got);
        arg_get(at, got);
        if (memcmp(got, a->want, dense_bytes(a)) != 0)
            print_error("%s: %s is not what the case has\n", c->op->name, a->name);
        expect_bytes(got, a->want, dense_bytes(a));
        free(got);
    }
}

void call_expect_untouched(struct call *c, const char *what)
{
    for (int i = 0; i < c->count; i++)
        arg_expect_untouched(&c->args[i], true, what);
}

void expect_aclnn_at(aclnnStatus got, aclnnStatus want, const char *file, int line)
{
    const char *sentence = aclGetRecentErrMsg();
    if (got == want && (want == ACLNN_SUCCESS || sentence[0] != '\0'))
        return;
    print_error("status %d, want %d: \"%s\"\n", (int)got, (int)want, sentence);
    _fail(file, line);
}

/* ---- Cases: compact, and with every tensor laid out at random ---- */

enum { LAYOUTS = 5, ROUNDS = 20, MANY_ELEMENTS = 10000 };
static int seen[LAYOUTS];
static uint64_t rng = 20;

/* Compact; rows apart; elements apart; columns first; columns first and apart. Anywhere in its memory, at any address.
   Tensors of more dimensions must be compact. */
static void lay_out(struct arg *a)
{
    a->bare = false; /* that of no elements */
    if (a->rank == 0 || a->rank > 2)
        return;
    const int form = (int)rng_below(&rng, LAYOUTS);
    const int64_t gap = 1 + rng_below(&rng, 4), step = form == 2 || form == 4 ? 2 + rng_below(&rng, 2) : 1;
    const int64_t rows = a->dims[0], columns = a->rank == 2 ? a->dims[1] : 1;
    seen[form]++;
    a->strided = true;
    a->offset = rng_below(&rng, 20);
    a->misalign = (size_t)rng_below(&rng, 4);
    a->strides[0] = form >= 3 || a->rank == 1 ? step : columns * step + (form > 0 ? gap : 0);
    if (a->rank == 2)
        a->strides[1] = form < 3 ? step : rows * step + gap;
}

struct run {
    const struct example *ex;
    int alt;
    const char *kind, *changes; /* of a row */
    aclnnStatus want;
};

static void run_case(void **state)
{
    const struct run *const run = *state;
    bool large = false;
    for (int round = 0; round <= ROUNDS && !large; round++) {
        struct call c;
        int64_t elements = 0;
        bool fixed = false; /* its layout is what the row is about */
        acl_call_load(&c, run->ex, run->alt);
        if (run->changes != NULL)
            acl_call_change(&c, run->changes);
        for (int i = 0; i < c.count; i++) {
            elements += arg_count(&c.args[i]);
            fixed = fixed || c.args[i].strided || c.args[i].over != NULL;
        }
        large = elements > MANY_ELEMENTS || fixed;
        for (int i = 0; round > 0 && !large && i < c.count; i++)
            lay_out(&c.args[i]);
        if (elements <= MANY_ELEMENTS || !on_device()) {
            acl_call_make(&c);
            expect_aclnn(acl_call_run(&c), ACLNN_SUCCESS);
            acl_call_expect_outputs(&c);
        }
        acl_call_free(&c);
    }
}

TEST(all_layouts)
{
    for (int i = 0; i < LAYOUTS; i++)
        assert_true(seen[i] > 0);
}

/* ---- Rows ---- */

static void expect_status_of(const struct run *run, const char *changes, aclnnStatus want)
{
    struct call c;
    acl_call_load(&c, run->ex, run->alt);
    acl_call_change(&c, changes);
    acl_call_make(&c);
    expect_aclnn(acl_call_run(&c), want);
    if (want != ACLNN_SUCCESS)
        call_expect_untouched(&c, changes);
    acl_call_free(&c);
}

static void run_row(void **state)
{
    const struct run *const run = *state;
    expect_status_of(run, run->changes, run->want);
}

static void run_ask(void **state)
{
    const struct run *const run = *state;
    struct call c;
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    acl_call_load(&c, run->ex, run->alt);
    acl_call_change(&c, run->changes);
    for (int i = 0; i < c.count; i++)
        arg_make(&c.args[i], (void *)((uintptr_t)(i + 1) << 44));
    expect_aclnn(acl_call_ask(&c, &size, &executor), run->want);
    if (run->want == ACLNN_SUCCESS)
        ok(aclDestroyAclOpExecutor(executor));
    acl_call_free(&c);
}

/* ---- For the first case of every operator ---- */

/* Each tensor alone: missing, without data, of a type that no operator takes, in a format that strides do not describe. */
static void wrong_tensors(void **state)
{
    static const struct {
        const char *change;
        aclnnStatus want;
    } rows[] = {{"no %s", ACLNN_ERR_PARAM_NULLPTR},
                {"%s bare", ACLNN_ERR_PARAM_NULLPTR},
                {"%s f64", ACLNN_ERR_PARAM_INVALID},
                {"%s format 29", ACLNN_ERR_PARAM_INVALID}};
    const struct run *const run = *state;
    struct call c;
    acl_call_load(&c, run->ex, run->alt);
    for (int i = 0; i < c.count; i++)
        for (size_t row = 0; row < COUNT_OF(rows); row++)
            if (c.args[i].rank > 0 && (row > 0 || !c.args[i].optional))
                expect_status_of(run, test_name(rows[row].change, c.args[i].name), rows[row].want);
    acl_call_free(&c);
}

/* Every pair of an output and another tensor, one's memory begun inside the other's. */
static void overlap(void **state)
{
    const struct run *const run = *state;
    struct call c;
    int pairs = 0;
    for (int pair = 0; pair < CALL_ARGS * CALL_ARGS; pair++) {
        const int i = pair / CALL_ARGS, j = pair % CALL_ARGS;
        acl_call_load(&c, run->ex, run->alt);
        acl_call_make(&c);
        const struct arg *const a = &c.args[i], *const b = &c.args[j];
        if (i != j && i >= c.first_output && a->tensor != NULL && b->tensor != NULL) {
            ok(aclDestroyTensor(a->tensor));
            c.args[i].tensor = aclCreateTensor(a->dims, (uint64_t)a->rank, a->type, NULL, 0, ACL_FORMAT_ND,
                                               a->dims, (uint64_t)a->rank, arg_address(b) + b->bytes - 1);
            expect_aclnn(acl_call_run(&c), ACLNN_ERR_PARAM_INVALID);
            call_expect_untouched(&c, "overlap");
            pairs++;
        }
        acl_call_free(&c);
    }
    assert_true(pairs > 0);
}

static void no_place_for_the_answer(void **state)
{
    const struct run *const run = *state;
    struct call c;
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    acl_call_load(&c, run->ex, run->alt);
    acl_call_make(&c);
    expect_aclnn(acl_call_ask(&c, NULL, &executor), ACLNN_ERR_PARAM_NULLPTR);
    expect_aclnn(acl_call_ask(&c, &size, NULL), ACLNN_ERR_PARAM_NULLPTR);
    assert_null(executor);
    expect_aclnn(c.op->execute(NULL, 0, NULL, NULL), ACLNN_ERR_PARAM_NULLPTR);
    acl_call_free(&c);
}

/* An executor is rejected by every other operator, and still valid for its own. */
static void of_another_operator(void **state)
{
    const struct run *const run = *state;
    struct call c;
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    acl_call_load(&c, run->ex, run->alt);
    acl_call_make(&c);
    expect_aclnn(acl_call_ask(&c, &size, &executor), ACLNN_SUCCESS);
    for (int i = 0; i < n_aclnn_ops; i++)
        if (aclnn_ops[i] != c.op)
            expect_aclnn(aclnn_ops[i]->execute(NULL, 0, executor, NULL), ACLNN_ERR_PARAM_INVALID);
    ok(aclDestroyAclOpExecutor(executor));
    call_expect_untouched(&c, "another operator");
    acl_call_free(&c);
}

/* ---- The program ---- */

static void add_run(struct test_list *list, struct run run, const char *name, CMUnitTestFunction function)
{
    static struct run *kept[4096]; /* reachable for leak checkers */
    static size_t count;
    struct run *const one = malloc(sizeof *one);
    if (one == NULL || count == COUNT_OF(kept))
        abort();
    *one = run;
    kept[count++] = one;
    test_add(list, test_name("%s: %s", op_of(run.ex, run.alt)->name, name), function, one);
}

/* "try 161002 a | b & c": a test for a, one for b with c. */
static void add_row(struct test_list *list, const struct example *ex, const char *text)
{
    struct run run = {.ex = ex};
    run.kind = text[0] == 'w' ? "with" : text[0] == 't' ? "try" : "ask";
    text += strlen(run.kind);
    if (run.kind[0] != 'w')
        run.want = (aclnnStatus)strtol(text, (char **)(uintptr_t)&text, 10);
    while (*text) {
        const char *const end = strstr(text, " | ");
        const int n = (int)(end != NULL ? end - text : (ptrdiff_t)strlen(text));
        run.changes = strndup(text, (size_t)n);
        add_run(list, run, test_name("%s: %s %d%s", ex->name, run.kind, (int)run.want, run.changes),
                run.kind[0] == 'w'   ? run_case
                : run.kind[0] == 't' ? run_row
                                     : run_ask);
        text += end != NULL ? n + 2 : n;
    }
}

static void add_case(struct test_list *list, const struct example *ex, const struct op *seen_ops[])
{
    const int n = example_alternatives(ex);
    for (int alt = 0; alt < n; alt++) {
        const struct run run = {.ex = ex, .alt = alt};
        add_run(list, run, n > 1 ? test_name("%s, types %d", ex->name, alt + 1) : ex->name, run_case);
        int i = 0;
        while (seen_ops[i] != NULL && seen_ops[i] != op_of(ex, alt))
            i++;
        if (seen_ops[i] == NULL) {
            add_run(list, run, "wrong tensors", wrong_tensors);
            add_run(list, run, "overlap", overlap);
            add_run(list, run, "no place for the answer", no_place_for_the_answer);
            add_run(list, run, "executors of others", of_another_operator);
        }
        seen_ops[i] = op_of(ex, alt);
    }
    for (int i = 0; i < ex->n_rows; i++)
        add_row(list, ex, ex->rows[i]);
}

int main(int argc, char **argv)
{
    struct test_list list = {0};
    const struct op *seen_ops[32] = {NULL}; /* in the order of their first cases */
    if (argc < 2)
        return fprintf(stderr, "usage: compat_aclnn tests/compat/aclnn.txt [PATTERN]\n"), 2;
    aclnn_table = examples_read(argv[1]);
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    for (int i = 0; i < aclnn_table.count; i++)
        add_case(&list, &aclnn_table.list[i], seen_ops);
    if (seen_ops[n_aclnn_ops - 1] == NULL)
        bad_line(&aclnn_table, 1, "an operator has no case");
    test_add(&list, "all layouts", all_layouts, NULL);
    add_lifetimes(&list);
    add_runtime(&list);
    return test_run(&list, "compat_aclnn");
}
