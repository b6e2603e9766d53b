/*
 * See described.h.
 */
#include "described.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

enum { BENCH_SEEDS = 4096 }; /* of a tensor, one for each turn: there are no more sets */

static const char no_memory[] = "not enough memory";

/* ---- The text of a case ---- */

/* Where a word of the shape begins with this text. Brackets and commas begin one anywhere. */
static const char *find_word(const char *shape, const char *text)
{
    const bool anywhere = text[0] == '[' || text[0] == ',';
    for (const char *at = strstr(shape, text); at; at = strstr(at + 1, text))
        if (anywhere || at == shape || at[-1] == ' ')
            return at;
    return NULL;
}

double bench_number(const char *shape, const char *name)
{
    const char *const at = find_word(shape, name);
    char *end = NULL;
    const double value = at ? strtod(at + strlen(name), &end) : 0;
    return end && *end == 'k' ? 1024 * value : value;
}

bool bench_says(const char *shape, const char *words)
{
    const char *const at = find_word(shape, words);
    return at && (at[strlen(words)] == ' ' || at[strlen(words)] == '\0');
}

int64_t bench_size(const struct bench_call *c, const char *name)
{
    return (int64_t)bench_number(c->shape, name);
}

DLDataType bench_type(const struct bench_call *c)
{
    return bench_says(c->shape, "f32") ? SY_F32 : bench_says(c->shape, "bf16") ? SY_BF16 : SY_F16;
}

/* ---- Elements ---- */

int64_t bench_count(const DLTensor *x)
{
    int64_t n = 1;
    for (int i = 0; i < x->ndim; i++)
        n *= x->shape[i];
    return n;
}

size_t bench_bytes(const DLTensor *x)
{
    return x ? (size_t)bench_count(x) * (x->dtype.bits / 8) : 0;
}

float bench_load(const DLTensor *x, int64_t i)
{
    if (x->dtype.bits == 32)
        return ((const float *)x->data)[i];
    const uint16_t bits = ((const uint16_t *)x->data)[i];
    return x->dtype.code == kDLBfloat ? bf16_to_float(bits) : bench_f16_to_float(bits);
}

void bench_store(const DLTensor *x, int64_t i, float value)
{
    if (x->dtype.bits == 32)
        ((float *)x->data)[i] = value;
    else
        ((uint16_t *)x->data)[i] =
            x->dtype.code == kDLBfloat ? bf16_from_float(value) : bench_f16_from_float(value);
}

int64_t bench_turn(uint64_t seed)
{
    return (int64_t)(seed % BENCH_SEEDS);
}

void bench_store_integer(const DLTensor *x, int64_t i, int64_t value)
{
    if (x->dtype.bits == 8)
        ((uint8_t *)x->data)[i] = (uint8_t)value;
    else if (x->dtype.bits == 16)
        ((uint16_t *)x->data)[i] = (uint16_t)value;
    else if (x->dtype.bits == 32)
        ((int32_t *)x->data)[i] = (int32_t)value;
    else
        ((int64_t *)x->data)[i] = value;
}

/* ---- Fillers ---- */

BENCH_FILLER(fill_bits)
{
    bench_fill_random(x->data, bench_bytes(x), seed);
}

BENCH_FILLER(fill_numbers)
{
    bench_fill_bf16(x->data, (size_t)bench_count(x), seed);
}

/* Of a fixed order of 0 .. n-1, which is a power of two, number i. Every step can be undone, so none comes twice. */
int64_t bench_distinct(int64_t i, int64_t n)
{
    uint64_t x = (uint64_t)(i % n);
    for (int round = 0; round < 4; round++) {
        x = (x * 0x9e3779b97f4a7c15u + 0x632be5abu) & (uint64_t)(n - 1);
        x ^= x >> 5;
    }
    return (int64_t)x;
}

/* Below n, lower ones more often. */
static int64_t skewed(double u, int64_t n)
{
    return (int64_t)((u + u * u) / 2 * (double)n);
}

int64_t bench_different(uint64_t seed, int64_t row, int64_t j, int64_t n)
{
    uint64_t state = seed << 32 | (uint64_t)row;
    const uint64_t first = random_bits(&state), step = random_bits(&state) | 1;
    return (int64_t)((first + (uint64_t)j * step) % (uint64_t)n);
}

