/* Files, JSON (read by jansson), memory, and the end of the program when something is wrong. */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>

#include "../lm.h"

/* Names in files may hold any bytes: what is no printable character is escaped, so that a sentence is one line. */
static void print_escaped(const char *text)
{
    setlocale(LC_CTYPE, "C.UTF-8");
    for (size_t bytes; *text != 0; text += bytes) {
        wchar_t character = 0;
        bytes = mbrtowc(&character, text, strlen(text), &(mbstate_t){0});
        const bool shown = bytes <= 4 && iswprint((wint_t)character);
        bytes = bytes <= 4 ? bytes : 1; /* more: not UTF-8 */
        for (size_t i = 0; i < bytes; i++)
            fprintf(stderr, shown ? "%c" : "\\x%02x", (unsigned char)text[i]);
    }
}

void die(const char *format, ...)
{
    char sentence[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    fflush(stdout);
    if (process > 0)
        sleep(1); /* mostly the same is wrong in the first process: it prints, and ends the others */
    fputs("moe_lm: ", stderr);
    print_escaped(sentence);
    fputc('\n', stderr);
    processes_end(2);
}

void *new_array(size_t n, size_t bytes)
{
    void *made = calloc(n > 0 ? n : 1, bytes);
    require(made != NULL, "there is no memory for %zu x %zu bytes", n, bytes);
    return made;
}

struct file map_file(const char *folder, const char *name)
{
    char path[4096];
    struct stat info;
    require(snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path,
            "the path of %s is longer than %zu bytes", name, sizeof path);
    const int file = open(path, O_RDONLY);
    if (file < 0 && errno == ENOENT)
        return (struct file){.name = name};
    require(file >= 0 && fstat(file, &info) == 0, "%s: %s", path, strerror(errno));
    const size_t bytes = (size_t)info.st_size;
    const void *const data = bytes > 0 ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0) : "";
    require(data != MAP_FAILED, "%s: %s", path, strerror(errno));
    close(file);
    return (struct file){name, data, bytes};
}

json_t *json_file(const char *folder, const char *name)
{
    const struct file file = map_file(folder, name);
    json_error_t error;
    json_t *const value = json_loadb(file.data, file.bytes, JSON_REJECT_DUPLICATES, &error);
    require(value != NULL || file.data == NULL, "%s, byte %d: %s", name, error.position, error.text);
    return value;
}

const char *json_shown(const json_t *value)
{
    return value != NULL ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : "missing";
}

json_t *json_get(const json_t *object, const char *key)
{
    json_t *const value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

double json_real_at(const char *file, const json_t *object, const char *key, double otherwise)
{
    const json_t *const value = json_get(object, key);
    require(value == NULL || json_is_number(value), "%s: %s is %s, want a number", file, key,
            json_shown(value));
    return value != NULL ? json_number_value(value) : otherwise;
}

bool json_flag(const char *file, const json_t *object, const char *key, bool otherwise)
{
    const json_t *const value = json_get(object, key);
    require(value == NULL || json_is_boolean(value), "%s: %s is %s, want true or false", file, key,
            json_shown(value));
    return value != NULL ? json_is_true(value) : otherwise;
}

const char *json_text(const char *file, const json_t *object, const char *key, const char *otherwise)
{
    const json_t *const value = json_get(object, key);
    require(value == NULL || json_is_string(value), "%s: %s is %s, want a string", file, key,
            json_shown(value));
    return value != NULL ? json_string_value(value) : otherwise;
}

int64_t json_whole(const char *file, const json_t *value, int64_t least, int64_t most, const char *name)
{
    const double x = json_number_value(value); /* 5.0 is 5 */
    require(json_is_number(value) && x >= (double)least && x <= (double)most && x == (double)(int64_t)x,
            "%s: %s is %s, want a whole number from %lld to %lld", file, name, json_shown(value),
            (long long)least, (long long)most);
    return (int64_t)x;
}
