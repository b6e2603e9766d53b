/*
 * Decides which characters of untrusted text are printed to a terminal.
 */
#include "text.h"

#include <stdio.h>
#include <string.h>

size_t text_char(const char *text, size_t bytes, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *const c = (const unsigned char *)text;
    if (bytes == 0)
        return 0;
    const size_t length = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : 4;
    if (length == 0 || length > bytes || c[0] > 0xf4)
        return 0;
    *code = length == 1 ? c[0] : c[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((c[i] & 0xc0) != 0x80)
            return 0;
        *code = *code << 6 | (c[i] & 0x3fu);
    }
    const bool surrogate = *code >= 0xd800 && *code <= 0xdfff;
    return *code < least[length] || *code > 0x10ffff || surrogate ? 0 : length;
}

bool text_is_hidden(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        {0x00, 0x1f},     {0x7f, 0x9f},     {0x061c, 0x061c}, {0x180e, 0x180e}, {0x200b, 0x200f},
        {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (code >= ranges[i].first && code <= ranges[i].last)
            return true;
    return false;
}

/* One character as it is shown; returns its bytes in `text`. */
static size_t next_shown(char shown[16], const char *text, size_t bytes)
{
    static const char letters[] = "\a\b\t\n\v\f\r", names[] = "abtnvfr";
    uint32_t code = 0;
    const size_t length = text_char(text, bytes, &code);
    if (code >= 0x20 && code < 0x7f) { /* nearly always */
        memcpy(shown, (char[]){*text, '\0'}, 2);
        return 1;
    }
    const char *const letter = code != 0 && code < 0x20 ? strchr(letters, (int)code) : NULL;
    if (length == 0)
        snprintf(shown, 16, "\\x%02x", (unsigned char)*text);
    else if (!text_is_hidden(code))
        snprintf(shown, 16, "%.*s", (int)length, text);
    else if (letter)
        snprintf(shown, 16, "\\%c", names[letter - letters]);
    else
        snprintf(shown, 16, code < 0x80 ? "\\x%02x" : "\\u{%x}", (unsigned)code);
    return length > 0 ? length : 1;
}

void printable(char *out, size_t bytes, const char *text)
{
    size_t used = 0, cut = 0; /* cut: where "..." still fits */
    const char *const end = text + strlen(text);
    while (text < end) {
        char shown[16];
        text += next_shown(shown, text, (size_t)(end - text));
        const size_t length = strlen(shown);
        if (used + length >= bytes) {
            memcpy(out + cut, "...", 4);
            return;
        }
        memcpy(out + used, shown, length);
        used += length;
        cut = used + 4 <= bytes ? used : cut;
    }
    out[used] = '\0';
}

void text_print(FILE *out, const char *text)
{
    const char *const end = text + strlen(text);
    while (text < end) {
        char shown[16];
        text += next_shown(shown, text, (size_t)(end - text));
        fputs(shown, out);
    }
}

struct shown shown_name(const char *name)
{
    struct shown shown = {""};
    printable(shown.text, sizeof shown.text, name);
    return shown;
}
