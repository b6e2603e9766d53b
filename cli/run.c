/*
 * switchyard run OP IN OUT: reads tensors by name from a file, fields from options and the file's metadata,
 * makes one call, writes every output to a file. An operator that reads no tensor needs no IN. There is no code
 * for single operators here; see ops.h.
 */
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "device.h"
#include "mesh.h"
#include "number.h"
#include "ops.h"

/* A per-row field given as an option: the one number all rows share. */
struct row_value {
    uint64_t number; /* its bits */
    int64_t shape[1];
    DLTensor view;
};

struct run {
    const struct op *op;
    const char *name;     /* as it was called: an operator may have an alias */
    char help[64];        /* "run moe_permute" */
    const char *in, *out; /* in may be NULL for an operator without inputs */
    bool asks_why;        /* there is no `out` */
    struct op_call call;
    bool given[OP_MAX_OPTIONS];
    struct row_value rows[OP_MAX_OPTIONS];
    struct st_file file;
    struct op_outputs outputs;
};

/* ---- Fields ---- */

/* `name` has `length` characters; `dash` is '-' in options and '_' in metadata. */
static bool name_is(const char *field, const char *name, size_t length, char dash)
{
    if (!field || strlen(field) != length)
        return false;
    for (size_t i = 0; i < length; i++)
        if ((field[i] == '_' ? dash : field[i]) != name[i])
            return false;
    return true;
}

static int find_field(const struct op *op, const char *name, size_t length, char dash)
{
    for (int i = 0; op->options[i].name; i++)
        if (name_is(op->options[i].name, name, length, dash) ||
            name_is(op->options[i].alias, name, length, dash))
            return i;
    return -1;
}

/* An integer. An unsigned one may also be written as the negative number of the same bits. */
static bool parse_integer(const char *text, DLDataType type, void *number)
{
    int64_t i64 = 0;
    uint64_t bits = 0;
    const bool is_signed = type.code == kDLInt;
    if (!(is_signed ? parse_int64(text, &i64) : parse_uint64(text, &bits)))
        return false;
    if (is_signed)
        bits = (uint64_t)i64;
    const uint32_t narrow = (uint32_t)bits;
    const bool negative = bits >= (uint64_t)INT32_MIN;
    if (type.bits == 32) {
        memcpy(number, &narrow, sizeof narrow);
        return negative || bits <= (is_signed ? (uint64_t)INT32_MAX : UINT32_MAX);
    }
    memcpy(number, &bits, sizeof bits);
    return true;
}

static bool parse_number(const char *text, DLDataType type, void *number)
{
    double real = 0;
    if (type.code != kDLFloat)
        return parse_integer(text, type, number);
    if (!parse_double(text, &real))
        return false;
    const float single = (float)real;
    memcpy(number, type.bits == 32 ? (const void *)&single : &real, type.bits / 8u);
    return true;
}

/* Into the field, or into a [1] tensor for a field with a number per row. */
static bool set_number(const struct op_option *field, const char *text, struct row_value *row, void *target)
{
    const DLTensor *const view = &row->view;
    if (field->kind == OP_NUMBER)
        return parse_number(text, field->type, target);
    row->shape[0] = 1;
    row->view = sy_tensor(&row->number, field->type, 1, row->shape);
    memcpy(target, &view, sizeof view);
    return parse_number(text, field->type, &row->number);
}

static bool set_field(struct run *run, int i, const char *text)
{
    const struct op_option *const field = &run->op->options[i];
    void *const target = (char *)&run->call + field->offset;
    switch (field->kind) {
    case OP_MESH:
        return mesh_parse(text, target);
    case OP_BOOL:
        return parse_bool(text, target);
    case OP_WORD:
        return op_word_value(field->words, text, target); /* enums have the size of int */
    default:
        return set_number(field, text, &run->rows[i], target);
    }
}

/* What an error names as a valid value. */
static void wanted_text(const struct op_option *field, char *text, size_t bytes)
{
    if (field->kind == OP_WORD) {
        snprintf(text, bytes, "one of ");
        op_words_text(field->words, ", ", text + strlen(text), bytes - strlen(text));
    } else if (field->kind == OP_MESH || field->kind == OP_BOOL || field->type.code == kDLFloat) {
        snprintf(text, bytes, "%s",
                 field->kind == OP_MESH   ? "rows x columns, as in 2x4"
                 : field->kind == OP_BOOL ? "true or false"
                                          : "a number");
    } else {
        snprintf(text, bytes,
                 field->type.code == kDLInt ? "a %d-bit integer" : "an integer of at most %d bits",
                 field->type.bits);
    }
}

