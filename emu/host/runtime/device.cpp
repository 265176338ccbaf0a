// Architectures, device properties, function attributes, names of errors.
#include "device.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <atomic>

namespace samebits {

namespace {

constexpr size_t K = 1024, G = K * K * K;
// CUDA C++ Programming Guide, "Compute Capabilities"; device figures from the vendors' data sheets.
constexpr Arch kArchs[] = {
    {"sm_75", "Tesla T4", 7, 5, 64 * K, 64 * K, 0, 1024, 16, 40, 4096 * K, 16 * G},
    {"sm_80", "NVIDIA A100-SXM4-80GB", 8, 0, 163 * K, 164 * K, 1 * K, 2048, 32, 108, 40960 * K, 80 * G},
    {"sm_86", "NVIDIA RTX A6000", 8, 6, 99 * K, 100 * K, 1 * K, 1536, 16, 84, 6144 * K, 48 * G},
    {"sm_89", "NVIDIA L40S", 8, 9, 99 * K, 100 * K, 1 * K, 1536, 24, 142, 98304 * K, 48 * G},
    {"sm_90", "NVIDIA H200", 9, 0, 227 * K, 228 * K, 1 * K, 2048, 32, 132, 51200 * K, 141 * G},
    {"sm_100", "NVIDIA B200", 10, 0, 227 * K, 228 * K, 1 * K, 2048, 32, 148, 129536 * K, 180 * G},
    {"sm_120", "NVIDIA RTX PRO 6000 Blackwell", 12, 0, 99 * K, 100 * K, 1 * K, 1536, 24, 188, 131072 * K, 96 * G},
};
std::atomic<const Arch*> g_arch{&kArchs[4]};

struct ErrorName {
  cudaError_t code;
  const char* name;
  const char* text;
};
#define SAMEBITS_ERROR(NAME, TEXT) {NAME, #NAME, TEXT}
constexpr ErrorName kErrors[] = {
    SAMEBITS_ERROR(cudaSuccess, "no error"),
    SAMEBITS_ERROR(cudaErrorInvalidValue, "invalid argument"),
    SAMEBITS_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    SAMEBITS_ERROR(cudaErrorInitializationError, "initialization error"),
    SAMEBITS_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    SAMEBITS_ERROR(cudaErrorInvalidSymbol, "invalid device symbol"),
    SAMEBITS_ERROR(cudaErrorInvalidDevicePointer, "invalid device pointer"),
    SAMEBITS_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    SAMEBITS_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    SAMEBITS_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    SAMEBITS_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    SAMEBITS_ERROR(cudaErrorInvalidKernelImage, "device kernel image is invalid"),
    SAMEBITS_ERROR(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    SAMEBITS_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    SAMEBITS_ERROR(cudaErrorNotReady, "device not ready"),
    SAMEBITS_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    SAMEBITS_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    SAMEBITS_ERROR(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    SAMEBITS_ERROR(cudaErrorAssert, "device-side assert triggered"),
    SAMEBITS_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    SAMEBITS_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    SAMEBITS_ERROR(cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch"),
    SAMEBITS_ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    SAMEBITS_ERROR(cudaErrorNotPermitted, "operation not permitted"),
    SAMEBITS_ERROR(cudaErrorNotSupported, "operation not supported"),
    SAMEBITS_ERROR(cudaErrorInvalidClusterSize, "cluster misconfiguration"),
    SAMEBITS_ERROR(cudaErrorUnknown, "unknown error"),
};

const ErrorName* find_error(cudaError_t code) {
  for (const ErrorName& e : kErrors) {
    if (e.code == code) return &e;
  }
  return nullptr;
}

}  // namespace

const Arch& current_arch() { return *g_arch.load(); }

std::string choose_arch(const std::string& name) {
  size_t bytes = name.find_last_not_of("af") + 1;  // sm_90a has the limits of sm_90
  std::string known;
  for (const Arch& arch : kArchs) {
    if (name.compare(0, bytes, arch.name) == 0) return g_arch = &arch, "";
    known += (known.empty() ? "" : ", ") + std::string(arch.name);
  }
  return "unknown architecture " + name + "; known are " + known;
}

// By threads, blocks and shared memory; registers are not known here.
int blocks_per_multiprocessor(const Kernel* kernel, int threads, size_t dynamic_bytes) {
  const Arch& a = current_arch();
  if (kernel == nullptr || threads < 1 || threads > 1024 || (kernel->max_threads != 0 && unsigned(threads) > kernel->max_threads)) return 0;
  size_t shared = dynamic_bytes + kernel->static_bytes;
  if (shared > shared_limit(*kernel)) return 0;
  int most = std::min(a.blocks_multiprocessor, a.threads_multiprocessor / ((threads + 31) / 32 * 32));
  if (shared != 0) most = std::min(most, int(a.shared_multiprocessor / (shared + a.shared_reserved)));
  return most;
}

}  // namespace samebits

extern "C" int samebits_set_arch(const char* name) {
  std::string wrong = samebits::choose_arch(name != nullptr ? name : "(null)");
  return wrong.empty() ? cudaSuccess : samebits::set_error(cudaErrorInvalidValue, wrong);
}

namespace samebits_api {

using samebits::Arch;
using samebits::current_arch;
using samebits::set_error;

const char* cudaGetErrorName(cudaError_t code) {
  const samebits::ErrorName* e = samebits::find_error(code);
  return e != nullptr ? e->name : "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t code) {
  const samebits::ErrorName* e = samebits::find_error(code);
  return e != nullptr ? e->text : "unrecognized error code";
}

cudaError_t cudaGetDeviceCount(int* n) { return *n = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* d) { return *d = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int d) {
  return d == 0 ? cudaSuccess : set_error(cudaErrorInvalidDevice, "device " + std::to_string(d) + " of 1");
}
cudaError_t cudaDeviceSynchronize() {
  if (samebits::active_worker() != nullptr) samebits::trap("cudaDeviceSynchronize() in device code, which CUDA 12 has no longer");
  return samebits::execution_error();
}
cudaError_t cudaDeviceReset() { return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* v) { return *v = 13000, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* v) { return *v = 13000, cudaSuccess; }

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return set_error(cudaErrorInvalidDevice, "device " + std::to_string(device) + " of 1");
  cudaDeviceProp p;
  cudaGetDeviceProperties(&p, device);
  const std::pair<cudaDeviceAttr, size_t> known[] = {
      {cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock},
      {cudaDevAttrMaxBlockDimX, p.maxThreadsDim[0]},
      {cudaDevAttrMaxBlockDimY, p.maxThreadsDim[1]},
      {cudaDevAttrMaxBlockDimZ, p.maxThreadsDim[2]},
      {cudaDevAttrMaxGridDimX, p.maxGridSize[0]},
      {cudaDevAttrMaxGridDimY, p.maxGridSize[1]},
      {cudaDevAttrMaxGridDimZ, p.maxGridSize[2]},
      {cudaDevAttrMaxSharedMemoryPerBlock, p.sharedMemPerBlock},
      {cudaDevAttrTotalConstantMemory, p.totalConstMem},
      {cudaDevAttrWarpSize, p.warpSize},
      {cudaDevAttrMaxPitch, p.memPitch},
      {cudaDevAttrMaxRegistersPerBlock, p.regsPerBlock},
      {cudaDevAttrClockRate, p.clockRate},
      {cudaDevAttrTextureAlignment, p.textureAlignment},
      {cudaDevAttrGpuOverlap, p.deviceOverlap},
      {cudaDevAttrMultiProcessorCount, p.multiProcessorCount},
      {cudaDevAttrKernelExecTimeout, p.kernelExecTimeoutEnabled},
      {cudaDevAttrIntegrated, p.integrated},
      {cudaDevAttrCanMapHostMemory, p.canMapHostMemory},
      {cudaDevAttrComputeMode, p.computeMode},
      {cudaDevAttrConcurrentKernels, p.concurrentKernels},
      {cudaDevAttrEccEnabled, p.ECCEnabled},
      {cudaDevAttrPciBusId, p.pciBusID},
      {cudaDevAttrPciDeviceId, p.pciDeviceID},
      {cudaDevAttrTccDriver, p.tccDriver},
      {cudaDevAttrMemoryClockRate, p.memoryClockRate},
      {cudaDevAttrGlobalMemoryBusWidth, p.memoryBusWidth},
      {cudaDevAttrL2CacheSize, p.l2CacheSize},
      {cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor},
      {cudaDevAttrAsyncEngineCount, p.asyncEngineCount},
      {cudaDevAttrUnifiedAddressing, p.unifiedAddressing},
      {cudaDevAttrComputeCapabilityMajor, p.major},
      {cudaDevAttrComputeCapabilityMinor, p.minor},
      {cudaDevAttrStreamPrioritiesSupported, p.streamPrioritiesSupported},
      {cudaDevAttrGlobalL1CacheSupported, p.globalL1CacheSupported},
      {cudaDevAttrLocalL1CacheSupported, p.localL1CacheSupported},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, p.sharedMemPerMultiprocessor},
      {cudaDevAttrMaxRegistersPerMultiprocessor, p.regsPerMultiprocessor},
      {cudaDevAttrManagedMemory, p.managedMemory},
      {cudaDevAttrIsMultiGpuBoard, p.isMultiGpuBoard},
      {cudaDevAttrHostNativeAtomicSupported, p.hostNativeAtomicSupported},
      {cudaDevAttrPageableMemoryAccess, p.pageableMemoryAccess},
      {cudaDevAttrConcurrentManagedAccess, p.concurrentManagedAccess},
      {cudaDevAttrComputePreemptionSupported, p.computePreemptionSupported},
      {cudaDevAttrCooperativeLaunch, p.cooperativeLaunch},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, p.sharedMemPerBlockOptin},
      {cudaDevAttrMaxBlocksPerMultiprocessor, p.maxBlocksPerMultiProcessor},
      {cudaDevAttrMaxPersistingL2CacheSize, p.persistingL2CacheMaxSize},
      {cudaDevAttrReservedSharedMemoryPerBlock, p.reservedSharedMemPerBlock},
      {cudaDevAttrMemoryPoolsSupported, 1},
      {cudaDevAttrClusterLaunch, p.clusterLaunch},
  };
  for (const auto& [named, found] : known) {
    if (named == attribute) return *value = int(found), cudaSuccess;
  }
  return set_error(cudaErrorNotSupported, "cudaDeviceGetAttribute: attribute " + std::to_string(attribute) + " is not modelled");
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (device != 0) return set_error(cudaErrorInvalidDevice, "device " + std::to_string(device) + " of 1");
  const Arch& a = current_arch();
  *p = cudaDeviceProp{};
  snprintf(p->name, sizeof p->name, "%s (samebits)", a.device);
  p->totalGlobalMem = a.memory_bytes;
  p->sharedMemPerBlock = 48 * 1024;
  p->sharedMemPerBlockOptin = a.shared_optin;
  p->sharedMemPerMultiprocessor = a.shared_multiprocessor;
  p->reservedSharedMemPerBlock = a.shared_reserved;
  p->totalConstMem = 64 * 1024;
  p->memPitch = INT_MAX;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = INT_MAX;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->major = a.major;
  p->minor = a.minor;
  p->multiProcessorCount = a.multiprocessors;
  p->maxThreadsPerMultiProcessor = a.threads_multiprocessor;
  p->maxBlocksPerMultiProcessor = a.blocks_multiprocessor;
  p->l2CacheSize = int(a.l2_bytes);
  p->concurrentKernels = p->unifiedAddressing = p->managedMemory = p->cooperativeLaunch = p->canMapHostMemory = p->concurrentManagedAccess = 1;
  p->asyncEngineCount = 3;
  p->textureAlignment = p->surfaceAlignment = 512;
  p->computePreemptionSupported = p->globalL1CacheSupported = p->localL1CacheSupported = p->deviceOverlap = p->streamPrioritiesSupported = 1;
  p->ECCEnabled = 1;
  p->clusterLaunch = a.major >= 9;
  p->clockRate = 1980000;
  p->memoryClockRate = 3201000;
  p->memoryBusWidth = 6144;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  samebits::Kernel* kernel = samebits::kernel_of(function);
  if (kernel == nullptr) return set_error(cudaErrorInvalidDeviceFunction, "cudaFuncSetAttribute of a function that is not a kernel");
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout || attribute == cudaFuncAttributeClusterSchedulingPolicyPreference) return cudaSuccess;
  if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed) {
    kernel->large_cluster = value != 0;
    return cudaSuccess;
  }
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
    return set_error(cudaErrorInvalidValue, "cudaFuncSetAttribute: attribute " + std::to_string(attribute) + " is not modelled");
  }
  size_t most = current_arch().shared_optin - std::min<size_t>(current_arch().shared_optin, kernel->static_bytes);
  if (value < 0 || size_t(value) > most) {
    return set_error(cudaErrorInvalidValue, std::string("kernel ") + kernel->name + ": " + std::to_string(value) +
                                                " bytes of dynamic shared memory, the limit of " + current_arch().name + " is " + std::to_string(most));
  }
  kernel->max_dynamic_bytes = value;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* function) {
  samebits::Kernel* kernel = samebits::kernel_of(function);
  if (kernel == nullptr) return set_error(cudaErrorInvalidDeviceFunction, "cudaFuncGetAttributes of a function that is not a kernel");
  *a = cudaFuncAttributes{};
  a->sharedSizeBytes = kernel->static_bytes;
  a->maxThreadsPerBlock = kernel->max_threads != 0 ? int(kernel->max_threads) : 1024;
  a->numRegs = 32;
  a->ptxVersion = a->binaryVersion = current_arch().major * 10 + current_arch().minor;
  a->maxDynamicSharedSizeBytes = kernel->max_dynamic_bytes >= 0 ? kernel->max_dynamic_bytes : 48 * 1024 - int(kernel->static_bytes);
  return cudaSuccess;
}

cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) { return *device = 0, cudaSuccess; }
cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  *value = limit == cudaLimitStackSize ? samebits::kStackBytes - samebits::kStackGuard : 8 * samebits::K * samebits::K;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int) { return snprintf(text, size_t(bytes), "0000:00:00.0"), cudaSuccess; }

cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }

}  // namespace samebits_api
