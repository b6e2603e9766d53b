/* How an aclnn function is marked for export. */
#ifndef SWITCHYARD_ACLNN_ACLNN_UTIL_H
#define SWITCHYARD_ACLNN_ACLNN_UTIL_H

#if defined(__GNUC__)
#define ACLNN_API __attribute__((visibility("default")))
#else
#define ACLNN_API
#endif

#endif /* SWITCHYARD_ACLNN_ACLNN_UTIL_H */
