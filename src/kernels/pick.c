/*
 * Which tables exist, best first. An instruction set is one row here and one file beside it.
 */
#include "kernels/kernels.h"

static const struct syi_kernels *const tables[] = {
    &syi_kernels_scalar,
};

const struct syi_kernels *syi_kernels_at(int i)
{
    return i >= 0 && (size_t)i < sizeof tables / sizeof *tables ? tables[i] : NULL;
}

const struct syi_kernels *syi_kernels_named(const char *name)
{
    for (int i = 0; syi_kernels_at(i) != NULL; i++)
        if (name == NULL || strcmp(syi_kernels_at(i)->name, name) == 0)
            return syi_kernels_at(i);
    return NULL;
}
