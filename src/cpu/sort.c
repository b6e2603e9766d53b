/*
 * A radix sort from the lowest digit up. Few keys get short digits: counters must be cleared and summed too.
 */
#include "cpu/sort.h"

enum { FEW = 4096, SHORT_BITS = 8, LONG_BITS = 11 };

static void sort_digit(const struct syi_keyed *from, struct syi_keyed *to, size_t n, int shift, int bits)
{
    uint32_t place[1 << LONG_BITS]; /* callers have fewer than 2^32 keys, and the list is on the stack */
    const size_t digits = (size_t)1 << bits;
    memset(place, 0, digits * sizeof *place);
    for (size_t i = 0; i < n; i++)
        place[(from[i].key >> shift) & (digits - 1)]++;
    uint32_t sum = 0;
    for (size_t d = 0; d < digits; d++) {
        const uint32_t count = place[d];
        place[d] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++)
        to[place[(from[i].key >> shift) & (digits - 1)]++] = from[i];
}

struct syi_keyed *syi_sort_keyed(struct syi_keyed *items, struct syi_keyed *spare, size_t n, uint64_t most)
{
    const int bits = n < FEW ? SHORT_BITS : LONG_BITS;
    for (int shift = 0; shift < 64 && n > 1 && most >> shift != 0; shift += bits) {
        sort_digit(items, spare, n, shift, bits);
        struct syi_keyed *const sorted = spare;
        spare = items;
        items = sorted;
    }
    return items;
}