BENCH_EACH(fill_unit, bench_store, (float)((double)n / 100 * random_unit(&seed)))
BENCH_EACH(fill_around_zero, bench_store, (float)random_unit(&seed) - 0.5f)
BENCH_EACH(fill_normal, bench_store, (float)((double)n / 10 * bench_normal(&seed)))
BENCH_EACH(fill_hundredths, bench_store, (float)n / 100)
BENCH_EACH(fill_integer, bench_store_integer, n)
BENCH_EACH(fill_in_order, bench_store_integer, i % n)
BENCH_EACH(fill_steps, bench_store_integer, i *n)
BENCH_EACH(fill_ids, bench_store_integer, (int64_t)(random_bits(&seed) % (uint64_t)n))
BENCH_EACH(fill_different, bench_store_integer, bench_different(seed, i / x->shape[1], i % x->shape[1], n))
BENCH_EACH(fill_skewed, bench_store_integer, skewed(random_unit(&seed), n))
BENCH_EACH(fill_next, bench_store_integer, bench_distinct(bench_turn(seed) * bench_count(x) + i, n))

BENCH_FILLER(fill_shuffle)
{
    bench_shuffle(x->data, bench_count(x), seed);
}

BENCH_FILLER(fill_route)
{
    memset(x->data, 0, bench_bytes(x));
    bench_route(x->data, x->shape[0], x->shape[1], n, seed);
}

const DLTensor *bench_named(const struct bench_call *c, const char *name)
{
    const DLTensor *x = NULL;
    for (int i = 0; i < c->op->n_tensors && !x; i++)
        if (strcmp(sy_op_field(c->op, i)->name, name) == 0)
            memcpy(&x, (const char *)c->args + sy_op_field(c->op, i)->offset, sizeof x);
    return x;
}

/* Slot j of a token is its j-th expert. */
BENCH_FILLER(fill_slot_rows)
{
    const DLTensor *map = NULL;
    for (int i = 0; !map; i++)
        map = c->tensors[i].view.dtype.code == SY_BOOL.code ? &c->tensors[i].view : NULL;
    const uint8_t *const routed = map->data;
    const int64_t cells = bench_count(map), experts = map->shape[1];
    int32_t next[1024] = {0}, row = 0, *index = x->data; /* most experts */
    for (int64_t e = 0; e < experts; e++) {
        next[e] = row;
        for (int64_t cell = e; cell < cells; cell += experts)
            row += routed[cell] != 0;
    }
    for (int64_t cell = 0; cell < cells; cell++)
        if (routed[cell] != 0)
            *index++ = next[cell % experts]++;
}

/* ---- Tensors ---- */

/* The view is its first member. */
static const struct bench_tensor *tensor_of(const DLTensor *view)
{
    return (const struct bench_tensor *)(const void *)view;
}

bool bench_fault(struct bench_call *c, const char *reason)
{
    if (c->fault[0] == '\0')
        snprintf(c->fault, sizeof c->fault, "%s", reason);
    return false;
}

enum place { OF_CALL, OF_PLAIN, ON_DEVICE };

/* All views are those of this turn. */
static void set_turn(struct bench_call *c, int64_t turn, enum place place)
{
    for (int i = 0; i < c->n_tensors; i++) {
        struct bench_tensor *const t = &c->tensors[i];
        const size_t at = t->copies > 1 ? (size_t)(turn % t->copies) * t->step : 0;
        t->view.device = place == ON_DEVICE ? c->device : (DLDevice){kDLCPU, 0};
        if (t->plain && place == OF_PLAIN && turn == 0)
            t->view.data = t->plain;
        else
            t->view.data = (place == ON_DEVICE ? t->there : t->data) + at;
    }
}

static struct bench_tensor *add(struct bench_call *c, const DLTensor **field, DLDataType type, int rank,
                                const int64_t *shape)
{
    struct bench_tensor *const t = &c->tensors[c->n_tensors++];
    *t = (struct bench_tensor){.offset = (size_t)((char *)field - (char *)c->args), .copies = 1};
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    t->view = sy_tensor(NULL, type, rank, t->shape);
    t->bytes = bench_bytes(&t->view);
    *field = &t->view;
    return t;
}

/* The copy that another one equals. A device has many: of numbers a few different ones are enough. */
static int64_t source_of(const struct bench_call *c, const struct bench_tensor *t, int64_t copy)
{
    const bool numbers = t->view.dtype.code == kDLFloat || t->view.dtype.code == kDLBfloat;
    if (t->turns != BENCH_TURNS)
        return 0;
    return numbers && c->device.device_type == kDLCUDA ? copy % 8 : copy;
}

