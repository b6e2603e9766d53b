/* The header that every Ascend program includes first: base types, the runtime, initialisation. */
#ifndef SWITCHYARD_ACLNN_ACL_H
#define SWITCHYARD_ACLNN_ACL_H

#include "acl/acl_base.h"
#include "acl/acl_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* No effect: both always succeed, and the file is not read. */
aclError aclInit(const char *configPath);
aclError aclFinalize(void);

/* The sentence of the last call that failed on this thread, once; "" when there is none. Valid until the next failure
   on this thread. */
const char *aclGetRecentErrMsg(void);

#ifdef __cplusplus
}
#endif

#endif /* SWITCHYARD_ACLNN_ACL_H */
