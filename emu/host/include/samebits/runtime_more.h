// The rest of the CUDA runtime API that host code of whole programs uses.
#pragma once

#include "launch.h"

enum cudaLimit {
  cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize, cudaLimitDevRuntimeSyncDepth, cudaLimitDevRuntimePendingLaunchCount,
  cudaLimitMaxL2FetchGranularity, cudaLimitPersistingL2CacheSize
};
enum cudaComputeMode { cudaComputeModeDefault, cudaComputeModeExclusive, cudaComputeModeProhibited, cudaComputeModeExclusiveProcess };
enum cudaSharedCarveout { cudaSharedmemCarveoutDefault = -1, cudaSharedmemCarveoutMaxL1 = 0, cudaSharedmemCarveoutMaxShared = 100 };
enum cudaSharedMemConfig { cudaSharedMemBankSizeDefault, cudaSharedMemBankSizeFourByte, cudaSharedMemBankSizeEightByte };
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
enum cudaMemoryAdvise {
  cudaMemAdviseSetReadMostly = 1, cudaMemAdviseUnsetReadMostly, cudaMemAdviseSetPreferredLocation, cudaMemAdviseUnsetPreferredLocation,
  cudaMemAdviseSetAccessedBy, cudaMemAdviseUnsetAccessedBy,
};
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void *devicePointer, *hostPointer;
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive, cudaStreamCaptureStatusInvalidated };
typedef struct CUgraph_st* cudaGraph_t;
typedef struct CUgraphExec_st* cudaGraphExec_t;
typedef struct CUgraphNode_st* cudaGraphNode_t;
typedef struct CUmemPoolHandle_st* cudaMemPool_t;
enum cudaMemLocationType { cudaMemLocationTypeInvalid, cudaMemLocationTypeDevice, cudaMemLocationTypeHost };
struct cudaMemLocation {
  cudaMemLocationType type;
  int id;
};
enum cudaMemAllocationType { cudaMemAllocationTypeInvalid, cudaMemAllocationTypePinned };
enum cudaMemAllocationHandleType { cudaMemHandleTypeNone };
struct cudaMemPoolProps {
  cudaMemAllocationType allocType;
  cudaMemAllocationHandleType handleTypes;
  cudaMemLocation location;
  void* win32SecurityAttributes;
  size_t maxSize;
  unsigned short usage;
};
enum cudaMemPoolAttr {
  cudaMemPoolReuseFollowEventDependencies = 1, cudaMemPoolReuseAllowOpportunistic, cudaMemPoolReuseAllowInternalDependencies,
  cudaMemPoolAttrReleaseThreshold, cudaMemPoolAttrReservedMemCurrent, cudaMemPoolAttrReservedMemHigh, cudaMemPoolAttrUsedMemCurrent,
  cudaMemPoolAttrUsedMemHigh,
};
typedef void (*cudaHostFn_t)(void*);
typedef void (*cudaStreamCallback_t)(cudaStream_t, cudaError_t, void*);
#define cudaCpuDeviceId (-1)
#define cudaHostRegisterDefault 0x0
#define cudaHostRegisterPortable 0x1
#define cudaHostRegisterMapped 0x2
#define cudaMemAttachHost 0x2
#define cudaMemAttachSingle 0x4
#define cudaDeviceScheduleAuto 0x0
#define cudaDeviceScheduleSpin 0x1
#define cudaDeviceScheduleBlockingSync 0x4
#define cudaDeviceMapHost 0x8
#define CUDART_VERSION 13000
#define CUDA_VERSION 13000
#define CUDART_CB

