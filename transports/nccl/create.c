/*
 * sy_comm_create_nccl. All processes return the same status, so an error in one of them is agreed upon before anything
 * is kept.
 */
#include "transport.h"

#include "../common/common.h"

/* State of one creation. */
struct creation {
    sy_nccl_options options;
    struct syi_creation of;
};

sy_status sy_comm_create_nccl_n(sy_comm **comm, ncclComm_t nccl, sy_mesh mesh, const sy_nccl_options *options,
                                size_t options_bytes)
{
    struct creation c = {.of = {.status = SY_OK}};
    struct syi_nccl *made = NULL;
    sy_comm *out = NULL;
    syi_creation_read(&c.of, &c.options, sizeof c.options, &c.options.comm, options, options_bytes);
    if (c.options.max_blocks < 0)
        syi_creation_reject(&c.of, SY_ERR_VALUE, "max_blocks is negative, want 0 or more");
    if (comm == NULL)
        syi_creation_reject(&c.of, SY_ERR_NULL, "comm is NULL, want a place for the comm");
    if (nccl == NULL) {
        c.of.status = SY_OK; /* the one failure that cannot be sent to the others */
        syi_creation_reject(&c.of, SY_ERR_COMM, "nccl is NULL, want a communicator");
    } else {
        syi_creation_check_mesh(&c.of, mesh);
        c.of.status = syi_nccl_open(&made, nccl, mesh, &c.options, c.of.status, c.of.sentence);
        if (c.of.status == SY_OK)
            syi_creation_make_comm(&c.of, &made->common, &c.options.comm, &out);
    }
    if (comm != NULL)
        *comm = out;
    return syi_creation_report(&c.of, "sy_comm_create_nccl");
}
