/*
 * See device.h.
 */
#include "device.h"

#include <dlfcn.h>
#include <string.h>

/* The name that libswitchyard loads, too. */
#define TEXT_OF(x) #x
#define NAME_OF(major, minor) "libswitchyard_cuda.so." TEXT_OF(major) "." TEXT_OF(minor)

const struct syc_tools *device_tools(const struct common *common)
{
    const char *const file =
        common->device_library ? common->device_library : NAME_OF(SY_VERSION_MAJOR, SY_VERSION_MINOR);
    void *const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    const struct syc_tools *(*entry)(void) = NULL;
    if (handle)
        *(void **)&entry = dlsym(handle, "syi_cuda_tools");
    const struct syc_tools *const tools = entry ? entry() : NULL;
    if (tools && tools->size == sizeof *tools)
        return tools;
    plain_error("%s is not of the build of this command: it has no matching syi_cuda_tools", file);
    return NULL;
}

bool device_has(const struct syc_tools *tools, const char *operator_name)
{
    for (const char *const *name = tools->operators; *name; name++)
        if (strcmp(*name, operator_name) == 0)
            return true;
    return false;
}