static void fill_copy(const struct bench_call *c, struct bench_tensor *t, int64_t copy)
{
    const uint64_t seed = BENCH_SEEDS * (uint64_t)(t - c->tensors) + (uint64_t)copy;
    const int64_t source = source_of(c, t, copy);
    if (source < copy)
        memcpy(t->data + (size_t)copy * t->step, t->data + (size_t)source * t->step, t->bytes);
    else if (t->fill)
        t->fill(c, &t->view, t->n, seed);
    else
        memset(t->data, 0x3c, t->bytes); /* what the call or the plain loop leaves out is recognised */
}

/* Contents of smaller tensors may decide on others. */
enum { LARGE = 16 << 20 };

static void *memory(const struct bench_call *c, size_t bytes)
{
    return c->unfilled ? calloc(1, bytes) : bench_alloc(bytes, 1);
}

/* Allocates and fills the first copy. */
static bool place(struct bench_call *c, struct bench_tensor *t)
{
    if (c->fault[0] != '\0')
        return false;
    t->owned = true;
    t->step = t->bytes < 4096 ? (t->bytes + 63) / 64 * 64 : (t->bytes + 4095) / 4096 * 4096;
    t->data = memory(c, t->step);
    if (!t->data)
        return bench_fault(c, no_memory);
    t->view.data = t->data;
    if (!c->unfilled || t->bytes < LARGE)
        fill_copy(c, t, 0);
    return true;
}

bool bench_in(struct bench_call *c, const DLTensor **field, DLDataType type, int rank, const int64_t *shape,
              enum bench_turns turns, bench_filler *fill, int64_t n)
{
    struct bench_tensor *const t = add(c, field, type, rank, shape);
    t->turns = turns;
    t->fill = fill;
    t->n = n;
    return place(c, t);
}

bool bench_inout(struct bench_call *c, const DLTensor **field, DLDataType type, int rank,
                 const int64_t *shape, enum bench_turns turns, bench_filler *fill, int64_t n)
{
    struct bench_tensor *const t = &c->tensors[c->n_tensors];
    if (!bench_in(c, field, type, rank, shape, turns, fill, n))
        return false;
    t->plain = memory(c, t->step);
    if (!t->plain)
        return bench_fault(c, no_memory);
    if (!c->unfilled)
        memcpy(t->plain, t->data, t->bytes);
    return true;
}

bool bench_room(struct bench_call *c, const DLTensor **field, DLDataType type, int rank, const int64_t *shape,
                enum bench_turns turns)
{
    return bench_inout(c, field, type, rank, shape, turns, NULL, 0);
}

bool bench_out(struct bench_call *c, const DLTensor **field, enum bench_turns turns)
{
    sy_shape shapes[SY_MAX_FIELDS];
    if (c->fault[0] != '\0')
        return false;
    if (sy_infer(c->ctx, c->op, c->args, c->op->args_bytes, shapes, SY_MAX_FIELDS) != SY_OK)
        return bench_fault(c, sy_ctx_error(c->ctx));
    const size_t offset = (size_t)((char *)field - (char *)c->args);
    for (int i = 0; i < c->op->n_tensors; i++)
        if (sy_op_field(c->op, i)->offset == offset && shapes[i].rank >= 0)
            return bench_room(c, field, shapes[i].type, shapes[i].rank, shapes[i].extent, turns);
    return bench_fault(c, "there is no such output");
}

bool bench_columns(struct bench_call *c, const DLTensor **field, const DLTensor *of, int64_t begin,
                   int64_t width)
{
    struct bench_tensor *const whole = &c->tensors[tensor_of(of) - c->tensors];
    const int rank = whole->view.ndim;
    struct bench_tensor *const t = add(c, field, whole->view.dtype, rank, whole->shape);
    const size_t skipped = (size_t)begin * (whole->view.dtype.bits / 8);
    t->strides[rank - 1] = 1;
    for (int i = rank - 1; i > 0; i--)
        t->strides[i - 1] = t->strides[i] * whole->shape[i];
    t->shape[rank - 1] = width;
    t->view.strides = t->strides;
    if (c->fault[0] != '\0')
        return false;
    whole->shared = true;
    t->data = whole->data + skipped;
    t->plain = whole->plain ? whole->plain + skipped : NULL;
    t->view.data = t->data;
    return true;
}

void *bench_scratch(struct bench_call *c, size_t bytes)
{
    c->scratch = memory(c, bytes);
    if (!c->scratch)
        bench_fault(c, no_memory);
    return c->scratch;
}

