/*
 * switchyard info: version and configuration of this build, and what it found on this machine.
 */
#include <string.h>

#include "cli.h"
#include "device.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

/* The MPI that libswitchyard_mpi was built against; the build names it. */
static const char *mpi(void)
{
#ifdef SWITCHYARD_MPI_NAME
    return SWITCHYARD_MPI_NAME;
#else
    return "not in this build";
#endif
}

/* CUDA devices, one after the other; or why there is none. */
static void print_devices(const struct common *common)
{
    sy_device_info info = {.count = 1};
    char sentence[256] = "";
    for (int i = 0; i < info.count; i++) {
        printf("%s", i == 0 ? "  CUDA              " : "                    ");
        if (device_describe(common, i, &info, sentence, sizeof sentence)) {
            printf("cuda:%d ", i);
            device_print(&info);
        } else {
            printf("none: ");
            text_print(stdout, sentence);
        }
        printf("\n");
    }
}

static void emit_devices(const struct common *common, struct emit *json)
{
    sy_device_info info = {.count = 1};
    char sentence[256] = "";
    emit_begin(json, "cuda", '{');
    emit_begin(json, "devices", '[');
    for (int i = 0; i < info.count; i++)
        if (device_describe(common, i, &info, sentence, sizeof sentence))
            device_emit(json, NULL, i, &info);
    emit_end(json, ']');
    emit_string(json, "error", sentence[0] != '\0' ? sentence : NULL);
    emit_end(json, '}');
}

static void print_text(const struct common *common, const sy_ctx *ctx)
{
    printf("switchyard %s\n\n", sy_version());
    printf("  results version   %d   equal inputs and seeds give equal bytes within one number\n",
           sy_results_version());
    printf("  kernel tables     ");
    for (int i = 0; sy_isa_name(i); i++)
        printf("%s%s", i > 0 ? ", " : "", sy_isa_name(i));
    printf("   (in use: %s)\n", sy_ctx_isa(ctx));
    printf("  threads           %d\n", sy_ctx_threads(ctx));
    printf("  compiler          %s\n", COMPILER);
    printf("  MPI               %s\n", mpi());
    print_devices(common);
}

static void print_json(const struct common *common, const sy_ctx *ctx)
{
    struct emit json = {.out = stdout};
    emit_begin(&json, NULL, '{');
    emit_string(&json, "version", sy_version());
    emit_integer(&json, "results_version", sy_results_version());
    emit_string(&json, "isa", sy_ctx_isa(ctx));
    emit_begin(&json, "isa_tables", '[');
    for (int i = 0; sy_isa_name(i); i++)
        emit_string(&json, NULL, sy_isa_name(i));
    emit_end(&json, ']');
    emit_integer(&json, "threads", sy_ctx_threads(ctx));
    emit_string(&json, "compiler", COMPILER);
    emit_string(&json, "mpi", mpi());
    emit_devices(common, &json);
    emit_end(&json, '}');
}

int command_info(struct common *common, struct arg_list *list)
{
    bool as_json = false;
    for (struct arg arg = arg_next(list); arg.kind != ARG_END; arg = arg_next(list)) {
        int code = EXIT_DONE;
        if (arg.kind == ARG_WORD)
            return usage_error("info", "info takes no word %s", arg.text);
        if (arg_is(&arg, "why") && !arg.value && !as_json)
            return command_why(common, list);
        if (arg_is(&arg, "json") && !arg.value)
            as_json = true;
        else if (!common_option(common, list, &arg, &code))
            return usage_error("info", "info has no option --%.*s", arg.length, arg.text);
        if (code != EXIT_DONE)
            return code;
    }
    sy_ctx *const ctx = common_context(common);
    if (!ctx)
        return EXIT_USAGE;
    if (as_json)
        print_json(common, ctx);
    else
        print_text(common, ctx);
    sy_ctx_destroy(ctx);
    return EXIT_DONE;
}
