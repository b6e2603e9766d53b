#include "transport_support.h"

static struct allocator usual; /* where a test does not count */

struct syi_mpi *open_transport(sy_mesh mesh, struct allocator *memory)
{
    const sy_comm_options options = limited_options(memory != NULL ? memory : &usual);
    struct syi_mpi *mpi;
    char sentence[SYI_SENTENCE] = "";
    const sy_status status = syi_mpi_open(&mpi, MPI_COMM_WORLD, mesh, &options, SY_OK, sentence);
    if (status != SY_OK)
        fail_msg("%s: %s", sy_status_name(status), sentence);
    assert_int_equal(mpi->common.transport.device, this_rank);
    assert_string_equal(mpi->common.transport.error(mpi), "");
    return mpi;
}

void close_transport(struct syi_mpi *mpi, struct allocator *memory)
{
    mpi->common.transport.destroy(mpi, false);
    if (memory != NULL)
        assert_int_equal(memory->live, 0);
}

int position_of(sy_mesh mesh, sy_axis axis, int device)
{
    return axis == SY_AXIS_0 ? device / mesh.cols : axis == SY_AXIS_1 ? device % mesh.cols : device;
}

int device_at(sy_mesh mesh, sy_axis axis, int device, int position)
{
    const int row = device / mesh.cols;
    const int col = device % mesh.cols;
    return axis == SY_AXIS_0   ? position * mesh.cols + col
           : axis == SY_AXIS_1 ? row * mesh.cols + position
                               : position;
}

void expect_ok(struct syi_mpi *mpi, sy_status status)
{
    if (status != SY_OK)
        fail_msg("%s: %s", sy_status_name(status), mpi->common.transport.error(mpi));
}

void finish(struct syi_mpi *mpi, sy_transport_ticket *tickets, int n)
{
    for (int open = n; open > 0;) {
        open = 0;
        for (int i = n - 1; i >= 0; i--) {
            bool done = false;
            if (tickets[i].of_transport == NULL)
                continue;
            expect_ok(mpi, mpi->common.transport.test(mpi, &tickets[i], &done));
            open += !done;
            assert_true(done == (tickets[i].of_transport == NULL));
        }
    }
}

unsigned char byte_of(int64_t device, int64_t row, int64_t column)
{
    return (unsigned char)(device * 89 + row * 31 + column * 7 + row / 251 + 1);
}