/* Copies of so many bytes that the caches forget the first before it is used again. */
static int64_t sets_of(const struct bench_call *c, size_t bytes)
{
    const bool there = c->device.device_type == kDLCUDA;
    /* With 4096 sets of a few KiB their pages are evicted from the TLB. */
    const size_t cold = there ? BENCH_DEVICE_COLD : bench_cold_bytes(c->quick), most = !there     ? 4096
                                                                                       : c->quick ? 2
                                                                                                  : 2048;
    return (int64_t)(cold / (bytes + 1) < most ? cold / (bytes + 1) + 1 : most);
}

static size_t bytes_that(const struct bench_call *c, enum bench_turns turns)
{
    size_t bytes = 0;
    for (int i = 0; i < c->n_tensors; i++)
        bytes += c->tensors[i].turns == turns ? c->tensors[i].bytes : 0;
    return bytes;
}

static bool make_copies(struct bench_call *c)
{
    const size_t turning = bytes_that(c, BENCH_TURNS) + bytes_that(c, BENCH_COPIES),
                 pool = bytes_that(c, BENCH_POOL);
    /* What is small on a CPU is not for a cache of a device. */
    for (int i = 0; i < c->n_tensors && c->device.device_type == kDLCUDA; i++) {
        struct bench_tensor *const t = &c->tensors[i];
        if (t->turns == BENCH_ONCE && t->owned && !t->shared && t->bytes <= turning)
            t->turns = BENCH_COPIES;
    }
    const size_t touched = c->touched > 0 ? c->touched : turning;
    const int64_t n_sets = touched > 0 ? sets_of(c, touched) : 1, most = sets_of(c, pool);
    c->sets = n_sets;
    for (int i = 0; i < c->n_tensors; i++) {
        struct bench_tensor *const t = &c->tensors[i];
        if (t->turns == BENCH_ONCE)
            continue;
        t->copies = t->turns == BENCH_POOL && most < n_sets ? most : n_sets;
        unsigned char *const all = bench_alloc((size_t)t->copies, t->step);
        if (!all)
            return bench_fault(c, no_memory);
        memcpy(all, t->data, t->bytes);
        free(t->data);
        t->data = all;
    }
    for (int64_t copy = 1; copy < n_sets; copy++) {
        set_turn(c, copy, OF_CALL);
        for (int i = 0; i < c->n_tensors; i++)
            if (copy < c->tensors[i].copies)
                fill_copy(c, &c->tensors[i], copy);
    }
    return true;
}

/* ---- Rows that may be codes with scales ---- */

/* The format that a word of the case names. */
static void find_format(struct bench_call *c)
{
    char word[32];
    for (const char *at = c->shape; *at != '\0' && !c->format; at += *at == ' ') {
        const int n = (int)strcspn(at, " ");
        snprintf(word, sizeof word, "%.*s", n, at);
        c->format = sy_row_format_named(word, &c->named) == SY_OK ? &c->named : NULL;
        at += n;
    }
}

int64_t bench_groups(const sy_row_format *format, int64_t hidden)
{
    return format->group > 0 ? hidden / format->group : 1;
}

DLDataType bench_scale_type(const sy_row_format *format)
{
    return format->scale_type.bits == 8 ? SY_U8 : SY_F32;
}

/* All but NaN. */
BENCH_FILLER(fill_codes)
{
    unsigned char *const codes = x->data;
    bench_fill_random(codes, bench_bytes(x), seed);
    for (int64_t i = 0; i < bench_count(x); i++)
        codes[i] = (codes[i] & 127) == 127 ? 0 : codes[i];
}

/* Bytes of 2^-7 to 2^0, or numbers. */
BENCH_FILLER(fill_scales)
{
    for (int64_t i = 0; i < bench_count(x); i++)
        if (x->dtype.bits == 8)
            ((uint8_t *)x->data)[i] = (uint8_t)(120 + random_bits(&seed) % 8);
        else
            ((float *)x->data)[i] = ldexpf(1 + (float)random_unit(&seed), -7);
}

bool bench_rows(struct bench_call *c, const DLTensor **rows, const DLTensor **scales, int64_t n,
                int64_t hidden)
{
    if (!c->format)
        return bench_in(c, rows, SY_BF16, DIMS(n, hidden), BENCH_COPIES, fill_numbers, 0);
    return bench_in(c, rows, SY_U8, DIMS(n, hidden), BENCH_COPIES, fill_codes, 0) &&
           bench_in(c, scales, bench_scale_type(c->format), DIMS(n, bench_groups(c->format, hidden)),
                    BENCH_COPIES, fill_scales, 0);
}

