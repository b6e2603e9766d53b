/*
 * Writes JSON, indented by two. Commas and nesting are handled here.
 * (The names beginning with json_ belong to jansson.)
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct emit {
    FILE *out;
    int depth;
    bool filled[16]; /* whether this level already has an element */
};

/* In a list `key` is NULL. */
void emit_begin(struct emit *json, const char *key, char bracket); /* '{' or '[' */
void emit_end(struct emit *json, char bracket);                    /* '}' or ']'; ends the line at depth 0 */
void emit_string(struct emit *json, const char *key, const char *value); /* NULL: null */
void emit_integer(struct emit *json, const char *key, int64_t value);
void emit_number(struct emit *json, const char *key, double value); /* NaN and infinities: null */
void emit_bool(struct emit *json, const char *key, bool value);
