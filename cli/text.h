/*
 * Untrusted text: names in files, file names, arguments. It may hold bytes that are not UTF-8 and characters that
 * control a terminal.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Bytes of the UTF-8 character at the start of `text`, and its code point; 0 when there is no valid one. */
size_t text_char(const char *text, size_t bytes, uint32_t *code);

/* Whether a character is invisible or changes how its neighbours are shown: controls, zero width, direction. */
bool text_is_hidden(uint32_t code);

/*
 * Copies text for people to read. Hidden characters become \n, \x1b or \u{202e}, bytes that are no UTF-8 \xff; a
 * backslash is unchanged, so that a second pass changes nothing. Text that does not fit is cut between two characters
 * and ends with "..." (`bytes` is 4 or more).
 */
void printable(char *out, size_t bytes, const char *text);

/* The same onto a stream, whole. */
void text_print(FILE *out, const char *text);

/* A name inside a sentence. */
struct shown {
    char text[96];
};

struct shown shown_name(const char *name);