/* ---- Rows that are moved ---- */

static size_t scale_bytes(const struct bench_call *c, int64_t hidden)
{
    return c->format ? (size_t)bench_groups(c->format, hidden) * (bench_scale_type(c->format).bits / 8) : 0;
}

size_t bench_moved_bytes(const struct bench_call *c, int64_t hidden)
{
    return (size_t)hidden * (c->format ? 1 : sizeof(uint16_t)) + scale_bytes(c, hidden);
}

struct bench_moved bench_moved(const struct bench_call *c, const DLTensor *tokens, void *scratch)
{
    const int64_t n = tokens->shape[0], hidden = tokens->shape[1];
    struct bench_moved moved = {tokens->data, scratch, (size_t)hidden * sizeof(uint16_t),
                                scale_bytes(c, hidden)};
    if (c->format) {
        unsigned char *const codes = (unsigned char *)scratch + (size_t)n * moved.scale_bytes;
        bench_quantize(tokens, c->format, codes, scratch, n * bench_groups(c->format, hidden));
        moved.rows = codes;
        moved.row_bytes = (size_t)hidden;
    }
    return moved;
}

static void move(void *to, int64_t at, const unsigned char *from, int64_t t, size_t bytes)
{
    if (t < 0)
        memset((char *)to + (size_t)at * bytes, 0, bytes);
    else
        memcpy((char *)to + (size_t)at * bytes, from + (size_t)t * bytes, bytes);
}

void bench_move(const struct bench_moved *from, int64_t t, const DLTensor *rows, const DLTensor *scales,
                int64_t at)
{
    move(rows->data, at, from->rows, t, from->row_bytes);
    if (from->scale_bytes > 0)
        move(scales->data, at, from->scales, t, from->scale_bytes);
}

/* ---- Numbers of codes ---- */

float bench_code_value(bool i8, unsigned char code)
{
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const float size =
        exponent == 0 ? ldexpf((float)fraction, -9) : ldexpf((float)(8 + fraction), exponent - 10);
    return i8 ? (float)(code < 128 ? code : code - 256) : code & 128 ? -size : size;
}

float bench_decoded(const sy_row_format *format, const DLTensor *codes, const DLTensor *scales, int64_t i)
{
    const int64_t group = codes->shape[codes->ndim - 1] / scales->shape[scales->ndim - 1];
    const float scale = scales->dtype.bits == 8 ? ldexpf(1, ((const uint8_t *)scales->data)[i / group] - 127)
                                                : ((const float *)scales->data)[i / group];
    return bench_code_value(format->q_type.code == kDLInt, ((const unsigned char *)codes->data)[i]) * scale;
}

/* ---- Measuring ---- */

sy_status bench_run(struct bench_call *c, int64_t turn)
{
    set_turn(c, turn, OF_CALL);
    return c->bench->call ? c->bench->call(c) : sy_call(c->ctx, c->op, c->args, c->op->args_bytes);
}

void bench_plain(struct bench_call *c, int64_t turn)
{
    set_turn(c, turn, OF_PLAIN);
    c->bench->plain(c);
}

const void *bench_got(const DLTensor *output)
{
    return tensor_of(output)->data;
}

const void *bench_want(const DLTensor *output)
{
    return tensor_of(output)->plain;
}

/* A tensor beside the argument struct has no name there. */
static const char *name_of(const struct bench_call *c, const struct bench_tensor *t)
{
    for (int i = 0; i < c->op->n_tensors && !c->op->mesh; i++)
        if (sy_op_field(c->op, i)->offset == t->offset)
            return sy_op_field(c->op, i)->name;
    return "an output";
}

static const char *compare_outputs(struct bench_call *c, const char *differs)
{
    for (int i = 0; i < c->n_tensors; i++) {
        const struct bench_tensor *const t = &c->tensors[i];
        if (t->owned && t->plain && memcmp(t->data, t->plain, t->bytes) != 0) {
            snprintf(c->fault, sizeof c->fault, "%s %s", name_of(c, t), differs);
            return c->fault;
        }
    }
    return NULL;
}

/* Every byte of what the call wrote, unless the benchmark has a check of its own. */
const char *bench_check(struct bench_call *c)
{
    set_turn(c, 0, OF_CALL);
    if (c->bench->check)
        return c->bench->check(c);
    return compare_outputs(c, "differs from the plain loop");
}

