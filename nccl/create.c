/*
 * sy_comm_create_nccl. All processes return the same status, so an error in one of them is agreed upon before anything
 * is kept.
 */
#include "transport.h"

#include "../transport/creation.h"

/* State of one creation. */
struct creation {
    sy_nccl_options options;
    struct syi_creation of;
};

/* Collective. The core owns the transport from here on, but a process whose core rejected it must not free it before
   the others know: until all agree, destroy does nothing. */
static void make_comm(struct creation *c, struct syi_nccl *nccl, sy_comm **comm)
{
    c->options.comm.error = c->of.sentence;
    c->options.comm.error_bytes = sizeof c->of.sentence;
    nccl->creating = true;
    c->of.status = sy_comm_create(comm, &nccl->transport, &c->options.comm);
    c->of.status = syi_nccl_agree(nccl, c->of.status, c->of.sentence);
    if (c->of.status != SY_OK) {
        sy_comm_destroy(*comm);
        *comm = NULL;
        syi_nccl_close(nccl, c->of.status == SY_ERR_TIMEOUT);
    } else {
        nccl->creating = false;
    }
}

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
            make_comm(&c, made, &out);
    }
    if (comm != NULL)
        *comm = out;
    return syi_creation_report(&c.of, "sy_comm_create_nccl");
}
