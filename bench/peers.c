/*
 * One Python process per operator: the cases as JSON on its standard input, times as JSON on its standard output.
 * This process waits and does nothing meanwhile. An error there leaves the peers out and
 * is reported in a note; it never fails the run.
 */
#include "report.h"

#include <errno.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

extern char **environ;

const char *peers_interpreter(void)
{
    const char *const ours = getenv("SWITCHYARD_PYTHON"), *const usual = getenv("PYTHON");
    if (ours && ours[0] != '\0')
        return ours;
    return usual && usual[0] != '\0' ? usual : "python3";
}

/* ---- The request ---- */

/* The n-th timed case of an operator with these buffers, or NULL. */
static const struct bench_record *record_of(const struct bench *bench, const struct bench_op *op, bool warm,
                                            int64_t n)
{
    for (int i = 0; i < bench->n_records; i++)
        if (bench->records[i].op == op && bench->records[i].warm == warm && n-- == 0)
            return &bench->records[i];
    return NULL;
}

static void write_request(const struct bench *bench, const struct bench_op *op, bool warm, FILE *out)
{
    struct emit json = {.out = out};
    emit_begin(&json, NULL, '{');
    emit_string(&json, "op", op->name);
    emit_integer(&json, "threads", bench->threads);
    emit_bool(&json, "quick", bench->quick);
    const bool there = bench->device.tools != NULL;
    char device[32] = "cpu";
    if (there)
        snprintf(device, sizeof device, "cuda:%d", bench->device.device.device_id);
    emit_string(&json, "device", device);
    emit_integer(&json, "cold_bytes",
                 warm    ? 0
                 : there ? (int64_t)BENCH_DEVICE_COLD
                         : (int64_t)bench_cold_bytes(bench->quick));
    emit_begin(&json, "cases", '[');
    const struct bench_record *record = NULL;
    for (int64_t i = 0; (record = record_of(bench, op, warm, i)) != NULL; i++)
        emit_string(&json, NULL, bench_shape(bench, op, record->index));
    emit_end(&json, ']');
    emit_end(&json, '}');
    rewind(out); /* flushes too: the child reads from here */
}

/* ---- The process ---- */

/* The end of a process's error messages, without control characters. */
static void last_line(FILE *file, char *text, size_t bytes)
{
    char line[256];
    text[0] = '\0';
    rewind(file);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] != '\0')
            printable(text, bytes, line);
    }
}

