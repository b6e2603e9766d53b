/*
 * The transport over MPI by itself: gathers, exchanges, shared memory.
 */
#define _GNU_SOURCE /* fallocate */
#include "transport_support.h"

#include <errno.h>
#include <fcntl.h>

/* ---- Gathers ---- */

static const sy_axis axes[] = {SY_AXIS_ALL, SY_AXIS_0, SY_AXIS_1};

/* Bytes of a position when they differ; some give none. */
static size_t share_of(int position, size_t bytes)
{
    return position % 3 == 1 ? 0 : bytes + (size_t)position * 5;
}

static void gather_and_check(struct syi_mpi *mpi, int channel, sy_axis axis, size_t bytes, bool ragged)
{
    const int n = syi_common_group_size(&mpi->common, axis);
    const int own = position_of(mpi->common.transport.mesh, axis, this_rank);
    size_t counts[64] = {0};
    size_t total = 0;
    for (int p = 0; p < n; p++)
        total += counts[p] = ragged ? share_of(p, bytes) : bytes;
    unsigned char *const send = buf_new(counts[own], 1);
    unsigned char *const recv = buf_new(total, 3);
    for (size_t i = 0; i < counts[own]; i++)
        send[i] = byte_of(this_rank, channel, (int64_t)i);
    sy_transport_ticket ticket;
    expect_ok(mpi, mpi->common.transport.gather(mpi, channel, axis, send, counts[own],
                                                total > 0 ? recv : NULL, ragged ? counts : NULL, &ticket));
    finish(mpi, &ticket, 1);
    const unsigned char *at = recv;
    for (int p = 0; p < n; at += counts[p], p++)
        for (size_t i = 0; i < counts[p]; i++)
            if (at[i] !=
                byte_of(device_at(mpi->common.transport.mesh, axis, this_rank, p), channel, (int64_t)i))
                fail_msg("channel %d, axis %d: byte %zu of position %d is %d", channel, (int)axis, i, p,
                         at[i]);
    buf_free(send);
    buf_free(recv);
}

static void gathers(size_t longest)
{
    static const size_t sizes[] = {0, 1, 64, 4097, 100000};
    for (int m = 0; m < n_meshes(); m++) {
        struct allocator memory = {0};
        struct syi_mpi *const mpi = open_transport(mesh_number(m), &memory);
        mpi->longest = longest;
        for (int channel = 0; channel < SY_N_CHANNELS; channel++)
            for (size_t a = 0; a < COUNT_OF(axes); a++)
                for (size_t s = 0; s < COUNT_OF(sizes); s++)
                    for (int ragged = 0; ragged < 2; ragged++)
                        gather_and_check(mpi, channel, axes[a], sizes[s], ragged);
        close_transport(mpi, &memory);
    }
}

TEST(test_gathers)
{
    gathers(INT_MAX);
}

/* Counts beyond what an int can tell, with a small int. */
TEST(test_gathers_of_many_bytes)
{
    gathers(61);
}

/* Two channels and two axes, begun in another order in every process. */
TEST(test_channels_have_orders_of_their_own)
{
    struct syi_mpi *const mpi = open_transport(mesh_number(n_meshes() / 2), NULL);
    int got[4][64];
    int mine[4];
    sy_transport_ticket tickets[4];
    for (int i = 0; i < 4; i++) {
        const int which = (i + this_rank) % 4;
        mine[which] = this_rank * 10 + which;
        expect_ok(mpi, mpi->common.transport.gather(mpi, which % 2 ? SY_CHANNEL_TABLE : SY_CHANNEL_HEADER,
                                                    which / 2 ? SY_AXIS_ALL : SY_AXIS_1, &mine[which],
                                                    sizeof mine[which], got[which], NULL, &tickets[which]));
    }
    finish(mpi, tickets, 4);
    for (int which = 0; which < 4; which++)
        for (int p = 0; p < syi_common_group_size(&mpi->common, which / 2 ? SY_AXIS_ALL : SY_AXIS_1); p++)
            assert_int_equal(got[which][p], device_at(mpi->common.transport.mesh,
                                                      which / 2 ? SY_AXIS_ALL : SY_AXIS_1, this_rank, p) *
                                                    10 +
                                                which);
    close_transport(mpi, NULL);
}

