/*
 * What the creation of a comm is alike over every transport that is a library of its own (mpi, nccl): options of a caller that may have an
 * older or newer header, and a status with a sentence on which all processes agree before anything is kept.
 */
#ifndef SYI_CREATION_H
#define SYI_CREATION_H

#include <switchyard.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SYI_CREATION_SENTENCE = 512, SYI_CREATION_DEVICES = 65536 }; /* bytes; of a mesh at most */

/* State of one creation. */
struct syi_creation {
    char *error; /* the caller's */
    size_t error_bytes;
    sy_status status; /* of this process so far */
    char sentence[SYI_CREATION_SENTENCE];
};

/* The first error counts. */
static inline void syi_creation_reject(struct syi_creation *c, sy_status status, const char *sentence)
{
    if (c->status != SY_OK)
        return;
    c->status = status;
    snprintf(c->sentence, sizeof c->sentence, "%s", sentence);
}

static inline void *syi_creation_alloc(void *user, size_t bytes)
{
    (void)user;
    return malloc(bytes);
}

static inline void syi_creation_free(void *user, void *data)
{
    (void)user;
    free(data);
}

/* Reads the caller's options into `to`, a struct of to_bytes zeros, of which `comm` is a part; options NULL: none. Fills in the
   allocator. */
static inline void syi_creation_read(struct syi_creation *c, void *to, size_t to_bytes, sy_comm_options *comm,
                                     const void *options, size_t options_bytes)
{
    if (options != NULL) {
        memcpy(to, options, options_bytes < to_bytes ? options_bytes : to_bytes);
        for (size_t i = to_bytes; i < options_bytes; i++)
            if (((const unsigned char *)options)[i] != 0)
                syi_creation_reject(c, SY_ERR_UNSUPPORTED, "options set a field this library does not know");
    }
    c->error = comm->error;
    c->error_bytes = comm->error_bytes;
    if ((comm->alloc == NULL) != (comm->dealloc == NULL))
        syi_creation_reject(c, SY_ERR_NULL,
                            comm->alloc == NULL ? "alloc is NULL, want alloc and dealloc"
                                                : "dealloc is NULL, want alloc and dealloc");
    if (comm->alloc == NULL || comm->dealloc == NULL) {
        comm->alloc = syi_creation_alloc;
        comm->dealloc = syi_creation_free;
    }
}

static inline bool syi_creation_check_mesh(struct syi_creation *c, sy_mesh mesh)
{
    char words[160];
    if (mesh.rows >= 1 && mesh.cols >= 1 && mesh.rows <= SYI_CREATION_DEVICES / mesh.cols)
        return true;
    snprintf(words, sizeof words, "mesh is %d x %d, want at least 1 x 1 and at most %d devices", mesh.rows,
             mesh.cols, SYI_CREATION_DEVICES);
    syi_creation_reject(c, SY_ERR_VALUE, words);
    return false;
}

/* The common result of all processes. A sentence of the core already begins with its own name. */
static inline sy_status syi_creation_report(const struct syi_creation *c, const char *function)
{
    static const char core[] = "sy_comm_create";
    const bool named = strncmp(c->sentence, core, sizeof core - 1) == 0;
    if (c->error == NULL || c->error_bytes == 0)
        return c->status;
    if (c->status == SY_OK)
        c->error[0] = '\0';
    else
        snprintf(c->error, c->error_bytes, "%s%s%s", named ? "" : function, named ? "" : ": ", c->sentence);
    return c->status;
}

#endif
