/*
 * Tensors of many devices: from a file to arrays, and from arrays to a file; and the outputs of the operators between devices, as
 * sy_infer_mesh reports them. Old contents may be in the input file.
 */
#include "mesh.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "number.h"

bool mesh_parse(const char *text, sy_mesh *mesh)
{
    char rows[24];
    int64_t r = 0, c = 0;
    const char *const cross = strchr(text, 'x');
    const size_t length = cross ? (size_t)(cross - text) : sizeof rows;
    if (length >= sizeof rows)
        return false;
    memcpy(rows, text, length);
    rows[length] = '\0';
    if (!parse_int64(rows, &r) || !parse_int64(cross + 1, &c) || r < INT_MIN || r > INT_MAX || c < INT_MIN ||
        c > INT_MAX)
        return false;
    *mesh = (sy_mesh){.rows = (int)r, .cols = (int)c};
    return true;
}

/* ---- Faults ---- */

/* Errors of the file or the command line that the operator cannot detect, in the form of its sentences. They are reported
   after its errors about missing tensors and types. */
static sy_status fault(struct op_call *call, sy_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static sy_status fault(struct op_call *call, sy_status status, const char *format, ...)
{
    if (call->mesh.fault != SY_OK)
        return call->mesh.fault;
    va_list list;
    va_start(list, format);
    vsnprintf(call->mesh.sentence, sizeof call->mesh.sentence, format, list);
    va_end(list);
    call->mesh.fault = status;
    return status;
}

static sy_status first_fault(const struct op_call *call, sy_status status_of_query)
{
    const bool first = status_of_query == SY_ERR_NULL || status_of_query == SY_ERR_DTYPE;
    return call->mesh.fault == SY_OK || first ? status_of_query : call->mesh.fault;
}

/* ---- Devices ---- */

int mesh_devices(const struct op_call *call)
{
    return call->mesh.extent.rows * call->mesh.extent.cols;
}

/* Experts of a device; 0 for a mapping that the operator will reject. */
static int64_t local_experts(const struct op_call *call, const DLTensor *mapping, int device)
{
    const int rank = mapping ? mapping->ndim : 0;
    if (rank < 2 || mapping->dtype.bits != 16 || mapping->shape[rank - 1] != mesh_devices(call))
        return 0;
    for (int i = 0; i < rank; i++)
        if (mapping->shape[i] == 0)
            return 0;
    const uint16_t *const hosts = mapping->data;
    int64_t n = 0;
    for (int64_t e = 0; e < mapping->shape[rank - 2]; e++)
        n += hosts[e * mesh_devices(call) + device] == 1;
    return n;
}

/* ---- Arrays of tensors ---- */

/* Zeroed memory that mesh_close frees; NULL when there is none. */
static void *new_array(struct op_call *call, size_t n, size_t bytes)
{
    void *const array = call->mesh.n_arrays < MESH_MAX_ARRAYS ? calloc(n, bytes) : NULL;
    if (array)
        call->mesh.arrays[call->mesh.n_arrays++] = array;
    return array;
}

/* Slabs of a stacked tensor. If their number is not that of devices, the views are used for the query only, which does
   not read data. */
static void bind_stacked(struct op_call *call, const struct st_tensor *found, DLTensor *views)
{
    const int n = mesh_devices(call), rank = found->view.ndim;
    const int64_t slabs = rank > 0 ? found->shape[0] : 0;
    if (slabs != n) {
        char shape[128];
        st_shape_text(found, shape, sizeof shape);
        fault(call, SY_ERR_SHAPE, "%s has shape %s, want [%d,...], a slab for each device", found->name,
              shape, n);
    }
    const size_t bytes = slabs > 0 ? found->bytes / (size_t)slabs : 0;
    for (int d = 0; d < n; d++)
        views[d] =
            sy_tensor((char *)found->view.data + (d < slabs ? (size_t)d * bytes : 0), found->view.dtype,
                      rank > 0 ? rank - 1 : 0, (int64_t *)(uintptr_t)found->shape + 1);
}

/* name.0, name.1, ...; false when there is none at all. */
static bool bind_numbered(struct op_call *call, const char *name, const struct st_file *file, DLTensor *views)
{
    const int n = mesh_devices(call);
    int found = 0, missing = 0;
    for (int d = n - 1; d >= 0; d--) {
        const struct st_tensor *const tensor = st_find(file, op_plane_name(call, name, d).text);
        if (tensor)
            views[d] = tensor->view;
        found += tensor != NULL;
        missing = tensor ? missing : d;
    }
    if (found > 0 && found < n)
        fault(call, SY_ERR_NULL, "%s of device %d is missing", name, missing);
    return found > 0;
}

static sy_status bind_tensors(const struct op *op, struct op_call *call, const struct st_file *file)
{
    const int n = mesh_devices(call);
    const sy_field_info *tensor;
    for (int i = 0; (tensor = op_tensor(op, i)) != NULL; i++) {
        const struct op_name name = op_file_name(tensor);
        const struct st_tensor *const found = st_find(file, name.text);
        if ((tensor->flags & SY_FIELD_SHARED) || !op_reads(tensor) || (!call->numbered && !found))
            continue;
        DLTensor *const views = new_array(call, (size_t)n, sizeof *views);
        if (!views)
            return fault(call, SY_ERR_NOMEM, "%s of %d devices does not fit into memory", name.text, n);
        if (!call->numbered)
            bind_stacked(call, found, views);
        *op_pointer(op, call, tensor, 0) =
            !call->numbered || bind_numbered(call, name.text, file, views) ? views : NULL;
    }
    return call->mesh.fault == SY_ERR_NULL ? SY_ERR_NULL : SY_OK; /* the operator reports the other errors */
}

/* Cuts the slab of every device in a stacked tensor to as many rows as the device has experts. */
static void shorten(struct op_call *call, const DLTensor *const *input, const DLTensor *mapping)
{
    const int n = mesh_devices(call);
    DLTensor *const views = (DLTensor *)(uintptr_t)*input; /* made by bind_tensors */
    int64_t(*const shapes)[ST_MAX_RANK] = new_array(call, (size_t)n, sizeof *shapes);
    if (!shapes)
        fault(call, SY_ERR_NOMEM, "shapes of %d devices do not fit into memory", n);
    for (int d = 0; d < n && shapes; d++) {
        memcpy(shapes[d], views[d].shape, (size_t)views[d].ndim * sizeof shapes[d][0]);
        shapes[d][0] = local_experts(call, mapping, d);
        views[d].shape = shapes[d];
    }
}

/* ---- Outputs ---- */

/* One tensor per output: of all devices, or in a process that is one device of that device. */
static bool make_single(struct op_call *call, struct op_outputs *outputs, const char *name, DLTensor *views)
{
    for (int d = 0; d < mesh_devices(call); d++) {
        if (!call->mesh.all && d != call->mesh.first)
            continue;
        const DLTensor *const made = op_output(outputs, op_plane_name(call, name, d).text, views[d].dtype,
                                               views[d].ndim, views[d].shape);
        if (!made)
            return false;
        views[d].data = made->data;
    }
    return true;
}

static bool make_stacked(struct op_call *call, struct op_outputs *outputs, const char *name, DLTensor *views)
{
    const int n = mesh_devices(call);
    int64_t shape[5] = {n};
    int most = 0;
    for (int d = 1; d < n; d++)
        most = views[d].shape[0] > views[most].shape[0] ? d : most;
    for (int i = 0; i < views[most].ndim; i++)
        shape[i + 1] = views[most].shape[i];
    const size_t slab = st_bytes(&views[most]);
    const DLTensor *const made = op_output(outputs, name, views[most].dtype, views[most].ndim + 1, shape);
    for (int d = 0; d < n && made; d++)
        views[d].data = (char *)made->data + (size_t)d * slab;
    return made != NULL;
}

/*
 * Makes an output for every device, of the shape that every step-th of `shapes` has, and returns the array. Stacked
 * outputs whose first extents differ have the largest in the file, and zero bytes after shorter ones. NULL when there is
 * no memory.
 */
static const DLTensor *make_output(struct op_call *call, struct op_outputs *outputs, const char *name,
                                   sy_shape *shapes, size_t step)
{
    const int n = mesh_devices(call);
    DLTensor *const views = new_array(call, (size_t)n, sizeof *views);
    outputs->out_of_memory = outputs->out_of_memory || !views;
    for (int d = 0; d < n && views; d++, shapes += step)
        views[d] = sy_tensor(NULL, shapes->type, shapes->rank, shapes->extent);
    const bool stacked = !call->numbered && call->mesh.all;
    return !outputs->out_of_memory && (stacked ? make_stacked : make_single)(call, outputs, name, views)
               ? views
               : NULL;
}

/* ---- What an operator needs ---- */

/* If devices have different numbers of experts, the slabs of a stacked input have the largest number of rows, and a
   device uses the first rows of its slab. The operator validates everything else. */
static void fit_experts(struct op_call *call)
{
    const sy_all_to_all_combine_args *const args = &call->args.all_to_all_combine;
    if (!args->input || args->input->ndim < 1 || call->numbered || args->local_reduce ||
        args->layout != SY_LAYOUT_PADDED)
        return;
    int64_t most = 0;
    for (int d = 0; d < mesh_devices(call); d++) {
        const int64_t here = local_experts(call, args->expert_mapping, d);
        most = here > most ? here : most;
    }
    if (most > 0 && args->input->shape[0] == most)
        shorten(call, &args->input, args->expert_mapping);
    if (most > 0 && args->input_scales && args->input_scales->ndim > 0 &&
        args->input_scales->shape[0] == most)
        shorten(call, &args->input_scales, args->expert_mapping);
}

static bool has_rows_of_tokens(const char *name)
{
    return strncmp(name, "plane_tokens", 12) == 0 || strcmp(name, "src") == 0 ||
           strcmp(name, "scale_tokens") == 0;
}

/* Layouts without a row for every token: old contents of the tokens decide how many rows all such outputs have. */
static void fit_rows(const struct op *op, const struct op_call *call, sy_shape *shapes)
{
    const sy_all_to_all_dispatch_args *const args = &call->args.all_to_all_dispatch;
    const sy_field_info *tensor;
    for (int i = 0; args->tokens && args->layout != SY_LAYOUT_PADDED && (tensor = op_tensor(op, i)); i++)
        for (int d = 0; d < mesh_devices(call) && has_rows_of_tokens(tensor->name); d++)
            shapes[d * op->info->n_tensors + i].extent[0] =
                args->tokens[d].ndim > 0 ? args->tokens[d].shape[0] : 0;
}

/* -1 also in rows that the call does not write, which have no source. */
static void fill_src(const struct op_outputs *outputs, int first)
{
    for (int i = first; i < outputs->n; i++)
        memset(outputs->made[i]->view.data, 0xff, st_bytes(&outputs->made[i]->view));
}

/* A sum of codes has the type that was asked for. Outputs of unknown size are left to the operator to miss. */
static void make(const struct op *op, struct op_call *call, const sy_field_info *tensor, sy_shape *shapes,
                 struct op_outputs *outputs)
{
    const int first = outputs->n;
    const size_t step = (size_t)op->info->n_tensors;
    const bool sums = strcmp(tensor->name, "output") == 0 && call->args.all_to_all_combine.row_format &&
                      call->args.all_to_all_combine.sum;
    for (int d = 0; d < mesh_devices(call); d++) {
        sy_shape *const shape = &shapes[(size_t)d * step];
        if (shape->rank < 0 && (tensor->flags & SY_FIELD_EXTRA))
            *shape = op_empty_shape(tensor);
        if (shape->rank < 0 || shape->extent[0] < 0 || shape->extent[1] < 0)
            return;
        shape->type = sums ? op_out_type(call) : shape->type;
    }
    *op_pointer(op, call, tensor, 0) = make_output(call, outputs, op_file_name(tensor).text, shapes, step);
    if (strcmp(tensor->name, "src") == 0)
        fill_src(outputs, first);
}

sy_status op_size_mesh(sy_ctx *ctx, const struct op *op, struct op_call *call, struct op_outputs *outputs)
{
    const sy_op_info *const info = op->info;
    const bool dispatch = strcmp(info->name, "all_to_all_dispatch") == 0;
    sy_all_to_all_dispatch_args *const args = &call->args.all_to_all_dispatch;
    for (int i = 0; i < SY_A2A_MAX_PLANES - 1 && dispatch; i++)
        args->num_planes = args->planes[i] ? i + 1 : args->num_planes;
    if (!dispatch)
        fit_experts(call);
    op_set_formats(op, call);
    const int n = mesh_devices(call) * info->n_tensors;
    sy_shape *const shapes = new_array(call, (size_t)n, sizeof *shapes);
    if (!shapes)
        return fault(call, SY_ERR_NOMEM, "outputs of %d devices do not fit into memory", n);
    const sy_status status = first_fault(
        call, sy_infer_mesh(ctx, call->mesh.local, info, call->args.bytes, info->args_bytes, shapes, n));
    if (status == SY_OK && dispatch)
        fit_rows(op, call, shapes);
    const sy_field_info *tensor;
    for (int i = 0; status == SY_OK && (tensor = op_tensor(op, i)) != NULL; i++)
        if ((tensor->flags & SY_FIELD_OUT) && !*op_pointer(op, call, tensor, 0) &&
            (!(tensor->flags & SY_FIELD_EXTRA) || op_requested(op, call, tensor->words)))
            make(op, call, tensor, shapes + i, outputs);
    return status;
}

/* ---- The call ---- */

/* The library's sentence begins with its own function; the command line prints the operator instead. */
static void drop_prefix(char *sentence)
{
    const char *const colon = strstr(sentence, ": ");
    if (colon && strncmp(sentence, "sy_", 3) == 0)
        memmove(sentence, colon + 2, strlen(colon + 2) + 1);
}

static sy_status opened(struct op_mesh *mesh, sy_status status)
{
    mesh->fault = status;
    if (status != SY_OK)
        drop_prefix(mesh->sentence);
    return status;
}

sy_status mesh_open(struct op_call *call)
{
    struct op_mesh *const mesh = &call->mesh;
    const sy_comm_options options = {.error = mesh->sentence, .error_bytes = sizeof mesh->sentence};
    return opened(mesh, sy_comm_create_local(&mesh->local, mesh->extent, &options));
}

sy_status mesh_bind(const struct team *team, const struct op *op, struct op_call *call,
                    const struct st_file *file)
{
    struct op_mesh *const mesh = &call->mesh;
    const sy_comm_options options = {.error = mesh->sentence, .error_bytes = sizeof mesh->sentence};
    const sy_status status = team ? opened(mesh, team->connect(&mesh->comm, mesh->extent, &options)) : SY_OK;
    if (status != SY_OK)
        return status;
    if (!team)
        mesh->comm = mesh->local;
    mesh->first = sy_comm_first_device(mesh->comm);
    mesh->all = !team || team->rank == 0;
    return bind_tensors(op, call, file);
}

void mesh_close(struct op_call *call)
{
    struct op_mesh *const mesh = &call->mesh;
    if (mesh->comm != mesh->local)
        sy_comm_destroy(mesh->comm);
    sy_comm_destroy(mesh->local);
    for (int i = 0; i < mesh->n_arrays; i++)
        free(mesh->arrays[i]);
    mesh->n_arrays = 0;
}

/* Fields point at the tensors of device 0; a process that is one device passes its own. */
void mesh_step(const struct op *op, struct op_call *call, int step)
{
    const sy_field_info *tensor;
    for (int i = 0; step != 0 && (tensor = op_tensor(op, i)) != NULL; i++) {
        const DLTensor **const tensors = op_pointer(op, call, tensor, 0);
        if (*tensors && !(tensor->flags & SY_FIELD_SHARED))
            *tensors += step;
    }
}

void mesh_collect(const struct team *team, const struct op *op, struct op_call *call)
{
    const sy_field_info *tensor;
    for (int i = 0; (tensor = op_tensor(op, i)) != NULL; i++) {
        const DLTensor *const tensors = *op_pointer(op, call, tensor, 0);
        if (!tensors || !(tensor->flags & SY_FIELD_OUT))
            continue;
        for (int d = 1; d < mesh_devices(call); d++)
            if (team->rank == 0 || team->rank == d)
                team->collect(tensors[d].data, st_bytes(&tensors[d]), d);
    }
}
