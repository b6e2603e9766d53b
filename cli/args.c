/*
 * Messages, argument parsing, and the common options. Written by hand and not with getopt, because options
 * depend on the operator named before them, values may be negative, and a message must name the option as it
 * was typed.
 */
#include "cli.h"

#include <ctype.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>

#include "number.h"

/* Names and values may hold any bytes: they are escaped so that a message is one line. */
static void print_message(const char *format, va_list list) __attribute__((format(printf, 1, 0)));
static void print_message(const char *format, va_list list)
{
    char text[1024];
    vsnprintf(text, sizeof text, format, list);
    fputs("switchyard: ", stderr);
    text_print(stderr, text);
    fputc('\n', stderr);
}

int usage_error(const char *help, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    print_message(format, list);
    va_end(list);
    fprintf(stderr, "Try: switchyard %s%s--help\n", help ? help : "", help ? " " : "");
    return EXIT_USAGE;
}

int plain_error(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    print_message(format, list);
    va_end(list);
    return EXIT_USAGE;
}

/* ---- Arguments ---- */

/* -1 and a lone dash are words: a value may be negative, and -h is the only one-letter option. */
static bool is_option(const char *text)
{
    return text[0] == '-' && text[1] != '\0' && !isdigit((unsigned char)text[1]);
}

struct arg arg_next(struct arg_list *list)
{
    if (!list->only_words && list->next < list->count && strcmp(list->texts[list->next], "--") == 0) {
        list->only_words = true;
        list->next++;
    }
    if (list->next >= list->count)
        return (struct arg){.kind = ARG_END};
    const char *text = list->texts[list->next++];
    if (list->only_words || !is_option(text))
        return (struct arg){.kind = ARG_WORD, .text = text, .length = (int)strlen(text)};
    text += text[1] == '-' ? 2 : 1;
    const size_t length = strcspn(text, "=");
    return (struct arg){
        .kind = ARG_OPTION,
        .text = text,
        .length = (int)length,
        .value = text[length] == '=' ? text + length + 1 : NULL,
    };
}

bool arg_is(const struct arg *arg, const char *name)
{
    return strlen(name) == (size_t)arg->length && memcmp(arg->text, name, (size_t)arg->length) == 0;
}

const char *arg_value(struct arg_list *list, const struct arg *arg)
{
    if (arg->value)
        return arg->value;
    return list->next < list->count ? list->texts[list->next++] : NULL;
}

const char *arg_switch(struct arg_list *list, const struct arg *arg)
{
    bool value = false;
    if (arg->value)
        return arg->value;
    if (list->next < list->count && parse_bool(list->texts[list->next], &value))
        return list->texts[list->next++];
    return "true";
}

bool arg_has_help(const struct arg_list *list)
{
    for (int i = list->next; i < list->count && strcmp(list->texts[i], "--") != 0; i++)
        if (strcmp(list->texts[i], "--help") == 0 || strcmp(list->texts[i], "-h") == 0)
            return true;
    return false;
}

/* ---- Common options ---- */

static int take_threads(struct common *common, const char *text)
{
    int64_t threads = 0;
    if (!parse_int64(text, &threads) || threads < 0 || threads > INT_MAX)
        return usage_error(common->help, "--threads is %s, want an integer from 0 (automatic) up", text);
    common->threads = (int)threads;
    return EXIT_DONE;
}

/* "cpu", "cuda" or "cuda:1". */
static int take_device(struct common *common, const char *text)
{
    static const char cuda[] = "cuda";
    const size_t length = strlen(cuda);
    int64_t number = 0;
    if (strcmp(text, "cpu") == 0)
        return EXIT_DONE;
    if (strncmp(text, cuda, length) != 0 ||
        (text[length] != '\0' && (text[length] != ':' || !parse_int64(text + length + 1, &number))) ||
        number < 0 || number > INT_MAX)
        return usage_error(common->help, "--device is %s, want cpu, cuda or cuda:N", text);
    common->device = (DLDevice){kDLCUDA, (int)number};
    return EXIT_DONE;
}

static int take_common(struct common *common, const struct arg *arg, const char *value)
{
    if (arg_is(arg, "threads"))
        return take_threads(common, value);
    if (arg_is(arg, "device"))
        return take_device(common, value);
    *(arg_is(arg, "isa") ? &common->isa : &common->device_library) = value;
    return EXIT_DONE;
}

bool common_option(struct common *common, struct arg_list *list, const struct arg *arg, int *code)
{
    bool *const given = arg_is(arg, "isa")              ? &common->has_isa
                        : arg_is(arg, "threads")        ? &common->has_threads
                        : arg_is(arg, "device")         ? &common->has_device
                        : arg_is(arg, "device-library") ? &common->has_library
                                                        : NULL;
    if (!given)
        return false;
    const char *const value = arg_value(list, arg);
    *code = EXIT_DONE;
    if (!value)
        *code = usage_error(common->help, "--%.*s needs a value", arg->length, arg->text);
    else if (*given)
        *code = usage_error(common->help, "--%.*s is given twice", arg->length, arg->text);
    else
        *code = take_common(common, arg, value);
    *given = true;
    return true;
}

sy_ctx *try_context(const struct common *common, char *sentence, size_t bytes)
{
    static const char prefix[] = "sy_ctx_create: ";
    sy_ctx *ctx = NULL;
    char error[256] = "";
    const sy_ctx_options options = {
        .isa = common->isa,
        .threads = common->threads,
        .device = common->device,
        .device_library = common->device_library,
        .synchronous = common->synchronous,
        .trace = common->trace,
        .error = error,
        .error_bytes = sizeof error,
    };
    const sy_status status = sy_ctx_create(&ctx, &options);
    if (status == SY_OK)
        return ctx;
    const bool named = strncmp(error, prefix, strlen(prefix)) == 0;
    snprintf(sentence, bytes, "%s",
             error[0] != '\0' ? error + (named ? strlen(prefix) : 0) : sy_status_name(status));
    return NULL;
}

sy_ctx *common_context(const struct common *common)
{
    char sentence[256] = "";
    sy_ctx *const ctx = try_context(common, sentence, sizeof sentence);
    if (ctx)
        return ctx;
    plain_error("%s", sentence);
    if (common->isa)
        fputs("Try: switchyard info\n", stderr);
    return NULL;
}

/* ---- Names ---- */

/* Edit distance (insert, delete, replace) of two short texts; a large number for long ones. */
static int distance(const char *a, const char *b)
{
    int row[64];
    const size_t n = strlen(b);
    if (n >= sizeof row / sizeof row[0] || strlen(a) >= sizeof row / sizeof row[0])
        return INT_MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = (int)j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        int corner = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            const int replace = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            const int insert = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = replace < insert ? replace : insert;
        }
    }
    return row[n];
}

const char *closest_name(const char *text, const char *const *names)
{
    const char *best = NULL;
    int best_distance = (int)strlen(text) / 3 + 2;
    for (; *names; names++) {
        const int d = distance(text, *names);
        if (d < best_distance) {
            best_distance = d;
            best = *names;
        }
    }
    return best;
}