/* `where` and `name` are the field as the user wrote it: "--" "top-k", or "metadata switchyard." "top_k". */
static int take_field(struct run *run, int i, const char *where, int length, const char *name,
                      const char *text)
{
    char wanted[127 + sizeof "one of "];
    if (run->given[i])
        return usage_error(run->help, "%s%.*s: the field is given twice", where, length, name);
    run->given[i] = true;
    if (set_field(run, i, text))
        return EXIT_DONE;
    wanted_text(&run->op->options[i], wanted, sizeof wanted);
    return usage_error(run->help, "%s%.*s is %s, want %s", where, length, name, text, wanted);
}

/* ---- Command line ---- */

static int unknown_option(const struct run *run, const struct arg *arg)
{
    char name[64], options[OP_MAX_OPTIONS][40];
    const char *names[OP_MAX_OPTIONS + 1] = {NULL};
    snprintf(name, sizeof name, "%.*s", arg->length, arg->text);
    for (int i = 0; run->op->options[i].name; i++) {
        op_option_name(run->op->options[i].name, options[i], sizeof options[i]);
        names[i] = options[i] + strlen("--");
    }
    const char *const close = closest_name(name, names);
    return usage_error(run->help, "%s has no option --%s%s%s%s", run->op->name, name,
                       close ? " (did you mean --" : "", close ? close : "", close ? "?)" : "");
}

/* Some operators have a field `device`, a number. A word is the device of the context. */
static bool names_device(const struct arg_list *list, const struct arg *arg)
{
    const char *const next = list->next < list->count ? list->texts[list->next] : "";
    const char *const value = arg->value ? arg->value : next;
    return arg_is(arg, "device") && isalpha((unsigned char)value[0]);
}

static int take_option(struct run *run, struct common *common, struct arg_list *list, const struct arg *arg)
{
    int code = EXIT_DONE;
    const int i =
        run->op && !names_device(list, arg) ? find_field(run->op, arg->text, (size_t)arg->length, '-') : -1;
    if (i < 0 && common_option(common, list, arg, &code))
        return code;
    if (!run->op)
        return usage_error("run", "--%.*s must follow the operator name", arg->length, arg->text);
    if (i < 0)
        return unknown_option(run, arg);
    const char *const value =
        run->op->options[i].kind == OP_BOOL ? arg_switch(list, arg) : arg_value(list, arg);
    if (!value)
        return usage_error(run->help, "--%.*s needs a value", arg->length, arg->text);
    return take_field(run, i, "--", arg->length, arg->text, value);
}

static int take_word(struct run *run, const char *word)
{
    if (!run->op) {
        run->op = find_op(word);
        if (!run->op)
            return unknown_op("run", word);
        run->name = word;
        snprintf(run->help, sizeof run->help, "run %s", run->op->name);
    } else if (!run->in) {
        run->in = word;
    } else if (!run->out && !run->asks_why) {
        run->out = word;
    } else {
        return usage_error(run->help, "one word too many: %s", word);
    }
    return EXIT_DONE;
}

static int parse_line(struct run *run, struct common *common, struct arg_list *list)
{
    for (struct arg arg = arg_next(list); arg.kind != ARG_END; arg = arg_next(list)) {
        const int code =
            arg.kind == ARG_OPTION ? take_option(run, common, list, &arg) : take_word(run, arg.text);
        if (code != EXIT_DONE)
            return code;
    }
    if (run->asks_why && (!run->op || (!run->in && op_has_inputs(run->op))))
        return usage_error("info", "info --why needs an operator and an input file");
    if (run->asks_why)
        return EXIT_DONE;
    if (!run->op)
        return usage_error("run", "run needs an operator, an input file and an output file");
    if (run->in && !run->out && !op_has_inputs(run->op)) {
        run->out = run->in;
        run->in = NULL;
    }
    if (!run->out)
        return usage_error(run->help, "%s needs an %soutput file", run->op->name,
                           op_has_inputs(run->op) ? "input file and an " : "");
    return EXIT_DONE;
}

/* ---- The input file ---- */

