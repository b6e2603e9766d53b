/*
 * One JSON object for programs.
 */
#include "report.h"

#include <stdio.h>

#include "cli/device.h"

static void machine_object(struct emit *json, const struct bench_machine *machine)
{
    emit_begin(json, "machine", '{');
    emit_string(json, "cpu", machine->cpu[0] != '\0' ? machine->cpu : NULL);
    emit_integer(json, "cpus", machine->cpus);
    emit_integer(json, "last_level_cache_bytes", (int64_t)machine->cache_bytes);
    emit_integer(json, "last_level_caches", machine->caches);
    emit_end(json, '}');
}

static void limits_object(struct emit *json, const struct bench_limits *limits, bool there)
{
    emit_begin(json, "limits", '{');
    emit_number(json, "copy_gb_per_s", limits->copy * 1e-9);
    emit_number(json, "fill_gb_per_s", limits->fill * 1e-9);
    emit_number(json, "read_gb_per_s", limits->read[limits->best] * 1e-9);
    if (there) {
        emit_end(json, '}');
        return;
    }
    emit_integer(json, "read_streams", bench_streams[limits->best]);
    emit_begin(json, "read_gb_per_s_by_streams", '{');
    for (int i = 0; i < BENCH_READERS; i++) {
        char streams[12];
        snprintf(streams, sizeof streams, "%d", bench_streams[i]);
        emit_number(json, streams, limits->read[i] * 1e-9);
    }
    emit_end(json, '}');
    emit_end(json, '}');
}

static void head(struct bench *bench)
{
    struct emit *const json = &bench->json;
    *json = (struct emit){.out = stdout};
    emit_begin(json, NULL, '{');
    emit_string(json, "version", sy_version());
    emit_integer(json, "results_version", sy_results_version());
    emit_string(json, "isa", sy_ctx_isa(bench->ctx));
    emit_integer(json, "threads", bench->threads);
    emit_bool(json, "quick", bench->quick);
    emit_string(json, "command", bench->command);
    emit_string(json, "date", bench->machine.date);
    machine_object(json, &bench->machine);
    if (bench->device.tools)
        device_emit(json, "device", bench->device.device.device_id, &bench->device.info);
    if (!bench->check)
        limits_object(json, &bench->limits, bench->device.tools != NULL);
    emit_begin(json, "cases", '[');
}

static void put_times(struct bench *bench, const struct bench_call *subject, const struct bench_times *times)
{
    struct emit *const json = &bench->json;
    emit_number(json, "seconds", times->run);
    emit_number(json, "spread", times->spread);
    emit_integer(json, "turns", times->turns);
    emit_number(json, "bytes", subject->bytes);
    emit_number(json, "gb_per_s", report_rate(subject, times) * 1e-9);
    emit_string(json, "limit", report_limit_name(&subject->limit));
    emit_number(json, "limit_seconds", times->limit);
    emit_number(json, "limit_gb_per_s", bench_work_bytes(&subject->limit) / times->limit * 1e-9);
    emit_number(json, "share_of_limit", report_share(subject, times));
    emit_number(json, "times_limit", times->run / times->limit);
    if (bench->device.tools) {
        emit_integer(json, "calls", times->calls);
        emit_integer(json, "sets", subject->sets);
    } else {
        emit_number(json, "plain_seconds", times->plain);
        emit_number(json, "times_faster_than_plain", times->plain / times->run);
    }
}

static struct emit *begin_row(struct bench *bench, const char *op, const char *shape)
{
    struct emit *const json = &bench->json;
    emit_begin(json, NULL, '{');
    emit_string(json, "op", op);
    emit_string(json, "shape", shape);
    return json;
}

static void row(struct bench *bench, const struct bench_call *subject, const struct bench_times *times)
{
    struct emit *const json = begin_row(bench, subject->op->name, subject->shape);
    if (times)
        emit_string(json, "buffers", times->warm ? "warm" : "cold");
    emit_bool(json, "checked", true);
    if (times)
        put_times(bench, subject, times);
    emit_end(json, '}');
}

static void absent(struct bench *bench, const sy_op_info *op, const char *shape)
{
    struct emit *const json = begin_row(bench, op->name, shape);
    emit_bool(json, "on_device", false);
    emit_end(json, '}');
}

static void failure(struct bench *bench, const char *op, const char *shape, const char *reason)
{
    struct emit *const json = begin_row(bench, op, shape);
    emit_bool(json, "checked", false);
    emit_string(json, "reason", reason);
    emit_end(json, '}');
}

static void peers(struct bench *bench)
{
    emit_end(&bench->json, ']');
    emit_begin(&bench->json, "peers", '{');
    emit_string(&bench->json, "interpreter", peers_interpreter());
    emit_begin(&bench->json, "results", '[');
}

static void peer(struct bench *bench, const struct peer_result *result)
{
    struct emit *const json = begin_row(bench, result->op, result->shape);
    emit_string(json, "buffers", result->warm ? "warm" : "cold");
    emit_string(json, "peer", result->peer);
    emit_string(json, "version", result->version);
    emit_string(json, "form", result->form);
    emit_number(json, "seconds", result->seconds);
    emit_number(json, "spread", result->spread);
    emit_integer(json, "turns", result->turns);
    emit_number(json, "times_slower_than_switchyard", result->times_slower);
    emit_end(json, '}');
}

static void end(struct bench *bench)
{
    emit_end(&bench->json, ']');
    if (bench->peers) {
        emit_begin(&bench->json, "notes", '[');
        for (int i = 0; i < bench->n_notes; i++)
            emit_string(&bench->json, NULL, bench->notes[i]);
        emit_end(&bench->json, ']');
        emit_end(&bench->json, '}');
    }
    emit_bool(&bench->json, "pass", bench->failures == 0);
    emit_end(&bench->json, '}');
}

const struct report_format report_json = {head, row, failure, absent, peers, peer, end};
