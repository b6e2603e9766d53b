/* Files, JSON (read by jansson), memory, and the end of the program when something is wrong. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lm.h"

void say_and_exit(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fflush(stdout);
    if (process > 0)
        sleep(1); /* mostly the same is wrong in the first process: it prints, and ends the others */
    fputs("moe_lm: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    mesh_abort();
    exit(2);
}

void *new_array(size_t n, size_t bytes)
{
    void *made = calloc(n > 0 ? n : 1, bytes);
    if (made == NULL)
        die("there is no memory for %zu x %zu bytes", n, bytes);
    return made;
}

struct file map_file(const char *folder, const char *name)
{
    char path[4096];
    struct stat info;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        die("the path of %s is longer than %zu bytes", name, sizeof path);
    const int file = open(path, O_RDONLY);
    if (file < 0 && errno == ENOENT)
        return (struct file){.name = name};
    if (file < 0 || fstat(file, &info) != 0)
        die("%s: %s", path, strerror(errno));
    const size_t bytes = (size_t)info.st_size;
    const void *const data = bytes > 0 ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0) : "";
    if (data == MAP_FAILED)
        die("%s: %s", path, strerror(errno));
    close(file);
    return (struct file){name, data, bytes};
}

/* ---- JSON ------------------------------------------------------------------------------------------------ */

json_t *json_file(const char *folder, const char *name)
{
    const struct file file = map_file(folder, name);
    json_error_t error;
    json_t *const value = json_loadb(file.data, file.bytes, JSON_REJECT_DUPLICATES, &error);
    if (value == NULL && file.data != NULL)
        die("%s, byte %d: %s", name, error.position, error.text);
    return value;
}

const json_t *json_get(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

double json_real_at(const json_t *object, const char *key, double otherwise)
{
    const json_t *const value = json_get(object, key);
    if (value != NULL && !json_is_number(value))
        die("%s is not a number", key);
    return value != NULL ? json_number_value(value) : otherwise;
}

bool json_flag(const json_t *object, const char *key, bool otherwise)
{
    const json_t *const value = json_get(object, key);
    if (value != NULL && !json_is_boolean(value))
        die("%s is not true or false", key);
    return value != NULL ? json_is_true(value) : otherwise;
}

const char *json_text(const json_t *object, const char *key, const char *otherwise)
{
    const json_t *const value = json_get(object, key);
    if (value != NULL && !json_is_string(value))
        die("%s is not a string", key);
    return value != NULL ? json_string_value(value) : otherwise;
}

int64_t json_whole(const json_t *value, double most, const char *what, const char *name)
{
    const double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= 0 && number <= most) || number != (double)(int64_t)number)
        die("%s: %s is not a whole number from 0 to %.0f", name, what, most);
    return (int64_t)number;
}