static int unknown_tensor(const struct run *run, const char *name)
{
    char list[512] = "";
    const sy_field_info *tensor;
    for (int i = 0; (tensor = op_tensor(run->op, i)) != NULL; i++) {
        const size_t used = strlen(list);
        if (op_reads(tensor))
            snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? ", " : "",
                     op_file_name(tensor).text);
    }
    return usage_error(run->help, "%s: %s takes no tensor %s (it takes %s)", run->in, run->op->name,
                       shown_name(name).text, op_has_inputs(run->op) ? list : "none");
}

/* The number after the dot of "cache.3" or "input.3"; -1 when there is no valid one. */
static int plane_number(const struct op *op, const char *digits)
{
    const int most = op->info->mesh ? UINT16_MAX : SY_KV_MAX_PLANES;
    int number = 0;
    if (digits[0] == '\0' || (digits[0] == '0' && digits[1] != '\0'))
        return -1;
    for (; *digits != '\0'; digits++) {
        if (*digits < '0' || *digits > '9')
            return -1;
        number = 10 * number + (*digits - '0');
        if (number > most)
            return -1;
    }
    return number;
}

static bool is_name(const char *name, const char *text, size_t length)
{
    return name && strlen(name) == length && memcmp(name, text, length) == 0;
}

/* The operator's tensor of this name, or NULL, and its plane or device; -1: the name has no number. */
static const sy_field_info *find_tensor(const struct op *op, const char *name, int *plane)
{
    const char *const dot = strrchr(name, '.');
    const size_t length = dot ? (size_t)(dot - name) : 0;
    const sy_field_info *tensor;
    *plane = -1;
    for (int i = 0; (tensor = op_tensor(op, i)) != NULL; i++) {
        const struct op_name own = op_file_name(tensor);
        if (!op_reads(tensor))
            continue;
        if (strcmp(own.text, name) == 0)
            return tensor;
        if (dot && is_name(own.text, name, length) && op_is_numbered(op, tensor)) {
            *plane = plane_number(op, dot + 1);
            return *plane >= 0 ? tensor : NULL;
        }
    }
    return NULL;
}

/* Tensors of single devices are bound later, when the mesh is known. */
static int take_device(struct run *run, const char *name, int device)
{
    const sy_mesh mesh = run->call.mesh.extent;
    const int64_t devices = (int64_t)mesh.rows * mesh.cols;
    run->call.numbered = true;
    if (mesh.rows > 0 && mesh.cols > 0 && device >= devices)
        return usage_error(run->help, "%s: %s is of a device that a mesh of %dx%d has not", run->in,
                           shown_name(name).text, mesh.rows, mesh.cols);
    return EXIT_DONE;
}

static int bind_tensors(struct run *run)
{
    int64_t more = 0; /* planes after the first */
    const char *plain = NULL;
    for (size_t i = 0; i < run->file.n_tensors; i++) {
        const struct st_tensor *const found = &run->file.tensors[i];
        int plane;
        const sy_field_info *const tensor = find_tensor(run->op, found->name, &plane);
        if (!tensor)
            return unknown_tensor(run, found->name);
        const int code = run->op->info->mesh && plane >= 0 ? take_device(run, found->name, plane) : EXIT_DONE;
        if (code != EXIT_DONE)
            return code;
        if (run->op->info->mesh && plane >= 0)
            continue;
        const DLTensor **const at = op_pointer(run->op, &run->call, tensor, plane);
        if (*at)
            return usage_error(run->help, "%s: the field %s is given twice, as %s", run->in, tensor->name,
                               plane == 0 || run->call.numbered ? "two tensors"
                                                                : "a tensor and as an option");
        *at = &found->view;
        run->call.numbered = run->call.numbered || plane >= 0;
        more = plane > more ? plane : more;
        if (plane < 0 && op_is_numbered(run->op, tensor))
            plain = tensor->name;
    }
    if (plain && run->call.numbered)
        return usage_error(run->help, "%s: %s is given together with numbered %s, want %s.0", run->in, plain,
                           run->op->info->mesh ? "tensors" : "planes", plain);
    if (more > 0) {
        const sy_kv_plane *const planes = run->call.planes;
        const sy_field_info *const field = run->op->planes, *const number = field + 1,
                                   *const each = field + 2;
        run->call.n_planes = more;
        memcpy(run->call.args.bytes + field->offset, &planes, sizeof planes);
        memcpy(run->call.args.bytes + number->offset, &more, sizeof more);
        memcpy(run->call.args.bytes + each->offset, &(size_t){sizeof *planes}, sizeof(size_t));
    }
    return EXIT_DONE;
}

