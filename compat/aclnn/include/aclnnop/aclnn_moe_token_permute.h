#include "aclnnop/operators.h" /* which declares the operator of this name */
