/*
 * Rows as codes: the row_format of a call, and what the oracle of quantize_rows makes of its rows.
 */
#include "case.h"

#include <stdio.h>

#include "oracle/quantize_rows.h"

/* A format that has no name. */
static sy_row_format own_format(struct call *c)
{
    static const int32_t groups[] = {1, 8, 24, 40, 64, 256};
    return (sy_row_format){.bytes = sizeof(sy_row_format),
                           .q_type = case_flag(c, "e5m2") ? SY_F8_E5M2 : SY_I8,
                           .scale_type = SY_F32,
                           .group = groups[case_pick(c, "group", 6)],
                           .scale_math = SY_SCALE_MATH_DIV,
                           .code_math = SY_CODE_MATH_RCP,
                           .a_min = 1e-3};
}

/* Groups of a row: few, or so many that kernels copy their scales as vectors. */
static void choose_groups(struct call *c, int64_t group)
{
    if (c->in->kind == READ_TEXT || group == 0) {
        const int64_t hidden = case_size(c, "H", 0, 200, 200);
        case_extent(c, "G", group > 0 ? hidden / group : 1);
        return;
    }
    const int64_t n = case_chance(c, "many_groups", 8) && group <= 40 ? 140 : case_pick(c, "groups", 4);
    case_extent(c, "G", n);
    case_extent(c, "H", n * group);
}

bool case_row_format(struct call *c, const char *dense, const char *codes, const char *scales, int64_t odds)
{
    enum { NAMED = 7, CHOICES = 9 };
    const sy_field_info *const f = case_scalar(c, "row_format");
    const char *word = line_word(c, "row_format");
    char name[40];
    if (word == NULL && (c->in->kind == READ_TEXT || !case_chance(c, "coded", odds)))
        return false;
    const int64_t choice = word != NULL ? 0 : case_pick(c, "row_format", CHOICES);
    if (word == NULL) {
        word = f->words;
        for (int64_t i = 0; i <= choice && i < NAMED; i++)
            word = strchr(word, ' ') + 1;
    }
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, " "), word);
    if (choice >= NAMED)
        c->coded.format = own_format(c);
    else if (sy_row_format_named(name, &c->coded.format) != SY_OK)
        case_fail(c, NULL, "no row_format %s", name);
    c->coded.dense = case_field(c, dense);
    c->coded.codes = case_field(c, codes);
    c->coded.scales = case_field(c, scales);
    choose_groups(c, c->coded.format.group);
    const sy_row_format *const format = &c->coded.format;
    memcpy((char *)&c->args + f->offset, &format, sizeof format);
    return true;
}

DLDataType case_code_type(struct call *c, const char *field)
{
    char name[48];
    const bool scales = case_field(c, field) == c->coded.scales;
    const DLDataType type = scales ? c->coded.format.scale_type : c->coded.format.q_type;
    snprintf(name, sizeof name, "bytes:%s", field);
    return type.bits == 8 && case_flag(c, name) ? SY_U8 : type;
}

bool codes_accept(const struct call *c, const struct operand *x, DLDataType type)
{
    const sy_row_format *const f = &c->coded.format;
    const DLDataType want = x == c->coded.codes ? f->q_type : f->scale_type;
    if (x == c->coded.dense)
        return type.lanes == 1 && (sy_type_of(type) == SY_TYPE_F32 || sy_type_of(type) == SY_TYPE_F16 ||
                                   sy_type_of(type) == SY_TYPE_BF16);
    return memcmp(&type, &want, sizeof type) == 0 || (want.bits == 8 && sy_type_of(type) == SY_TYPE_U8);
}

/* Numbers of a group, and groups of a row. */
static int64_t group_of(struct call *c)
{
    return c->coded.format.group > 0 ? c->coded.format.group : case_get_extent(c, "H");
}

void case_codes_of(struct call *c, const struct operand *x, unsigned char **codes, unsigned char **scales)
{
    const int64_t n = case_count(x), group = group_of(c), groups = case_get_extent(c, "G"),
                  rows = n > 0 ? n / (group * groups) : x->shape[0];
    const size_t size = c->coded.format.scale_type.bits / 8;
    float *const numbers = case_memory(c, (size_t)n * sizeof *numbers);
    *codes = case_memory(c, (size_t)n);
    *scales = case_memory(c, (size_t)(rows * groups) * size);
    for (int64_t i = 0; i < n; i++)
        numbers[i] = (float)case_real(x, i);
    for (int64_t i = 0; i < rows * groups; i++) {
        const uint32_t scale =
            oracle_quantize_group(&c->coded.format, numbers + i * group, group, *codes + i * group);
        memcpy(*scales + (size_t)i * size, &scale, size); /* little-endian */
    }
}

void case_fill_codes(struct call *c)
{
    struct operand *const codes = c->coded.codes, *const scales = c->coded.scales;
    struct stream *const s = case_stream(c, scales->field->name);
    case_fill(c, codes);
    for (int64_t i = 0; i < case_count(scales); i++)
        if (scales->element == 1)
            case_put(scales, i, stream_chance(s, 9) ? stream_below(s, 256) : 120 + stream_below(s, 12));
        else
            case_put(scales, i, (int64_t)case_float(s, SY_F32, stream_chance(s, 9) ? SPECIAL : FINE));
}

float *case_numbers_of(struct call *c)
{
    const struct operand *const codes = c->coded.codes, *const scales = c->coded.scales;
    const int64_t n = case_count(codes), group = group_of(c);
    float *const numbers = case_memory(c, (size_t)n * sizeof *numbers);
    for (int64_t i = 0; i < n; i++)
        numbers[i] =
            oracle_dequantize(&c->coded.format, codes->dense[i], (uint32_t)case_get(scales, i / group));
    return numbers;
}

/* ---- Rejections ---------------------------------------------------------------------------------------- */

void format_without_size(struct call *c)
{
    c->coded.format.bytes = 0;
}

void format_of_caches(struct call *c)
{
    c->coded.format.scale_math = SY_SCALE_MATH_CACHE;
}

void format_group_less(struct call *c)
{
    c->coded.format.group = -1;
}

void format_group_3(struct call *c)
{
    c->coded.format.group = 3;
}

void format_none(struct call *c)
{
    memset((char *)&c->args + case_scalar(c, "row_format")->offset, 0, sizeof(const sy_row_format *));
}

/* Rows as they are: only on paper where they are longer. */
void format_only_scales(struct call *c)
{
    format_none(c);
    c->coded.codes->t.dtype = c->coded.dense->t.dtype;
}
