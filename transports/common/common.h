/*
 * What the transports of this folder have in common. Each is a library of its own, which includes the public headers and nothing from src:
 *
 *     program --> sy_comm_create_mpi, _nccl --> struct syi_mpi, struct syi_nccl --> MPI, NCCL
 *                       | sy_comm_create             | its first member: struct syi_common
 *                       v                            v
 *                  libswitchyard ------------> sy_transport: gather, exchange, test, share, destroy
 *
 * Creation is collective, and all processes return the same status and sentence: what one process rejects is kept in its struct
 * syi_creation until the processes have agreed (`agree`), and nothing is kept unless all of them succeeded. Until then `creating` makes
 * destroy do nothing, since a process whose core rejected the transport must not free it before the others have been informed.
 *
 * One process is one device; rank = device. A position is the place of a device in its group: the mesh, a column or a row of it.
 */
#pragma once

#include <switchyard_transport.h>

enum { SYI_SENTENCE = 512, SYI_MAX_DEVICES = 65536 }; /* bytes of an error sentence; devices of a mesh */

/* The first member of a transport's struct. */
struct syi_common {
    sy_transport transport;
    bool creating;
    int64_t timeout_ms; /* of waits while the comm is made or closed; negative: no limit */
    void *(*alloc)(void *user, size_t bytes);
    void (*dealloc)(void *user, void *ptr);
    void *alloc_user;
    /* Collective: the status and sentence of the lowest process that failed, in all of them; SY_OK when none has. COMM in all when the
       library below fails, TIMEOUT when a process is missing. */
    sy_status (*agree)(void *self, sy_status status, char sentence[SYI_SENTENCE]);
    void (*close)(void *self, bool broken); /* see destroy */
    char error[SYI_SENTENCE];
};

/* One without functions of its own, which the caller adds; `self` is the struct that it begins. */
struct syi_common syi_common(const char *name, void *self, sy_mesh mesh, const sy_comm_options *options);

int syi_common_group_size(const struct syi_common *c, sy_axis axis);
int syi_common_rank_at(const struct syi_common *c, sy_axis axis,
                       int position); /* in the group of this process */

/* Rows of one message of an exchange, both sides alike. */
int64_t syi_rows_per_message(const sy_transport_exchange *x, const sy_transport_rows *rows);

/* Waits: the time, and whether one that began at that time has reached the limit; the sentence is then set. */
int64_t syi_now_ms(void);
bool syi_is_late(const struct syi_common *c, int64_t begin_ms, char sentence[SYI_SENTENCE]);

/* State of one creation. */
struct syi_creation {
    char *error; /* the caller's */
    size_t error_bytes;
    sy_status status; /* of this process so far */
    char sentence[SYI_SENTENCE];
};

/* The first error counts. */
void syi_creation_reject(struct syi_creation *c, sy_status status, const char *sentence);

/* Reads the caller's options, of an older or newer header, into `to`, a struct of to_bytes zeros, of which `comm` is a part; options
   NULL: none. Fills in the allocator. */
void syi_creation_read(struct syi_creation *c, void *to, size_t to_bytes, sy_comm_options *comm,
                       const void *options, size_t options_bytes);

bool syi_creation_check_mesh(struct syi_creation *c, sy_mesh mesh);

/* Whether a communicator has one process for each device; else COMM's sentence. */
bool syi_check_processes(const char *name, int n, sy_mesh mesh, char sentence[SYI_SENTENCE]);

/* Memory for a transport's struct; NULL: rejected with NOMEM, unless something was before. */
void *syi_transport_new(const sy_comm_options *options, size_t bytes, sy_status *status,
                        char sentence[SYI_SENTENCE]);

/* Collective: a comm over a transport on which all processes have agreed; or closes it. */
void syi_creation_make_comm(struct syi_creation *c, struct syi_common *made, sy_comm_options *options,
                            sy_comm **comm);

/* The common result of all processes, in the caller's memory for it. */
sy_status syi_creation_report(const struct syi_creation *c, const char *function);