enum cudaLaunchAttributeID {
  cudaLaunchAttributeIgnore, cudaLaunchAttributeAccessPolicyWindow, cudaLaunchAttributeCooperative, cudaLaunchAttributeSynchronizationPolicy,
  cudaLaunchAttributeClusterDimension, cudaLaunchAttributeClusterSchedulingPolicyPreference, cudaLaunchAttributeProgrammaticStreamSerialization,
  cudaLaunchAttributeProgrammaticEvent, cudaLaunchAttributePriority, cudaLaunchAttributeMemSyncDomainMap, cudaLaunchAttributeMemSyncDomain,
};
enum cudaClusterSchedulingPolicy {
  cudaClusterSchedulingPolicyDefault, cudaClusterSchedulingPolicySpread, cudaClusterSchedulingPolicyLoadBalancing,
};
enum cudaAccessProperty { cudaAccessPropertyNormal, cudaAccessPropertyStreaming, cudaAccessPropertyPersisting };
struct cudaAccessPolicyWindow {
  void* base_ptr;
  size_t num_bytes;
  float hitRatio;
  cudaAccessProperty hitProp, missProp;
};
union cudaLaunchAttributeValue {
  char pad[64];
  cudaAccessPolicyWindow accessPolicyWindow;
  int cooperative, priority, programmaticStreamSerializationAllowed, syncPolicy, memSyncDomain;
  struct { unsigned x, y, z; } clusterDim;
  cudaClusterSchedulingPolicy clusterSchedulingPolicyPreference;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

namespace samebits {
template <class T>
struct At {  // an argument that knows the line of the call, where a default argument cannot follow
  T value;
  const char* file;
  int line;
  At(T v, const char* f = __builtin_FILE(), int l = __builtin_LINE()) : value(v), file(f), line(l) {}
};
bool configure(const cudaLaunchConfig_t&, const char* file, int line);  // false: an attribute is not modelled, which is the last error
int cluster_limit(const Kernel&);                          // blocks of a cluster
cudaError_t most_clusters(int*, const Kernel*, const cudaLaunchConfig_t&);
cudaError_t last_launch();
int blocks_per_multiprocessor(const Kernel*, int threads, size_t dynamic_bytes);

template <size_t... I>
struct Indices {};
template <size_t N, size_t... I>
struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <size_t... I>
struct MakeIndices<0, I...> { typedef Indices<I...> type; };
template <class T>
struct Plain { typedef T type; };
template <class T>
struct Plain<T&> { typedef T type; };
template <class T>
struct Plain<const T> { typedef T type; };
template <class... P, size_t... I>
inline void call_with(void (*f)(P...), void** args, Indices<I...>) {
  (void)args;
  f(*static_cast<typename Plain<P>::type*>(args[I])...);
}

void name_allocation(const char* name);
template <class T>
inline T&& named(const char* name, T&& pointer) {  // the first argument of cudaMalloc and the like: reports name what it was called
  name_allocation(name);
  return static_cast<T&&>(pointer);
}
}  // namespace samebits

namespace samebits_api {

cudaError_t cudaMallocPitch(void**, size_t* pitch, size_t width, size_t height);
cudaError_t cudaMemcpy2D(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width, size_t height, cudaMemcpyKind);
cudaError_t cudaMemset2D(void*, size_t pitch, int value, size_t width, size_t height);
struct cudaExtent { size_t width, height, depth; };  // of linear memory: bytes, rows, layers
struct cudaPos { size_t x, y, z; };
struct cudaPitchedPtr {
  void* ptr;
  size_t pitch, xsize, ysize;
};
struct cudaMemcpy3DParms {
  void* srcArray;  // there are no arrays of textures
  cudaPos srcPos;
  cudaPitchedPtr srcPtr;
  void* dstArray;
  cudaPos dstPos;
  cudaPitchedPtr dstPtr;
  cudaExtent extent;
  cudaMemcpyKind kind;
};
inline cudaExtent make_cudaExtent(size_t width, size_t height, size_t depth) { return {width, height, depth}; }
inline cudaPos make_cudaPos(size_t x, size_t y, size_t z) { return {x, y, z}; }
inline cudaPitchedPtr make_cudaPitchedPtr(void* p, size_t pitch, size_t width, size_t height) { return {p, pitch, width, height}; }
cudaError_t cudaMalloc3D(cudaPitchedPtr*, cudaExtent);
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms*);
cudaError_t cudaMemset3D(cudaPitchedPtr, int value, cudaExtent);
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms*, cudaStream_t = 0);
cudaError_t cudaMemset3DAsync(cudaPitchedPtr, int value, cudaExtent, cudaStream_t = 0);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes*, const void*);
cudaError_t cudaHostRegister(void*, size_t, unsigned flags);
cudaError_t cudaHostUnregister(void*);
cudaError_t cudaChooseDevice(int*, const cudaDeviceProp*);
cudaError_t cudaDeviceGetLimit(size_t*, cudaLimit);
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device);

