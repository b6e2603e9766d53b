/*
 * Readers: where the choices of a call come from.
 */
#include "case.h"

#include "oracle/random.h"

#include <stdio.h>

struct reader reader_seed(uint64_t seed)
{
    return (struct reader){.kind = READ_SEED, .seed = seed};
}

struct reader reader_bytes(const uint8_t *data, size_t size)
{
    return (struct reader){.kind = READ_BYTES, .data = data, .left = size};
}

struct reader reader_text(const char *text)
{
    return (struct reader){.kind = READ_TEXT, .text = text};
}

/* The end of the first word of the text that begins so; NULL: none does. */
static const char *find_word(const char *text, const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    for (const char *at = text; at != NULL; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncmp(at, name, n) == 0 && strncmp(at + n, end, m) == 0)
            return at + n + m;
    }
    return NULL;
}

static bool says(const char *text, const char *word)
{
    const char *end = text;
    do
        end = find_word(end, word, "");
    while (end != NULL && *end != ' ' && *end != '\0');
    return end != NULL;
}

struct stream *case_stream(struct call *c, const char *name)
{
    for (int i = 0; i < c->n_streams; i++)
        if (strcmp(c->stream[i].name, name) == 0)
            return &c->stream[i];
    if (c->n_streams == CASE_NAMES)
        case_fail(c, NULL, "more names than CASE_NAMES");
    struct stream *const s = &c->stream[c->n_streams++];
    snprintf(s->name, sizeof s->name, "%s", name);
    s->in = c->in;
    s->state = 0xcbf29ce484222325u ^ c->in->seed * 0x9e3779b97f4a7c15u;
    for (const char *at = name; *at != '\0'; at++)
        s->state = (s->state ^ (unsigned char)*at) * 0x100000001b3u;
    return s;
}

uint64_t stream_bits(struct stream *s)
{
    if (s->in->kind != READ_BYTES || s->in->left == 0)
        return rng_u64(&s->state);
    s->in->left--; /* small numbers, as the fuzzer chooses them; random ones when its bytes are used up */
    return *s->in->data++;
}

int64_t stream_below(struct stream *s, int64_t n)
{
    if (n <= 1)
        return 0;
    uint64_t bits = stream_bits(s);
    for (int64_t most = 256; s->in->kind == READ_BYTES && s->in->left > 0 && most < n; most *= 256)
        bits = bits << 8 | stream_bits(s);
    return (int64_t)(bits % (uint64_t)n);
}

int64_t case_pick(struct call *c, const char *name, int64_t n)
{
    if (c->in->kind != READ_TEXT)
        return stream_below(case_stream(c, name), n);
    const char *const number = find_word(c->in->text, name, "=");
    return number != NULL ? strtoll(number, NULL, 10) : 0;
}

bool case_flag(struct call *c, const char *name)
{
    return c->in->kind == READ_TEXT ? says(c->in->text, name) : case_pick(c, name, 2) == 1;
}

bool case_line_word(struct call *c, const char *name, char *word, size_t size)
{
    const char *const text = c->in->kind == READ_TEXT ? find_word(c->in->text, name, "=") : NULL;
    if (text != NULL)
        snprintf(word, size, "%.*s", (int)strcspn(text, " "), text);
    return text != NULL;
}

bool case_chance(struct call *c, const char *name, int64_t n)
{
    return c->in->kind == READ_TEXT ? says(c->in->text, name) : case_pick(c, name, n) == 1;
}

int64_t case_size(struct call *c, const char *name, int64_t least, int64_t usual, int64_t most)
{
    int64_t value;
    if (c->in->kind == READ_TEXT) {
        const char *const number = find_word(c->in->text, name, "=");
        value = number != NULL ? strtoll(number, NULL, 10) : usual;
    } else {
        struct stream *const s = case_stream(c, name);
        const int64_t kind = stream_below(s, 16);
        value = kind == 0   ? least
                : kind == 1 ? most
                : kind < 4  ? least + stream_below(s, most - least + 1)
                            : least + stream_below(s, usual - least + 1);
    }
    case_extent(c, name, value);
    return value;
}