static int bind_metadata(struct run *run)
{
    static const char prefix[] = "switchyard.";
    for (size_t i = 0; i < run->file.n_meta; i++) {
        const char *key = run->file.meta[i].key;
        if (strncmp(key, prefix, strlen(prefix)) != 0)
            continue;
        key += strlen(prefix);
        const int field = find_field(run->op, key, strlen(key), '_');
        if (field < 0)
            return usage_error(run->help, "%s: metadata switchyard.%s: %s has no such field", run->in,
                               shown_name(key).text, run->op->name);
        const int code =
            take_field(run, field, "metadata switchyard.", (int)strlen(key), key, run->file.meta[i].value);
        if (code != EXIT_DONE)
            return code;
    }
    return EXIT_DONE;
}

static int fill_presets(struct run *run)
{
    for (int i = 0; run->op->options[i].name; i++) {
        const struct op_option *const field = &run->op->options[i];
        if (run->given[i] && field->needs &&
            !run->given[find_field(run->op, field->needs, strlen(field->needs), '_')])
            return usage_error(run->help, "%s: %s means nothing without %s", run->op->name, field->name,
                               field->needs);
        if (run->given[i])
            continue;
        if (field->required) {
            char option[64];
            op_option_name(field->name, option, sizeof option);
            return usage_error(run->help, "%s needs %s", run->op->name, option);
        }
        if (field->preset)
            set_field(run, i, field->preset);
    }
    return EXIT_DONE;
}

static int bind_file(struct run *run)
{
    struct st_message message;
    if (run->in && !st_load(run->in, &run->file, &message))
        return plain_error("%s: %s", run->in, message.text);
    /* Metadata first: a per-row field found there and as a tensor is then noticed as given twice. */
    int code = bind_metadata(run);
    if (code == EXIT_DONE)
        code = bind_tensors(run);
    return code == EXIT_DONE ? fill_presets(run) : code;
}

/* ---- The call ---- */

static int reject(const struct run *run, sy_status status, const char *sentence)
{
    const size_t length = strlen(run->op->name);
    if (strncmp(sentence, run->op->name, length) == 0 && strncmp(sentence + length, ": ", 2) == 0)
        sentence += length + 2;
    plain_error("%s: %s: %s", run->name, sy_status_name(status), sentence);
    return EXIT_REJECTED;
}

/* Prints the operator's own sentence, or that of an error in the file or the mesh. */
static int reject_call(const struct run *run, sy_ctx *ctx, sy_status status)
{
    const bool ours = status == run->call.mesh.fault;
    return reject(run, status, ours ? run->call.mesh.sentence : sy_ctx_error(ctx));
}

/* All processes of a team return the same exit code. */
static int agree(const struct team *team, int code)
{
    return team ? team->agree(code) : code;
}

static int prepare_call(struct run *run, sy_ctx *ctx, const struct team *team)
{
    const bool mesh = run->op->info->mesh;
    sy_status status = mesh ? mesh_open(&run->call) : SY_OK;
    const int code = agree(team, status == SY_OK ? EXIT_DONE : reject_call(run, ctx, status));
    if (code != EXIT_DONE)
        return code;
    if (mesh)
        status = mesh_bind(team, run->op, &run->call, &run->file);
    if (status == SY_OK)
        status = run->op->size(ctx, run->op, &run->call, &run->outputs);
    if (status != SY_OK)
        return reject_call(run, ctx, status);
    if (run->outputs.out_of_memory) {
        char sentence[128];
        snprintf(sentence, sizeof sentence, "output %s of %zu bytes does not fit into memory",
                 run->outputs.failed, run->outputs.failed_bytes);
        return reject(run, SY_ERR_NOMEM, sentence);
    }
    return EXIT_DONE;
}

static sy_status call_once(struct run *run, sy_ctx *ctx)
{
    const sy_op_info *const op = run->op->info;
    return op->mesh ? sy_call_mesh(ctx, run->call.mesh.comm, op, run->call.args.bytes, op->args_bytes)
                    : sy_call(ctx, op, run->call.args.bytes, op->args_bytes);
}