cudaError_t cudaMemcpy2DAsync(void* d, size_t dp, const void* s, size_t sp, size_t w, size_t h, cudaMemcpyKind k, cudaStream_t = 0);
cudaError_t cudaMemset2DAsync(void* p, size_t pitch, int v, size_t w, size_t h, cudaStream_t = 0);
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t, void* data);
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode);
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*);
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus*);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long flags = 0);
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* e, cudaGraph_t g, cudaGraphNode_t*, char*, size_t) { return cudaGraphInstantiate(e, g, 0ull); }
inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* e, cudaGraph_t g, unsigned long long flags) { return cudaGraphInstantiate(e, g, flags); }
inline cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t* count);
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphDestroy(cudaGraph_t);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t);
template <class T>
inline cudaError_t cudaMallocPitch(T** p, size_t* pitch, size_t w, size_t h) { return cudaMallocPitch(reinterpret_cast<void**>(p), pitch, w, h); }
template <class T>
inline cudaError_t cudaHostGetDevicePointer(T** device, void* host, unsigned) { return *device = static_cast<T*>(host), cudaSuccess; }
template <class T>
inline cudaError_t cudaMallocHost(T** p, size_t n, unsigned) { return cudaMallocHost(reinterpret_cast<void**>(p), n); }
inline cudaError_t cudaMemPrefetchAsync(const void*, size_t, int, cudaStream_t = 0) { return cudaSuccess; }
inline cudaError_t cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, unsigned, cudaStream_t = 0) { return cudaSuccess; }
inline cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, int) { return cudaSuccess; }
inline cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
inline cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* config) { return *config = cudaSharedMemBankSizeFourByte, cudaSuccess; }
template <class F>
inline cudaError_t cudaFuncSetSharedMemConfig(F, cudaSharedMemConfig) { return cudaSuccess; }
inline cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
inline cudaError_t cudaGetDeviceFlags(unsigned* flags) { return *flags = 0, cudaSuccess; }
inline cudaError_t cudaHostGetFlags(unsigned* flags, void*) { return *flags = 0, cudaSuccess; }
inline cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) { return *config = cudaFuncCachePreferNone, cudaSuccess; }
inline cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaErrorInvalidDevice; }
inline cudaError_t cudaDeviceDisablePeerAccess(int) { return cudaErrorInvalidDevice; }
inline cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t n) { return cudaMemcpy(to, from, n, cudaMemcpyDeviceToDevice); }
inline cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t n, cudaStream_t s = 0) {
  return cudaMemcpyAsync(to, from, n, cudaMemcpyDeviceToDevice, s);
}
inline cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) { return *priority = 0, cudaSuccess; }
inline cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void*, size_t = 0, unsigned = 0) { return cudaSuccess; }
cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned* flags);
inline cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) { return *pool = nullptr, cudaSuccess; }
inline cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int) { return *pool = nullptr, cudaSuccess; }
inline cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
inline cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) { return *pool = nullptr, cudaSuccess; }
inline cudaError_t cudaMemPoolDestroy(cudaMemPool_t) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetMemPool(int, cudaMemPool_t) { return cudaSuccess; }
inline cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
template <class T>
inline cudaError_t cudaMallocFromPoolAsync(T** p, size_t n, cudaMemPool_t, cudaStream_t s) { return cudaMallocAsync(p, n, s); }
typedef cudaLaunchAttributeID cudaStreamAttrID;
typedef cudaLaunchAttributeValue cudaStreamAttrValue;
#define cudaStreamAttributeAccessPolicyWindow cudaLaunchAttributeAccessPolicyWindow
inline cudaError_t cudaStreamSetAttribute(cudaStream_t, cudaStreamAttrID, const cudaStreamAttrValue*) { return cudaSuccess; }
inline cudaError_t cudaCtxResetPersistingL2Cache() { return cudaSuccess; }
inline cudaError_t cudaStreamGetDevice(cudaStream_t, int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaInitDevice(int, unsigned, unsigned) { return cudaSuccess; }
inline cudaError_t cudaThreadExit() { return cudaDeviceReset(); }
inline cudaError_t cudaThreadSynchronize() { return cudaDeviceSynchronize(); }
inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }
inline cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 0, cudaSuccess; }
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -5, cudaSuccess; }
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int) { return cudaStreamCreateWithFlags(s, flags); }
inline cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void* data, unsigned) { return f(s, cudaSuccess, data), cudaSuccess; }
inline cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s = 0, unsigned = 0) { return cudaEventRecord(e, s); }

template <class T>
inline cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* src, size_t n, size_t offset = 0, cudaMemcpyKind k = cudaMemcpyHostToDevice,
                                           cudaStream_t = 0) {
  return cudaMemcpyToSymbol(symbol, src, n, offset, k);
}
template <class T>
inline cudaError_t cudaMemcpyFromSymbolAsync(void* dst, const T& symbol, size_t n, size_t offset = 0, cudaMemcpyKind k = cudaMemcpyDeviceToHost,
                                             cudaStream_t = 0) {
  return cudaMemcpyFromSymbol(dst, symbol, n, offset, k);
}
template <class P, class T>
inline cudaError_t cudaGetSymbolAddress(P** p, T& symbol) { return cudaGetSymbolAddress(reinterpret_cast<void**>(p), symbol); }
template <class T>
inline cudaError_t cudaGetSymbolSize(size_t* n, const T&) { return *n = sizeof(T), cudaSuccess; }

