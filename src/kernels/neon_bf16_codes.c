/*
 * 8-bit codes to numbers with NEON and BF16.
 */
#include "kernels/neon_codes.h"

SYI_DEFINE_DECODERS(neon_bf16, decode_groups)
