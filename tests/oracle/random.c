#include "random.h"

#include <string.h>

uint64_t rng_u64(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

int64_t rng_below(uint64_t *state, int64_t n)
{
    return (int64_t)(rng_u64(state) % (uint64_t)n);
}

double rng_unit(uint64_t *state)
{
    return (double)(rng_u64(state) >> 11) * 0x1p-53;
}

void rng_fill(uint64_t *state, void *data, size_t bytes)
{
    unsigned char *p = data;
    for (size_t done = 0; done < bytes;) {
        const uint64_t word = rng_u64(state);
        const size_t n = bytes - done < sizeof word ? bytes - done : sizeof word;
        memcpy(p + done, &word, n);
        done += n;
    }
}

size_t type_bytes(DLDataType type)
{
    return ((size_t)type.bits * type.lanes + 7) / 8;
}
