/*
 * The sentence and the numbers of wrong contents, from what a backend recorded.
 */
#include "ops/call.h"

#include <stdio.h>

struct row {
    sy_status status;
    sy_fault_code code;
    const char *argument, *text;
};

#define ROW(name, status, code, argument, text) \
    [SYI_BAD_##name] = {SY_ERR_##status, SY_FAULT_##code, argument, text},
static const struct row rows[SYI_N_BAD] = {SYI_CONTENT_FAULTS(ROW)};
#undef ROW

/* The number of a placeholder, by its first letter. */
static int64_t number_of(const struct syi_found *found, char letter)
{
    switch (letter) {
    case 'b':
        return found->batch;
    case 'p':
        return found->position;
    case 'v':
        return found->value;
    case 'l':
        return found->limit;
    default:
        return found->extra;
    }
}

/* Writes what a placeholder stands for: a name, or a number, or the one after or before it. */
static int fill_in(const struct row *row, const struct syi_found *found, const char *placeholder, char *to,
                   size_t bytes)
{
    if (*placeholder == 'c')
        return snprintf(to, bytes, "%s", sy_fault_name(row->code));
    const char sign = placeholder[strcspn(placeholder, "+-}")];
    const int64_t number = number_of(found, *placeholder);
    return snprintf(to, bytes, "%lld",
                    (long long)(sign == '}'   ? number
                                : sign == '+' ? number + 1
                                              : number - 1));
}

/* The text of a row for a record; the longest is shorter than a sentence may be. */
static void compose(const struct row *row, const struct syi_found *found, char *to, size_t bytes)
{
    size_t used = 0;
    for (const char *at = row->text; used < bytes;) {
        const size_t plain = strcspn(at, "{");
        used += (size_t)snprintf(to + used, bytes - used, "%.*s", (int)plain, at);
        if (at[plain] == '\0' || used >= bytes)
            return;
        at += plain + 1;
        used += (size_t)fill_in(row, found, at, to + used, bytes - used);
        at += strcspn(at, "}") + 1;
    }
}

sy_status syi_describe_found(sy_ctx *ctx, const sy_op_info *op, sy_status status)
{
    const struct syi_found *found = &ctx->found;
    if (status == SY_OK || found->bad == SYI_GOOD)
        return status;
    const struct row *row = &rows[found->bad];
    const sy_fault fault = {
        row->status,  row->code,       row->argument != NULL ? row->argument : op->fields[found->field].name,
        found->batch, found->position, found->value,
        found->limit};
    char text[sizeof ctx->error];
    compose(row, found, text, sizeof text);
    return syi_fail_at(ctx, &fault, "%s", text);
}