template <class... P>
inline cudaError_t cudaLaunchKernel(void (*f)(P...), dim3 grid, dim3 block, void** args, size_t dynamic_bytes = 0, cudaStream_t stream = 0, SAMEBITS_SITE) {
  ::samebits::configure(grid, block, dynamic_bytes, stream, file, line);
  ::samebits::call_with(f, args, typename ::samebits::MakeIndices<sizeof...(P)>::type());
  ::samebits::launched();
  return ::samebits::last_launch();
}
template <class... P>
inline cudaError_t cudaLaunchCooperativeKernel(void (*f)(P...), dim3 grid, dim3 block, void** args, size_t dynamic_bytes = 0, cudaStream_t stream = 0,
                                               SAMEBITS_SITE) {
  ::samebits::configure(grid, block, dynamic_bytes, stream, file, line);
  ::samebits::extend(dim3(0), true);
  ::samebits::call_with(f, args, typename ::samebits::MakeIndices<sizeof...(P)>::type());
  ::samebits::launched();
  return ::samebits::last_launch();
}

// The arguments are converted as in a call. All attributes but two change no result.
template <class... P, class... A>
inline cudaError_t cudaLaunchKernelEx(::samebits::At<const cudaLaunchConfig_t*> config, void (*f)(P...), A&&... args) {
  if (!::samebits::configure(*config.value, config.file, config.line)) return cudaPeekAtLastError();
  f(static_cast<A&&>(args)...);
  ::samebits::launched();
  return ::samebits::last_launch();
}
template <class... P>
inline cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, void (*f)(P...), void** args, SAMEBITS_SITE) {
  if (!::samebits::configure(*config, file, line)) return cudaPeekAtLastError();
  ::samebits::call_with(f, args, typename ::samebits::MakeIndices<sizeof...(P)>::type());
  ::samebits::launched();
  return ::samebits::last_launch();
}

template <class F>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, F* f, int threads, size_t dynamic_bytes) {
  const ::samebits::Kernel* kernel = ::samebits::kernel_of(reinterpret_cast<const void*>(f));
  *blocks = ::samebits::blocks_per_multiprocessor(kernel, threads, dynamic_bytes);
  return kernel != nullptr ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}
template <class F>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, F* f, int threads, size_t dynamic_bytes, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, f, threads, dynamic_bytes);
}
template <class F>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, F* f, size_t dynamic_bytes = 0, int limit = 0) {
  cudaFuncAttributes a;
  cudaError_t code = cudaFuncGetAttributes(&a, reinterpret_cast<const void*>(f));
  if (code != cudaSuccess) return code;
  *block = limit > 0 && limit < a.maxThreadsPerBlock ? limit : a.maxThreadsPerBlock;
  int blocks = 0, multiprocessors = 0;
  code = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, *block, dynamic_bytes);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  *grid = blocks * multiprocessors;
  return code;
}
template <class F, class Bytes>
inline cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* grid, int* block, F* f, Bytes bytes_of, int limit = 0) {
  cudaError_t code = cudaOccupancyMaxPotentialBlockSize(grid, block, f, 0, limit);
  int best = 0, multiprocessors = 0, blocks = 0;
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  for (int threads = *block / 32 * 32; code == cudaSuccess && threads > 0; threads -= 32) {  // the most threads on a multiprocessor
    code = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, threads, size_t(bytes_of(threads)));
    if (blocks * threads > best) best = blocks * threads, *block = threads, *grid = blocks * multiprocessors;
  }
  return code;
}
template <class F>
inline cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, F* f, const cudaLaunchConfig_t* config) {
  return ::samebits::most_clusters(clusters, ::samebits::kernel_of(reinterpret_cast<const void*>(f)), *config);
}
template <class F>
inline cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, F* f, const cudaLaunchConfig_t*) {
  const ::samebits::Kernel* kernel = ::samebits::kernel_of(reinterpret_cast<const void*>(f));
  *size = kernel != nullptr ? ::samebits::cluster_limit(*kernel) : 0;
  return kernel != nullptr ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}

}  // namespace samebits_api
