/*
 * The exported symbols behind the inline functions of switchyard.h, which includes this file. A program in C or C++
 * needs nothing from here; another language calls these symbols.
 *
 * Each function that takes a struct which may grow has a symbol of the same name with _n, and takes the size of the
 * struct as the caller knows it. For every operator:
 *
 *     sy_status sy_<op>_n(sy_ctx *ctx, const sy_<op>_args *args, size_t args_bytes)
 *     sy_status sy_<op>_query_n(sy_ctx *ctx, const sy_<op>_args *args, size_t args_bytes,
 *                               sy_query *query, size_t query_bytes)
 *
 * and operators between devices have `sy_comm *comm` after ctx, and a sy_<op>_start_n with `sy_request **request` at
 * the end. `switchyard ops --json` prints name, offset and type of every field of the argument structs.
 *
 *   - A caller with an older header passes fewer bytes: the fields it does not know are zero, which is the default.
 *   - A caller with a newer header passes more: fields this library does not know must be zero, or the call is rejected
 *     with UNSUPPORTED. Of a struct that the library fills, such fields become zero.
 */
#ifndef SWITCHYARD_INLINE_H
#define SWITCHYARD_INLINE_H

#include <switchyard.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Tensors: no symbol of the library ---- */

static inline DLTensor sy_tensor(const void *data, DLDataType type, int rank, const int64_t *shape)
{
    DLTensor t = {(void *)(uintptr_t)data, {kDLCPU, 0}, rank, type, (int64_t *)(uintptr_t)shape, NULL, 0};
    return t;
}

static inline const DLTensor *sy_vec(sy_view *view, const void *data, DLDataType type, int64_t n)
{
    view->extent[0] = n;
    view->tensor = sy_tensor(data, type, 1, view->extent);
    return &view->tensor;
}

static inline const DLTensor *sy_mat(sy_view *view, const void *data, DLDataType type, int64_t rows,
                                     int64_t cols)
{
    view->extent[0] = rows;
    view->extent[1] = cols;
    view->tensor = sy_tensor(data, type, 2, view->extent);
    return &view->tensor;
}

static inline const DLTensor *sy_number_i64(sy_view *view, int64_t number)
{
    view->integer = number;
    return sy_vec(view, &view->integer, SY_I64, 1);
}

static inline const DLTensor *sy_number_f32(sy_view *view, float number)
{
    view->real = number;
    return sy_vec(view, &view->real, SY_F32, 1);
}

/* ---- Symbols with the size of a struct ---- */

SY_API sy_status sy_ctx_create_n(sy_ctx **ctx, const sy_ctx_options *options, size_t options_bytes);
static inline sy_status sy_ctx_create(sy_ctx **ctx, const sy_ctx_options *options)
{
    return sy_ctx_create_n(ctx, options, sizeof *options);
}

SY_API sy_status sy_ctx_fault_n(const sy_ctx *ctx, sy_fault *fault, size_t fault_bytes);
static inline sy_status sy_ctx_fault(const sy_ctx *ctx, sy_fault *fault)
{
    return sy_ctx_fault_n(ctx, fault, sizeof *fault);
}

SY_API sy_status sy_ctx_device_info_n(sy_ctx *ctx, sy_device_info *info, size_t info_bytes);
static inline sy_status sy_ctx_device_info(sy_ctx *ctx, sy_device_info *info)
{
    return sy_ctx_device_info_n(ctx, info, sizeof *info);
}

SY_API sy_status sy_kv_format_named_n(const char *name, sy_kv_format *format, size_t format_bytes);
static inline sy_status sy_kv_format_named(const char *name, sy_kv_format *format)
{
    return sy_kv_format_named_n(name, format, sizeof *format);
}
static inline sy_status sy_row_format_named(const char *name, sy_row_format *format)
{
    return sy_kv_format_named(name, format);
}

SY_API sy_status sy_comm_create_local_n(sy_comm **comm, sy_mesh mesh, const sy_comm_options *options,
                                        size_t options_bytes);
static inline sy_status sy_comm_create_local(sy_comm **comm, sy_mesh mesh, const sy_comm_options *options)
{
    return sy_comm_create_local_n(comm, mesh, options, sizeof *options);
}

static inline sy_status sy_moe_dispatch_grad_data(sy_ctx *ctx, const sy_moe_combine_args *args)
{
    return sy_moe_combine(ctx, args);
}

#ifdef __cplusplus
}
#endif

#endif /* SWITCHYARD_INLINE_H */
