/* How an aclnn function is declared: with C linkage, exported. */
#ifndef SWITCHYARD_ACLNN_ACLNN_UTIL_H
#define SWITCHYARD_ACLNN_ACLNN_UTIL_H

#if defined(__GNUC__) && defined(__cplusplus)
#define ACLNN_API extern "C" __attribute__((visibility("default")))
#elif defined(__GNUC__)
#define ACLNN_API __attribute__((visibility("default")))
#elif defined(__cplusplus)
#define ACLNN_API extern "C"
#else
#define ACLNN_API
#endif

#endif /* SWITCHYARD_ACLNN_ACLNN_UTIL_H */
