/* A user of the installed libswitchyard_nccl. Without a communicator, which takes a GPU, its error says what it wants. Also C++17. */
#include <stdio.h>

#include <switchyard_nccl.h>

int main(void)
{
    sy_comm *comm = NULL;
    char error[200] = "";
    sy_mesh mesh = {1, 1};
    sy_nccl_options options = {0};
    options.comm.error = error;
    options.comm.error_bytes = sizeof error;
    sy_status status = sy_comm_create_nccl(&comm, NULL, mesh, &options);
    printf("%s %s %s\n", sy_version(), sy_status_name(status), error);
    return comm != NULL;
}
