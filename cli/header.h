/*
 * The header of a safetensors file: a JSON object of one fixed form. It is read in one pass and in place: names point
 * into the text, and no tree of values is built.
 */
#ifndef SWITCHYARD_CLI_HEADER_H
#define SWITCHYARD_CLI_HEADER_H

#include "safetensors.h"

/*
 * Fills the tensors and the metadata of `file`, whose text is file->header: rejects everything that is not a header of
 * a file with `data_bytes` bytes of data, except gaps and overlaps. The file owns all memory, also on failure.
 */
bool st_parse_header(struct st_file *file, size_t header_bytes, uint64_t data_bytes,
                     struct st_message *message);

/* Sets the message and returns false. */
bool st_fail(struct st_message *message, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
