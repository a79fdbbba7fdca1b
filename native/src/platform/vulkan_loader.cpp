// Opens libvulkan at the first call, so that a library built for Vulkan also loads on a machine without it.
//
// These are the only functions of Vulkan that llama.cpp calls by name; it asks vkGetInstanceProcAddr for all others.
// Without libvulkan, vkGetInstanceProcAddr finds nothing. llama.cpp then reports no Vulkan device, and calls none of
// the other functions.

#include <dlfcn.h>
#include <vulkan/vulkan_core.h>

namespace {

template <typename Function>
Function find(const char * name) {
    static void * const library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

extern "C" {

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance, const char * name) {
    static const auto function = find<PFN_vkGetInstanceProcAddr>("vkGetInstanceProcAddr");
    return function == nullptr ? nullptr : function(instance, name);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetDeviceProcAddr(VkDevice device, const char * name) {
    static const auto function = find<PFN_vkGetDeviceProcAddr>("vkGetDeviceProcAddr");
    return function(device, name);
}

VKAPI_ATTR void VKAPI_CALL vkGetPhysicalDeviceFeatures2(VkPhysicalDevice device, VkPhysicalDeviceFeatures2 * features) {
    static const auto function = find<PFN_vkGetPhysicalDeviceFeatures2>("vkGetPhysicalDeviceFeatures2");
    function(device, features);
}

VKAPI_ATTR void VKAPI_CALL vkCmdCopyBuffer(VkCommandBuffer commands, VkBuffer source, VkBuffer target,
                                           uint32_t n_regions, const VkBufferCopy * regions) {
    static const auto function = find<PFN_vkCmdCopyBuffer>("vkCmdCopyBuffer");
    function(commands, source, target, n_regions, regions);
}

}  // extern "C"