/* ---- On a device ---- */

/* Of outputs only the first copy has contents that matter. */
static bool send_tensor(struct bench_call *c, struct bench_tensor *t)
{
    const size_t all = (size_t)t->copies * t->step;
    void *there = NULL;
    t->shift = t->view.ndim > 1 && t->view.dtype.bits == 16 && t->view.dtype.code != kDLUInt ? c->offset : 0;
    if (sy_device_alloc(c->ctx, all + t->shift, &there) != SY_OK)
        return bench_fault(c, sy_ctx_error(c->ctx));
    t->there = (unsigned char *)there + t->shift;
    return sy_device_copy(c->ctx, t->there, t->data, t->fill ? all : t->step) == SY_OK ||
           bench_fault(c, sy_ctx_error(c->ctx));
}

bool bench_send(struct bench_call *c)
{
    const struct bench_tensor *whole = c->tensors;
    bool sent = true;
    for (int i = 0; i < c->n_tensors && sent; i++) {
        struct bench_tensor *const t = &c->tensors[i];
        whole = t->owned ? t : whole; /* columns follow what they are of */
        if (t->owned)
            sent = send_tensor(c, t);
        else
            t->there = whole->there + (t->data - whole->data);
    }
    return sent;
}

sy_status bench_run_there(struct bench_call *c, int64_t turn)
{
    set_turn(c, turn, ON_DEVICE);
    return c->bench->call ? c->bench->call(c) : sy_call(c->ctx, c->op, c->args, c->op->args_bytes);
}

const char *bench_check_there(struct bench_call *c)
{
    for (int i = 0; i < c->n_tensors; i++) {
        const struct bench_tensor *const t = &c->tensors[i];
        if (t->owned && t->plain && sy_device_copy(c->ctx, t->plain, t->there, t->bytes) != SY_OK)
            return sy_ctx_error(c->ctx);
    }
    return compare_outputs(c, "on the device differs from the CPU's");
}

static void release(struct bench_call *c)
{
    if (c->bench->release)
        c->bench->release(c);
    for (int i = 0; i < c->n_tensors; i++)
        if (c->tensors[i].owned) {
            free(c->tensors[i].data);
            free(c->tensors[i].plain);
            sy_device_free(c->ctx, c->tensors[i].there - c->tensors[i].shift);
        }
    free(c->scratch);
}

/* Records the call with addresses of CPU memory, which is not read: the graph is not run. The context traces. */
static void print_why(struct bench *bench, struct bench_call *c)
{
    char text[BENCH_NOTE_BYTES] = "";
    for (int i = 0; i < c->n_tensors; i++)
        c->tensors[i].there = c->tensors[i].data;
    printf("%-*s  %-*s ", bench->op_width, c->bench->name, bench->shape_width, c->shape);
    const char *const wrong =
        c->fault[0] != '\0' ? c->fault : bench_record(bench, c, true, 1, text, sizeof text);
    printf("%s\n", wrong ? wrong : "");
    bench->failures += wrong != NULL;
    for (int i = 0; i < c->n_tensors; i++)
        c->tensors[i].there = NULL;
}

void bench_described(struct bench *bench, const struct bench_op *op, const char *shape)
{
    _Alignas(64) unsigned char args[BENCH_ARGS_BYTES] = {0};
    struct bench_call c = {.ctx = bench->ctx,
                           .bench = op,
                           .shape = shape,
                           .op = sy_op_find(op->name),
                           .args = args,
                           .device = bench->device.device,
                           .offset = (int64_t)bench_number(shape, "offset="),
                           .quick = bench->quick,
                           .unfilled = bench->why};
    if (c.op && !bench_can(bench, c.op)) { /* before its inputs are made */
        if (!bench->why)
            report_absent(bench, c.op, shape);
        return;
    }
    find_format(&c);
    op->make(&c);
    c.bytes = c.bytes > 0 ? c.bytes : bench_work_bytes(&c.limit);
    if (!bench_can(bench, c.op)) {
        report_absent(bench, c.op, shape);
        release(&c);
        return;
    }
    if (bench->why) {
        print_why(bench, &c);
        release(&c);
        return;
    }
    bench->cases++;
    if (c.fault[0] != '\0' || (!bench->check && !make_copies(&c)))
        report_failure(bench, op->name, shape, c.fault);
    else
        bench_measure(bench, &c);
    release(&c);
}
