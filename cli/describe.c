/*
 * switchyard ops: the operators and their descriptions, for people and for generators of bindings.
 */
#include <stdio.h>
#include <string.h>

#include "device.h"

static void emit_words(struct emit *json, const char *key, const char *words, char separator)
{
    emit_begin(json, key, '[');
    while (words && *words != '\0') {
        char word[64];
        const size_t length = strcspn(words, separator == '|' ? "|" : " ");
        size_t used = length;
        while (used > 0 && words[used - 1] == ' ')
            used--;
        snprintf(word, sizeof word, "%.*s", (int)used, words);
        emit_string(json, NULL, strcmp(word, "-") == 0 ? NULL : word);
        words += length;
        words += strspn(words, separator == '|' ? "| " : " ");
    }
    emit_end(json, ']');
}

static void emit_tensor(struct emit *json, const sy_op_info *op, const sy_field_info *field)
{
    const bool out = field->flags & SY_FIELD_OUT, in = field->flags & SY_FIELD_INOUT;
    emit_string(json, "role", !out ? "in" : in ? "inout" : "out");
    emit_bool(json, "optional", (field->flags & SY_FIELD_OPTIONAL) != 0);
    emit_begin(json, "types", '[');
    for (int t = 0; t < SY_N_TYPES; t++)
        if (field->types >> t & 1u)
            emit_string(json, NULL, sy_type_name((sy_type)t));
    if (field->flags & (SY_FIELD_ANY_WORD | SY_FIELD_ANY_BYTES))
        emit_string(json, NULL, field->flags & SY_FIELD_ANY_WORD ? "any of 1, 2, 4 or 8 bytes" : "any");
    emit_end(json, ']');
    emit_string(json, "type_like", field->like > 0 ? sy_op_field(op, field->like - 1)->name : NULL);
    emit_integer(json, "min_rank", field->min_rank);
    emit_integer(json, "max_rank", field->max_rank);
    emit_words(json, "shapes", field->shape, '|');
    if (field->flags & SY_FIELD_EXTRA)
        emit_string(json, "switch", field->words);
    static const struct {
        uint32_t flag;
        const char *name;
    } flags[] = {{SY_FIELD_PER_ROW, "per_row"}, {SY_FIELD_OWN_STRIDES, "own_strides"},
                 {SY_FIELD_KEEPS, "keeps"},     {SY_FIELD_AGAIN, "again"},
                 {SY_FIELD_SHARED, "shared"},   {SY_FIELD_ONE_ROW, "one_row"}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (field->flags & flags[i].flag)
            emit_bool(json, flags[i].name, true);
    if (op->mesh && !(field->flags & SY_FIELD_SHARED))
        emit_bool(json, "array", true);
}

static void emit_field(struct emit *json, const sy_op_info *op, const sy_field_info *field)
{
    emit_begin(json, NULL, '{');
    emit_string(json, "name", field->name);
    emit_string(json, "kind", sy_kind_name(field->kind));
    emit_integer(json, "offset", (int64_t)field->offset);
    if (field->kind == SY_KIND_TENSOR)
        emit_tensor(json, op, field);
    else
        emit_bool(json, "required", (field->flags & SY_FIELD_REQUIRED) != 0);
    if (field->kind != SY_KIND_TENSOR && field->words)
        emit_words(json, "words", field->words, ' ');
    if (field->preset)
        emit_string(json, "default", field->preset);
    if (field->range)
        emit_string(json, "range", field->range);
    if (field->with > 0)
        emit_string(json, "with", sy_op_field(op, field->with - 1)->name);
    if (field->alias > 0)
        emit_string(json, "alias", sy_op_field(op, field->alias - 1)->name);
    emit_string(json, "help", field->help);
    emit_end(json, '}');
}

static void print_json(const struct sy_cuda_tools *tools)
{
    struct emit json = {.out = stdout};
    emit_begin(&json, NULL, '{');
    emit_string(&json, "version", sy_version());
    emit_begin(&json, "operators", '[');
    for (int i = 0; i < sy_op_count(); i++) {
        const sy_op_info *const op = sy_op_at(i);
        emit_begin(&json, NULL, '{');
        emit_string(&json, "name", op->name);
        emit_string(&json, "summary", op->summary);
        emit_bool(&json, "mesh", op->mesh);
        emit_begin(&json, "devices", '[');
        emit_string(&json, NULL, "cpu");
        if (tools && device_has(tools, op->name))
            emit_string(&json, NULL, "cuda");
        emit_end(&json, ']');
        emit_integer(&json, "args_bytes", (int64_t)op->args_bytes);
        emit_begin(&json, "fields", '[');
        for (int f = 0; f < op->n_fields; f++)
            emit_field(&json, op, sy_op_field(op, f));
        emit_end(&json, ']');
        emit_end(&json, '}');
    }
    emit_end(&json, ']');
    emit_end(&json, '}');
}

int command_ops(struct common *common, struct arg_list *list)
{
    bool as_json = false;
    for (struct arg arg = arg_next(list); arg.kind != ARG_END; arg = arg_next(list)) {
        if (arg.kind == ARG_WORD)
            return usage_error("ops", "ops takes no word %s; try: switchyard help %s", arg.text, arg.text);
        int code = EXIT_DONE;
        if (arg_is(&arg, "json") && !arg.value)
            as_json = true;
        else if (!arg_is(&arg, "device-library") || !common_option(common, list, &arg, &code))
            return usage_error("ops", "ops has no option --%.*s", arg.length, arg.text);
        if (code != EXIT_DONE)
            return code;
    }
    const struct sy_cuda_tools *const tools = device_library(common);
    if (as_json)
        print_json(tools);
    for (int i = 0; !as_json && sy_op_at(i); i++) {
        const bool there = tools && device_has(tools, sy_op_at(i)->name);
        printf("%-22s  %-8s  %s\n", sy_op_at(i)->name, there ? "cpu cuda" : "cpu", sy_op_at(i)->summary);
    }
    return EXIT_DONE;
}