/* More than the slots in shared memory; they end in another order in every process. */
TEST(test_many_gathers_at_a_time)
{
    enum { MANY = 100 };
    static int mine[MANY], got[MANY][64];
    sy_transport_ticket tickets[MANY], turned[MANY];
    struct syi_mpi *const mpi = open_transport((sy_mesh){1, n_ranks}, NULL);
    for (int i = 0; i < MANY; i++) {
        mine[i] = 1000 * this_rank + i;
        expect_ok(mpi, mpi->common.transport.gather(mpi, SY_CHANNEL_HEADER, SY_AXIS_ALL, &mine[i],
                                                    sizeof mine[i], got[i], NULL, &tickets[i]));
    }
    for (int i = 0; i < MANY; i++)
        turned[i] = tickets[(37 * i + 11 * this_rank) % MANY];
    finish(mpi, turned, MANY);
    for (int i = 0; i < MANY; i++)
        for (int r = 0; r < n_ranks; r++)
            assert_int_equal(got[i][r], 1000 * r + i);
    close_transport(mpi, NULL);
}

/* A fence without bytes ends when all have begun, not before. Process 0 begins only when the others have asked
   often enough and told it so. */
TEST(test_a_fence_waits_for_all)
{
    struct syi_mpi *const mpi = open_transport((sy_mesh){1, n_ranks}, NULL);
    sy_transport_ticket ticket;
    if (this_rank == 0)
        for (int r = 1; r < n_ranks; r++)
            MPI_Recv(NULL, 0, MPI_BYTE, r, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect_ok(mpi,
              mpi->common.transport.gather(mpi, SY_CHANNEL_FENCE, SY_AXIS_ALL, NULL, 0, NULL, NULL, &ticket));
    for (int i = 0; this_rank != 0 && i < 100; i++) {
        bool done = true;
        expect_ok(mpi, mpi->common.transport.test(mpi, &ticket, &done));
        assert_false(done);
    }
    if (this_rank != 0)
        MPI_Send(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    finish(mpi, &ticket, 1);
    close_transport(mpi, NULL);
}

/* ---- Exchanges ---- */

enum { MOST_ROWS = 40, TABLE_ROWS = 64 * MOST_ROWS };

/* One exchange, known to all processes: who sends how many rows, from where to where. */
struct trade {
    sy_transport_exchange x;
    sy_transport_rows send[64], recv[64];
    int32_t send_rows[64][MOST_ROWS], recv_rows[64][MOST_ROWS];
    unsigned char *from, *to; /* tables of rows */
    size_t row_bytes, stride;
};

/* Rows p sends to q: a function of the seed, and none in a third of the cases. */
static int64_t rows_of(uint64_t seed, int p, int q)
{
    uint64_t state = seed + (uint64_t)(p * 64 + q) * 1000003;
    const int64_t n = rng_below(&state, MOST_ROWS * 3 / 2);
    return n >= MOST_ROWS ? 0 : n;
}

/* The place of row i of p for q: any order, and the same row may be sent to several. */
static int32_t source_row(uint64_t seed, int p, int q, int i)
{
    uint64_t state = seed ^ (uint64_t)((p * 64 + q) * 64 + i) * 7919;
    return (int32_t)rng_below(&state, TABLE_ROWS);
}

/* Where it goes: a place of its own, scattered. */
static int32_t target_row(int p, int i)
{
    return (int32_t)(((int64_t)(p * MOST_ROWS + i) * 1021) % TABLE_ROWS);
}

static void trade_lists(struct trade *t, uint64_t seed, bool dense)
{
    const sy_transport_exchange *const x = &t->x;
    for (int q = 0; q < x->n_positions; q++) {
        t->send[q] = (sy_transport_rows){t->from, t->row_bytes, t->stride, t->send_rows[q],
                                         rows_of(seed, x->position, q)};
        t->recv[q] = (sy_transport_rows){t->to, t->row_bytes, t->stride, t->recv_rows[q],
                                         rows_of(seed, q, x->position)};
        for (int i = 0; i < MOST_ROWS; i++) {
            t->send_rows[q][i] = source_row(seed, x->position, q, i);
            t->recv_rows[q][i] = target_row(q, i);
        }
        if (dense) { /* a run of rows without a list, on the receiving side */
            t->recv[q].rows = NULL;
            t->recv[q].base = t->to + (size_t)q * MOST_ROWS * t->stride;
        }
    }
    /* What is for itself is not among them, whatever is there. */
    t->send[x->position].n = t->recv[x->position].n = MOST_ROWS;
}

static struct trade *trade_new(const struct syi_mpi *mpi, uint64_t seed, sy_axis axis, bool dense)
{
    static const sy_topology topologies[] = {SY_TOPOLOGY_AUTO, SY_TOPOLOGY_RING, SY_TOPOLOGY_TORUS};
    struct trade *const t = calloc(1, sizeof *t);
    assert_non_null(t);
    uint64_t state = seed * 2 + 1;
    t->row_bytes = (size_t)rng_below(&state, 70) + 1;
    t->stride = t->row_bytes + (size_t)rng_below(&state, 9);
    t->from = buf_new(TABLE_ROWS * t->stride, 0);
    t->to = buf_new(TABLE_ROWS * t->stride, 5);
    for (int64_t r = 0; r < TABLE_ROWS; r++)
        for (size_t c = 0; c < t->row_bytes; c++)
            t->from[(size_t)r * t->stride + c] = byte_of(this_rank, r, (int64_t)c);
    t->x = (sy_transport_exchange){.axis = axis,
                                   .n_positions = syi_common_group_size(&mpi->common, axis),
                                   .position = position_of(mpi->common.transport.mesh, axis, this_rank),
                                   .send = t->send,
                                   .recv = t->recv};
    t->x.number = rng_below(&state, 3) == 0 ? UINT64_MAX - seed : (uint64_t)rng_below(&state, INT64_MAX);
    t->x.chunk_bytes = rng_below(&state, 2) == 0 ? (size_t)1 << 30 : (size_t)rng_below(&state, 200) + 1;
    t->x.num_links = rng_below(&state, 2) == 0 ? 1 : (int)rng_below(&state, 2 * MOST_ROWS) + 1;
    t->x.topology = topologies[rng_below(&state, 3)];
    trade_lists(t, seed, dense);
    return t;
}

/* Every row that was sent is there, every other byte as it was; seed and lists are the senders'. */
static void trade_check(const struct syi_mpi *mpi, struct trade *t, uint64_t seed)
{
    unsigned char *const want = malloc(TABLE_ROWS * t->stride);
    assert_non_null(want);
    memset(want, 0xA5, TABLE_ROWS * t->stride);
    for (int p = 0; p < t->x.n_positions; p++)
        for (int64_t i = 0; p != t->x.position && i < t->recv[p].n; i++) {
            const int64_t row = t->recv[p].rows != NULL ? target_row(p, (int)i) : p * MOST_ROWS + i;
            const int device = device_at(mpi->common.transport.mesh, t->x.axis, this_rank, p);
            const int32_t source = source_row(seed, p, t->x.position, (int)i);
            for (size_t c = 0; c < t->row_bytes; c++)
                want[(size_t)row * t->stride + c] = byte_of(device, source, (int64_t)c);
        }
    expect_bytes(t->to, want, TABLE_ROWS * t->stride);
    free(want);
}

static void trade_free(struct trade *t)
{
    buf_free(t->from);
    buf_free(t->to);
    free(t);
}

static void trades(size_t longest, uint64_t n_tags)
{
    for (int m = 0; m < n_meshes(); m++) {
        struct allocator memory = {0};
        struct syi_mpi *const mpi = open_transport(mesh_number(m), &memory);
        mpi->longest = longest;
        if (n_tags > 0)
            mpi->n_tags = n_tags;
        for (uint64_t seed = 1; seed <= 24; seed++) {
            struct trade *const t = trade_new(mpi, seed, axes[seed % 3], seed % 4 == 0);
            sy_transport_ticket ticket;
            expect_ok(mpi, mpi->common.transport.exchange(mpi, &t->x, &ticket));
            finish(mpi, &ticket, 1);
            trade_check(mpi, t, seed);
            trade_free(t);
        }
        close_transport(mpi, &memory);
    }
}

TEST(test_exchanges)
{
    trades(INT_MAX, 0);
}

TEST(test_exchanges_of_long_rows)
{
    trades(16, 0);
}

/* An MPI with one tag: messages are matched by their order alone. */
TEST(test_exchanges_with_few_tags)
{
    trades(INT_MAX, 1);
}

/* Also with fewer tags than exchanges: those of equal tags are matched in the order in which they began. */
static void many_at_a_time(uint64_t n_tags)
{
    enum { AT_A_TIME = 5 };
    struct syi_mpi *const mpi = open_transport(mesh_number(n_meshes() / 2), NULL);
    mpi->n_tags = n_tags > 0 ? n_tags : mpi->n_tags;
    struct trade *all[AT_A_TIME];
    sy_transport_ticket tickets[AT_A_TIME];
    for (int i = 0; i < AT_A_TIME; i++) {
        all[i] = trade_new(mpi, (uint64_t)i + 100, axes[i % 3], false);
        all[i]->x.number = (uint64_t)i + UINT32_MAX - 2;
        expect_ok(mpi, mpi->common.transport.exchange(mpi, &all[i]->x, &tickets[i]));
    }
    finish(mpi, tickets, AT_A_TIME);
    for (int i = 0; i < AT_A_TIME; i++) {
        trade_check(mpi, all[i], (uint64_t)i + 100);
        trade_free(all[i]);
    }
    close_transport(mpi, NULL);
}

TEST(test_many_exchanges_at_a_time)
{
    for (uint64_t n_tags = 0; n_tags < 4; n_tags++)
        many_at_a_time(n_tags);
}

TEST(test_warm_paths_allocate_nothing)
{
    struct allocator memory = {0};
    struct syi_mpi *const mpi = open_transport((sy_mesh){n_ranks, 1}, &memory);
    int warm = 0;
    for (int round = 0; round < 4; round++) {
        struct trade *const t = trade_new(mpi, 7, SY_AXIS_ALL, false);
        sy_transport_ticket ticket;
        expect_ok(mpi, mpi->common.transport.exchange(mpi, &t->x, &ticket));
        finish(mpi, &ticket, 1);
        gather_and_check(mpi, SY_CHANNEL_TABLE, SY_AXIS_ALL, 64, true);
        gather_and_check(mpi, SY_CHANNEL_HEADER, SY_AXIS_0, 64, false);
        trade_free(t);
        if (round == 0)
            warm = memory.calls;
    }
    assert_int_equal(memory.calls, warm);
    close_transport(mpi, &memory);
}

/* ---- Shared memory ---- */

static void fence(struct syi_mpi *mpi)
{
    sy_transport_ticket ticket;
    expect_ok(mpi,
              mpi->common.transport.gather(mpi, SY_CHANNEL_FENCE, SY_AXIS_ALL, NULL, 0, NULL, NULL, &ticket));
    finish(mpi, &ticket, 1);
}

static size_t segment_bytes(int device, int round)
{
    return (size_t)(device * 37 + round * 100001) % 300000;
}

/* As the library does it: each process makes its part, all exchange tokens and attach. */
static sy_status share_all(struct syi_mpi *mpi, size_t bytes, void **base, void **segment)
{
    unsigned char mine[SY_SHARE_TOKEN_BYTES];
    unsigned char all[64 * SY_SHARE_TOKEN_BYTES];
    sy_status st = mpi->common.transport.share(mpi, bytes, mine, segment);
    assert_true((st == SY_OK) == (*segment != NULL));
    int ok = st == SY_OK;
    MPI_Allreduce(MPI_IN_PLACE, &ok, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    MPI_Allgather(mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
    if (ok)
        st = mpi->common.transport.attach(mpi, *segment, all, base);
    MPI_Barrier(MPI_COMM_WORLD);
    if (ok && st == SY_OK)
        mpi->common.transport.settle(mpi, *segment);
    else if (*segment != NULL)
        mpi->common.transport.unshare(mpi, *segment);
    return ok ? st : SY_ERR_NOMEM;
}

TEST(test_shared_memory)
{
    struct allocator memory = {0};
    struct syi_mpi *const mpi = open_transport(mesh_number(0), &memory);
    if (mpi->common.transport.share == NULL)
        skip_because("this transport shares no memory");
    void *segments[3];
    void *base[3][64];
    for (int s = 0; s < 3; s++)
        expect_ok(mpi, share_all(mpi, segment_bytes(this_rank, s), base[s], &segments[s]));
    for (int round = 0; round < 20; round++) {
        for (int s = 0; s < 3; s++)
            for (size_t i = 0; i < segment_bytes(this_rank, s); i++)
                ((unsigned char *)base[s][this_rank])[i] = byte_of(this_rank, round + s, (int64_t)i);
        fence(mpi);
        for (int s = 0; s < 3; s++)
            for (int d = 0; d < n_ranks; d++) {
                assert_int_equal((uintptr_t)base[s][d] % 64, 0);
                for (size_t i = 0; i < segment_bytes(d, s); i += round == 0 ? 1 : 997)
                    if (((unsigned char *)base[s][d])[i] != byte_of(d, round + s, (int64_t)i))
                        fail_msg("round %d, segment %d of device %d, byte %zu", round, s, d, i);
            }
        fence(mpi);
    }
    mpi->common.transport.unshare(mpi, segments[1]);
    fence(mpi);
    mpi->common.transport.unshare(mpi, segments[0]); /* the last one goes with the transport */
    close_transport(mpi, &memory);
}

/* More than there can be, in one process: it fails there, and the next one works. */
TEST(test_too_much_shared_memory)
{
    struct allocator memory = {0};
    struct syi_mpi *const mpi = open_transport(mesh_number(0), &memory);
    if (mpi->common.transport.share == NULL)
        skip_because("this transport shares no memory");
    static const size_t too_much[] = {SIZE_MAX - 7, (size_t)PTRDIFF_MAX / 2, (size_t)1 << 50};
    for (size_t i = 0; i < COUNT_OF(too_much); i++) {
        const bool mine = this_rank == n_ranks - 1;
        void *segment;
        void *base[64];
        assert_int_equal(share_all(mpi, mine ? too_much[i] : 100, base, &segment), SY_ERR_NOMEM);
        if (mine)
            assert_non_null(strstr(mpi->common.transport.error(mpi), "bytes cannot be shared: "));
        expect_ok(mpi, share_all(mpi, 100, base, &segment));
    }
    close_transport(mpi, &memory);
}

static int64_t interruptions = -1; /* so far; -1: there are none */

/* In place of the C library's. While `interruptions` are counted a signal comes with every MiB, and the kernel gives back
   what an interrupted call has allocated. */
int posix_fallocate(int fd, off_t offset, off_t len)
{
    enum { MIB = 1 << 20, MOST = 1000 };
    if (interruptions >= 0 && len > MIB)
        return ++interruptions < MOST ? EINTR : ENOSPC;
    return fallocate(fd, 0, offset, len) == 0 ? 0 : errno;
}

/* A profiler's timer, say. */
TEST(test_signals_during_allocation)
{
    struct syi_mpi *const mpi = open_transport(mesh_number(0), NULL);
    if (mpi->common.transport.share == NULL)
        skip_because("this transport shares no memory");
    void *segment;
    void *base[64];
    interruptions = 0;
    const sy_status status = share_all(mpi, (5 << 20) + 123, base, &segment);
    assert_true(interruptions > 0);
    interruptions = -1;
    expect_ok(mpi, status);
    close_transport(mpi, NULL);
}

/* Memory of a name that is another process's by chance: the mark at its end is not ours. */
TEST(test_memory_of_others)
{
    struct syi_mpi *const mpi = open_transport(mesh_number(0), NULL);
    if (mpi->common.transport.share == NULL)
        skip_because("this transport shares no memory");
    unsigned char tokens[64 * SY_SHARE_TOKEN_BYTES];
    unsigned char mine[SY_SHARE_TOKEN_BYTES];
    void *segment;
    void *base[64];
    expect_ok(mpi, mpi->common.transport.share(mpi, 100, mine, &segment));
    mine[8] ^= this_rank == 0; /* after the size */
    MPI_Allgather(mine, sizeof mine, MPI_BYTE, tokens, sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
    const sy_status status = mpi->common.transport.attach(mpi, segment, tokens, base);
    assert_int_equal(status, this_rank == 0 ? SY_OK : SY_ERR_NOMEM);
    MPI_Barrier(MPI_COMM_WORLD);
    mpi->common.transport.unshare(mpi, segment);
    close_transport(mpi, NULL);
}

/* ---- Failures ---- */

/* The n-th allocation fails in the last process; all of them hear of it, nothing is left. */
TEST(test_no_memory_for_a_transport)
{
    struct allocator memory = {.fail_at = this_rank == n_ranks - 1 ? 1 : 0};
    const sy_comm_options options = limited_options(&memory);
    struct syi_mpi *mpi;
    char sentence[SYI_SENTENCE] = "";
    assert_int_equal(syi_mpi_open(&mpi, MPI_COMM_WORLD, (sy_mesh){1, n_ranks}, &options, SY_OK, sentence),
                     SY_ERR_NOMEM);
    assert_null(mpi);
    assert_int_equal(memory.live, 0);
    expect_same_everywhere(sentence, sizeof sentence);
    assert_non_null(strstr(sentence, "allocated"));
}

TEST(test_no_memory_for_a_ticket)
{
    struct allocator memory = {0};
    struct syi_mpi *const mpi = open_transport((sy_mesh){1, n_ranks}, &memory);
    sy_transport_ticket ticket;
    for (int ahead = 1; ahead <= 2; ahead++) { /* a ticket; its requests */
        memory.fail_at = memory.calls + ahead;
        const sy_status status =
            mpi->common.transport.gather(mpi, SY_CHANNEL_HEADER, SY_AXIS_ALL, NULL, 0, NULL, NULL, &ticket);
        assert_int_equal(status, SY_ERR_NOMEM);
        assert_non_null(strstr(mpi->common.transport.error(mpi), "no memory"));
    }
    memory.fail_at = 0;
    gather_and_check(mpi, SY_CHANNEL_HEADER, SY_AXIS_ALL, 8, true);
    close_transport(mpi, &memory);
}

/* A message longer than its receiver expects is an error of MPI: a status and a sentence, no end of the
   process. (With MPICH that takes a world whose errors return.) */
TEST(test_errors_of_mpi_are_reported)
{
    struct syi_mpi *const mpi = open_transport((sy_mesh){1, n_ranks}, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    unsigned char bytes[200] = {0};
    sy_transport_rows send[64] = {0};
    sy_transport_rows recv[64] = {0};
    if (this_rank == 0)
        send[1] = (sy_transport_rows){bytes, 10, 10, NULL, 20};
    if (this_rank == 1)
        recv[0] = (sy_transport_rows){bytes, 10, 10, NULL, 2};
    const sy_transport_exchange x = {.n_positions = n_ranks,
                                     .position = this_rank,
                                     .send = send,
                                     .recv = recv,
                                     .chunk_bytes = 1000,
                                     .num_links = 1};
    sy_transport_ticket ticket;
    expect_ok(mpi, mpi->common.transport.exchange(mpi, &x, &ticket));
    sy_status status = SY_OK;
    for (bool done = false; status == SY_OK && !done;)
        status = mpi->common.transport.test(mpi, &ticket, &done);
    assert_int_equal(status, this_rank == 1 ? SY_ERR_COMM : SY_OK);
    if (this_rank == 1)
        assert_non_null(strstr(mpi->common.transport.error(mpi), "mpi: a transfer failed: "));
    MPI_Barrier(MPI_COMM_WORLD);
    mpi->common.transport.destroy(mpi, true);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* The last takes two processes. */
TEST_GROUP(transport)
{
    ranks_begin();
    return ranks_end(ranks_run(own_tests.tests, own_tests.count - (n_ranks < 2)));
}
