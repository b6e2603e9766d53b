/*
 * Which tables exist, best first. An instruction set is one row here, one file in this folder and one line of the
 * build, which defines SYI_KERNELS_<NAME> for each table it has compiled.
 */
#include "kernels/kernels.h"

static const struct syi_kernels *const tables[] = {
#ifdef SYI_KERNELS_AVX512
    &syi_kernels_avx512,
#endif
#ifdef SYI_KERNELS_AVX2
    &syi_kernels_avx2,
#endif
#ifdef SYI_KERNELS_NEON_BF16
    &syi_kernels_neon_bf16,
#endif
#ifdef SYI_KERNELS_NEON
    &syi_kernels_neon,
#endif
    &syi_kernels_scalar,
};

enum { N_TABLES = sizeof tables / sizeof *tables };

static bool runs_here(const struct syi_kernels *table)
{
    return (table->needs & ~syi_cpu_bits()) == 0;
}

const struct syi_kernels *syi_kernels_at(int i)
{
    for (int t = 0; t < N_TABLES; t++)
        if (runs_here(tables[t]) && i-- == 0)
            return tables[t];
    return NULL;
}

const struct syi_kernels *syi_kernels_named(const char *name, bool *known)
{
    *known = name == NULL;
    for (int t = 0; t < N_TABLES; t++) {
        if (name != NULL && strcmp(tables[t]->name, name) != 0)
            continue;
        *known = true;
        if (runs_here(tables[t]))
            return tables[t];
    }
    return NULL;
}