/* The call itself, in CPU memory or on the device. In a team it has the tensors of this process. */
static int make_call(struct run *run, sy_ctx *ctx, DLDevice device, const struct team *team)
{
    const sy_op_info *const op = run->op->info;
    const bool there = device.device_type == kDLCUDA;
    struct device_tensors tensors = {NULL, 0};
    sy_status status = SY_OK;
    if (there) {
        const int devices = op->mesh && !team ? mesh_devices(&run->call) : 1;
        status = device_send(ctx, device, op, run->call.args.bytes, devices, &tensors);
        const int code = agree(team, status == SY_OK ? EXIT_DONE : reject(run, status, sy_ctx_error(ctx)));
        if (code != EXIT_DONE) {
            device_return(ctx, &tensors, SY_ERR_COMM);
            return code;
        }
    }
    status = call_once(run, ctx);
    if (there)
        status = device_return(ctx, &tensors, status);
    return agree(team, status == SY_OK ? EXIT_DONE : reject(run, status, sy_ctx_error(ctx)));
}

/* A team decides on every step together: no process waits for one that has failed. */
static int call_operator(struct run *run, sy_ctx *ctx, DLDevice device, const struct team *team)
{
    int code = agree(team, prepare_call(run, ctx, team));
    if (code != EXIT_DONE)
        return code;
    mesh_step(run->op, &run->call, run->call.mesh.first);
    code = make_call(run, ctx, device, team);
    mesh_step(run->op, &run->call, -run->call.mesh.first);
    if (code == EXIT_DONE && team)
        mesh_collect(team, run->op, &run->call);
    return code;
}

/* Old contents that the call has changed are an output too. */
static int save_outputs(const struct run *run)
{
    struct st_item *const items = calloc(run->file.n_tensors + (size_t)run->outputs.n + 1, sizeof *items);
    size_t n = 0;
    if (!items)
        return plain_error("out of memory");
    for (size_t i = 0; i < run->file.n_tensors; i++) {
        int plane;
        const struct st_tensor *const old = &run->file.tensors[i];
        const sy_field_info *const tensor = find_tensor(run->op, old->name, &plane);
        if (tensor && op_changes(run->op->info, tensor->offset))
            items[n++] = (struct st_item){old->name, &old->view};
    }
    for (int i = 0; i < run->outputs.n; i++)
        items[n++] = (struct st_item){run->outputs.made[i]->name, &run->outputs.made[i]->view};
    struct st_message message;
    const bool saved = st_save(run->out, items, n, &message);
    free(items);
    return saved ? EXIT_DONE : plain_error("%s: %s", run->out, message.text);
}

static int run_line(struct common *common, struct arg_list *list, bool asks_why)
{
    struct run *const run = calloc(1, sizeof *run);
    if (!run)
        return plain_error("out of memory");
    run->asks_why = asks_why;
    snprintf(run->help, sizeof run->help, "run");
    int code = parse_line(run, common, list);
    if (!run->op) { /* the command line was invalid before the operator's name */
        free(run);
        return code;
    }
    if (code == EXIT_DONE)
        code = bind_file(run);
    common->synchronous = true; /* a call on a device returns its own status */
    sy_ctx *const ctx = code == EXIT_DONE ? common_context(common) : NULL;
    if (code == EXIT_DONE && !ctx)
        code = EXIT_USAGE;
    /* In a team the first process writes. Before and after that they agree on the exit code. */
    const struct team *const team = run->op->info->mesh ? common->team : NULL;
    code = agree(team, code);
    if (code == EXIT_DONE)
        code = call_operator(run, ctx, common->device, team);
    if (code == EXIT_DONE && (!team || team->rank == 0) && !asks_why)
        code = save_outputs(run);
    code = agree(team, code);
    mesh_close(&run->call);
    sy_ctx_destroy(ctx);
    op_outputs_free(&run->outputs);
    st_free(&run->file);
    free(run);
    return code;
}

int command_run(struct common *common, struct arg_list *list)
{
    return run_line(common, list, false);
}

/* ---- info --why ---- */

static void print_choices(void *user, const sy_trace *trace)
{
    (void)user;
    if (trace->status != SY_OK)
        return;
    printf("%s: %s%s%s\n", trace->op, trace->isa, trace->rows ? ", rows " : "",
           trace->rows ? trace->rows : "");
    for (int i = 0; i < trace->n_choices; i++) {
        const sy_choice *const choice = &trace->choices[i];
        printf("  %-16s%s\n", choice->name, choice->why_not ? choice->why_not : "runs");
    }
}

int command_why(struct common *common, struct arg_list *list)
{
    common->trace = print_choices;
    return run_line(common, list, true);
}
