/* Initialisation of aclnn for programs that do not call aclInit; both calls have no effect. */
#ifndef SWITCHYARD_ACLNN_ACLNN_BASE_H
#define SWITCHYARD_ACLNN_ACLNN_BASE_H

#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

aclnnStatus aclnnInit(const char *configPath);
aclnnStatus aclnnFinalize(void);

#ifdef __cplusplus
}
#endif

#endif /* SWITCHYARD_ACLNN_ACLNN_BASE_H */