/* Files instead of pipes: neither side waits for the other to read. False after a note. */
static bool run_python(struct bench *bench, const struct bench_op *op, FILE *const files[3])
{
    char name[] = "-c", *const arguments[] = {(char *)peers_interpreter(), name, (char *)bench_peers_py,
                                              NULL};
    posix_spawn_file_actions_t actions;
    pid_t child = 0;
    int status = 0, fault = posix_spawn_file_actions_init(&actions);
    if (fault == 0) {
        for (int i = 0; i < 3 && fault == 0; i++)
            fault = posix_spawn_file_actions_adddup2(&actions, fileno(files[i]), i);
        if (fault == 0)
            fault = posix_spawnp(&child, peers_interpreter(), &actions, NULL, arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    if (fault != 0) {
        report_note(bench, "peers: %s cannot be run (%s), left out", peers_interpreter(), strerror(fault));
        return false;
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    char complaint[160];
    last_line(files[STDERR_FILENO], complaint, sizeof complaint);
    report_note(bench, "peers of %s: %s failed (%s), left out", op->name, peers_interpreter(),
                complaint[0] != '\0' ? complaint : "without a word");
    return false;
}

/* ---- The answer ---- */

static void copy_text(char *to, size_t bytes, const json_t *object, const char *key)
{
    const char *const text = json_string_value(json_object_get(object, key));
    printable(to, bytes, text ? text : "");
}

/* Versions and missing libraries, each reported once for all operators. */
static void note_peers(struct bench *bench, const json_t *answer)
{
    const json_t *const found = json_object_get(answer, "peers");
    const json_t *const trouble = json_object_get(answer, "trouble");
    for (size_t i = 0; i < json_array_size(found); i++) {
        const json_t *const peer = json_array_get(found, i);
        char name[24], version[32];
        copy_text(name, sizeof name, peer, "name");
        copy_text(version, sizeof version, peer, "version");
        if (version[0] == '\0')
            report_note(bench, "%s: not importable by %s, left out", name, peers_interpreter());
        else
            report_note(bench, "%s %s, run by %s", name, version, peers_interpreter());
    }
    for (size_t i = 0; i < json_array_size(trouble); i++) {
        const char *const text = json_string_value(json_array_get(trouble, i));
        report_note(bench, "%s", text ? text : "?");
    }
}

static void find_version(char *to, size_t bytes, const json_t *answer, const char *name)
{
    const json_t *const found = json_object_get(answer, "peers");
    to[0] = '\0';
    for (size_t i = 0; i < json_array_size(found); i++) {
        const json_t *const peer = json_array_get(found, i);
        const char *const here = json_string_value(json_object_get(peer, "name"));
        if (here && strcmp(here, name) == 0)
            copy_text(to, bytes, peer, "version");
    }
}

static bool report_one(struct bench *bench, const struct bench_op *op, bool warm, const json_t *answer,
                       const json_t *entry)
{
    const json_t *const at = json_object_get(entry, "case");
    const struct bench_record *const record =
        json_is_integer(at) && json_integer_value(at) >= 0
            ? record_of(bench, op, warm, (int64_t)json_integer_value(at))
            : NULL;
    struct peer_result result = {
        .op = op->name,
        .shape = record ? bench_shape(bench, op, record->index) : "",
        .warm = warm,
        .seconds = json_number_value(json_object_get(entry, "seconds")),
        .spread = json_number_value(json_object_get(entry, "spread")),
        .turns = (int)json_integer_value(json_object_get(entry, "turns")),
    };
    if (!record || !(result.seconds > 0) || !(result.spread >= 0))
        return false;
    copy_text(result.peer, sizeof result.peer, entry, "peer");
    copy_text(result.form, sizeof result.form, entry, "form");
    find_version(result.version, sizeof result.version, answer, result.peer);
    result.times_slower = result.seconds / record->seconds;
    report_peer(bench, &result);
    return true;
}

static void read_answer(struct bench *bench, const struct bench_op *op, bool warm, FILE *out)
{
    rewind(out);
    json_t *const answer = json_loadf(out, JSON_DISABLE_EOF_CHECK, NULL);
    const json_t *const results = json_object_get(answer, "results");
    bool good = json_is_array(results);
    note_peers(bench, answer);
    for (size_t i = 0; i < json_array_size(results); i++)
        good = report_one(bench, op, warm, answer, json_array_get(results, i)) && good;
    if (!good)
        report_note(bench, "peers of %s: %s answered something that is no list of times", op->name,
                    peers_interpreter());
    json_decref(answer);
}

static void run_peers(struct bench *bench, const struct bench_op *op, bool warm)
{
    FILE *const files[] = {tmpfile(), tmpfile(), tmpfile()}; /* standard input, output, errors */
    report_progress(bench, "peers of %s, by %s ...", op->name, peers_interpreter());
    if (!files[0] || !files[1] || !files[2]) {
        report_note(bench, "peers: no temporary file can be made, left out");
    } else {
        write_request(bench, op, warm, files[STDIN_FILENO]);
        if (run_python(bench, op, files))
            read_answer(bench, op, warm, files[STDOUT_FILENO]);
    }
    for (int i = 0; i < 3; i++)
        if (files[i])
            fclose(files[i]);
}

void peers_run(struct bench *bench, const struct bench_op *op)
{
    for (int warm = 0; op->peers && warm < 2; warm++)
        if (record_of(bench, op, warm, 0))
            run_peers(bench, op, warm);
}