/* A bare type of a line is that of the first tensor that accepts it; "field=bf16" is of that field. */
static DLDataType type_of_line(struct call *c, const struct operand *x)
{
    const char *const own = find_word(c->in->text, x->field->name, "=");
    for (int t = 1; t < SY_N_TYPES; t++) {
        const char *const name = sy_type_name((sy_type)t);
        const size_t n = strlen(name);
        if (!call_accepts(c, x, sy_dtype((sy_type)t)))
            continue;
        if (own != NULL && strncmp(own, name, n) == 0 && (own[n] == ' ' || own[n] == '\0'))
            return sy_dtype((sy_type)t);
        if (own == NULL && !c->typed && says(c->in->text, name)) {
            c->typed = true;
            return sy_dtype((sy_type)t);
        }
    }
    for (int t = 1; t < SY_N_TYPES; t++)
        if (call_accepts(c, x, sy_dtype((sy_type)t)))
            return sy_dtype((sy_type)t);
    return SY_U8;
}

DLDataType case_type(struct call *c, const char *field)
{
    static const DLDataType any[] = {
        {kDLUInt, 8, 1},  {kDLBfloat, 16, 1},  {kDLFloat, 32, 1}, {kDLInt, 64, 1},
        {kDLUInt, 24, 1}, {kDLComplex, 128, 1}}; /* whole bytes; the first four are words */
    struct operand *const x = case_field(c, field);
    DLDataType types[SY_N_TYPES + 6];
    char name[40];
    int n = 0;
    if (c->in->kind == READ_TEXT)
        return type_of_line(c, x);
    for (int t = 1; t < SY_N_TYPES; t++)
        if (x->field->types >> t & 1u)
            types[n++] = sy_dtype((sy_type)t);
    const struct operand *const like = x->field->like > 0 ? &c->operand[x->field->like - 1] : NULL;
    if (like != NULL && like->given)
        types[n++] = like->type;
    for (int i = 0; i < 6 && n == 0; i++)
        if (call_accepts(c, x, any[i]))
            types[n++] = any[i];
    for (int i = 1; i < 6 && n == 1 && like == NULL && x->field->types == 0; i++)
        if (call_accepts(c, x, any[i]))
            types[n++] = any[i];
    if (n == 0)
        case_fail(c, NULL, "%s has no type", field);
    snprintf(name, sizeof name, "type:%s", field);
    return types[case_pick(c, name, n)];
}

/* ---- Scalars ---- */

const sy_field_info *case_scalar(struct call *c, const char *field)
{
    for (int i = c->info->n_tensors; i < c->info->n_fields; i++)
        if (strcmp(sy_op_field(c->info, i)->name, field) == 0)
            return sy_op_field(c->info, i);
    case_fail(c, NULL, "has no scalar %s", field);
}

/* Value i of an enum, and its word; the empty one is no value. */
static size_t word_of(const char *words, int i, const char **word)
{
    for (; i > 0 && words != NULL; i--) {
        words = strchr(words, ' ');
        if (words != NULL)
            words++;
    }
    *word = words;
    return words != NULL ? strcspn(words, " ") : 0;
}

void case_set_word(struct call *c, const char *field, const char *want)
{
    const sy_field_info *const f = case_scalar(c, field);
    const char *word;
    size_t n;
    for (int i = 0; (n = word_of(f->words, i, &word)) > 0; i++)
        for (const char *at = word, *end; at < word + n; at = end + 1) { /* "zero|0": two spellings */
            end = at + strcspn(at, "| ");
            if ((size_t)(end - at) == strlen(want) && strncmp(at, want, strlen(want)) == 0) {
                memcpy((char *)&c->args + f->offset, &i, sizeof i);
                return;
            }
        }
    case_fail(c, NULL, "%s has no word %s", field, want);
}

void case_any_scalar(struct call *c, const char *field)
{
    const sy_field_info *const f = case_scalar(c, field);
    char *const at = (char *)&c->args + f->offset;
    if (f->kind == SY_KIND_BOOL) {
        const bool value = case_flag(c, field);
        memcpy(at, &value, sizeof value);
        return;
    }
    char word[32];
    if (case_line_word(c, field, word, sizeof word)) {
        case_set_word(c, field, word);
        return;
    }
    const char *first;
    int n = 0;
    while (word_of(f->words, n, &first) > 0)
        n++;
    int value = (int)case_pick(c, field, n);
    word_of(f->words, value, &first);
    if (*first == '-') /* no such value */
        value = 0;
    memcpy(at, &value, sizeof value);
}
