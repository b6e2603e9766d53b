/*
 * A sum of two f32 values rounded to f32: an exact sum in double needs up to 277 bits, so double alone would round twice.
 * TwoSum gives the double nearest to the sum and the exact rest; where the nearest double is a tie between two f32 or
 * lies so close that the rest decides, it is moved one step towards the rest before it is rounded (rounding to odd).
 */
#include "sum.h"

#include <math.h>
#include <string.h>

#include "oracle/numbers.h"

float oracle_sum(float a, float b)
{
    const volatile double x = a, y = b, sum = x + y;
    if (!isfinite(sum))
        return f32_from_bits(f32_round(sum));
    const volatile double part = sum - x, rest = (x - (sum - part)) + (y - part);
    uint64_t bits;
    double odd = sum;
    memcpy(&bits, &odd, sizeof bits);
    if (rest != 0 && bits % 2 == 0)
        odd = nextafter(sum, rest > 0 ? INFINITY : -INFINITY);
    return f32_from_bits(f32_round(odd));
}
