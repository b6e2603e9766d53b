/*
 * JSON for the commands that print it. Numbers are written with 17 digits, so that they are read back exactly;
 * JSON has no NaN and no infinity, which become null.
 */
#include "emit.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "text.h"

static void quoted(FILE *out, const char *text)
{
    const char *const end = text + strlen(text);
    fputc('"', out);
    while (text < end) {
        uint32_t code = 0;
        const size_t length = text_char(text, (size_t)(end - text), &code);
        if (length == 0)
            code = 0xfffd; /* JSON cannot represent a byte that is not UTF-8 */
        if (code == '"' || code == '\\')
            fprintf(out, "\\%c", (char)code);
        else if (code > 0xffff && text_is_hidden(code))
            fprintf(out, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (code >> 10)),
                    (unsigned)(0xdc00 + (code & 0x3ff)));
        else if (length == 0 || text_is_hidden(code))
            fprintf(out, "\\u%04x", (unsigned)code);
        else
            fwrite(text, 1, length, out);
        text += length > 0 ? length : 1;
    }
    fputc('"', out);
}

/* Written before every value: a comma, a new line, the key. */
static void lead(struct emit *json, const char *key)
{
    if (json->depth > 0) {
        fputs(json->filled[json->depth] ? ",\n" : "\n", json->out);
        fprintf(json->out, "%*s", 2 * json->depth, "");
    }
    json->filled[json->depth] = true;
    if (key) {
        quoted(json->out, key);
        fputs(": ", json->out);
    }
}

void emit_begin(struct emit *json, const char *key, char bracket)
{
    lead(json, key);
    fputc(bracket, json->out);
    json->filled[++json->depth] = false;
}

void emit_end(struct emit *json, char bracket)
{
    const bool filled = json->filled[json->depth--];
    if (filled)
        fprintf(json->out, "\n%*s", 2 * json->depth, "");
    fputc(bracket, json->out);
    if (json->depth == 0)
        fputc('\n', json->out);
}

void emit_string(struct emit *json, const char *key, const char *value)
{
    lead(json, key);
    if (value)
        quoted(json->out, value);
    else
        fputs("null", json->out);
}

void emit_integer(struct emit *json, const char *key, int64_t value)
{
    lead(json, key);
    fprintf(json->out, "%" PRId64, value);
}

void emit_number(struct emit *json, const char *key, double value)
{
    lead(json, key);
    if (isfinite(value))
        fprintf(json->out, "%.17g", value);
    else
        fputs("null", json->out);
}

void emit_bool(struct emit *json, const char *key, bool value)
{
    lead(json, key);
    fputs(value ? "true" : "false", json->out);
}
