/*
 * Short gathers of processes on one machine: each process writes its bytes into shared memory of its own, which the others read. A collective
 * of MPI takes several microseconds there, this takes one.
 *
 * Gathers of a channel are numbered in the order in which they begin, which is the same in all processes. Gather g is written to slot
 * g mod SLOTS once all processes have ended gather g - SLOTS; until then it waits in a list of its channel, and every test tries again.
 */
#include "transport.h"

#include <stdatomic.h>
#include <string.h>

enum { SLOTS = 32, CACHE_LINE = 64 };

/* The memory of one process: it alone writes. */
struct syi_mpi_board {
    struct {
        _Alignas(CACHE_LINE) _Atomic uint64_t posted; /* gathers that are written */
        _Alignas(CACHE_LINE) _Atomic uint64_t ended;  /* gathers that this process has read, and all before */
        _Alignas(CACHE_LINE) unsigned char slot[SLOTS][SYI_MPI_SHORT];
    } channel[SY_N_CHANNELS];
};

size_t syi_mpi_board_bytes(void)
{
    return sizeof(struct syi_mpi_board);
}

static struct syi_mpi_board *board_of(const struct syi_mpi *self, int device)
{
    return self->board->of[device].at;
}

/* Whether all processes have ended the gather that used the slot before. */
static bool is_free(const struct syi_mpi *self, int channel, uint64_t number)
{
    const int n = syi_common_group_size(&self->common, SY_AXIS_ALL);
    for (int d = 0; number >= SLOTS && d < n; d++)
        if (atomic_load_explicit(&board_of(self, d)->channel[channel].ended, memory_order_acquire) <=
            number - SLOTS)
            return false;
    return true;
}

/* Writes what the channel's list holds, as far as slots are free. */
static void progress(struct syi_mpi *self, int channel)
{
    struct syi_mpi_line *const line = &self->line[channel];
    struct syi_mpi_board *const own = board_of(self, self->common.transport.device);
    while (line->first != NULL && is_free(self, channel, line->first->number)) {
        struct syi_mpi_ticket *const t = line->first;
        if (t->bytes > 0)
            memcpy(own->channel[channel].slot[t->number % SLOTS], t->send, t->bytes);
        atomic_store_explicit(&own->channel[channel].posted, t->number + 1, memory_order_release);
        line->first = t->next;
    }
    if (line->first == NULL)
        line->last = NULL;
}

void syi_mpi_board_begin(struct syi_mpi *self, int channel, const void *send, size_t bytes, void *recv,
                         struct syi_mpi_ticket *t)
{
    struct syi_mpi_line *const line = &self->line[channel];
    t->on_board = true;
    t->channel = channel;
    t->number = line->n_begun++;
    t->send = send;
    t->bytes = bytes;
    t->recv = recv;
    t->next = NULL;
    if (line->last != NULL)
        line->last->next = t;
    else
        line->first = t;
    line->last = t;
    progress(self, channel);
}

/* This process needs the slots of a gather no more; tickets end in any order. */
static void end(struct syi_mpi *self, const struct syi_mpi_ticket *t)
{
    struct syi_mpi_line *const line = &self->line[t->channel];
    _Atomic uint64_t *const ended = &board_of(self, self->common.transport.device)->channel[t->channel].ended;
    uint64_t n = atomic_load_explicit(ended, memory_order_relaxed);
    line->is_ended |= UINT32_C(1) << t->number % SLOTS;
    for (uint32_t bit; (line->is_ended & (bit = UINT32_C(1) << n % SLOTS)) != 0; n++)
        line->is_ended &= ~bit;
    atomic_store_explicit(ended, n, memory_order_release);
}

bool syi_mpi_board_test(struct syi_mpi *self, const struct syi_mpi_ticket *t)
{
    const int n = syi_common_group_size(&self->common, SY_AXIS_ALL);
    progress(self, t->channel);
    for (int d = 0; d < n; d++)
        if (atomic_load_explicit(&board_of(self, d)->channel[t->channel].posted, memory_order_acquire) <=
            t->number)
            return false;
    for (int d = 0; t->bytes > 0 && d < n; d++)
        memcpy((unsigned char *)t->recv + (size_t)d * t->bytes,
               board_of(self, d)->channel[t->channel].slot[t->number % SLOTS], t->bytes);
    end(self, t);
    return true;
}
