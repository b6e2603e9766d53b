#ifndef SYI_FAULTS_H
#define SYI_FAULTS_H
#include <stdint.h>
struct syi_found { int32_t row, extra; int64_t batch, position, value, limit; };
#endif
