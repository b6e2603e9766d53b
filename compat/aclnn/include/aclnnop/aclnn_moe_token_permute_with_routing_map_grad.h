#include "aclnnop/operators.h"
