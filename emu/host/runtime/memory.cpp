// Memory, copies, streams and events. A call has completed when it returns, which is one of the orders that CUDA allows.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <map>
#include <mutex>

#include "check.h"
#include "device.h"

struct CUstream_st { unsigned flags; };
struct CUevent_st { double ms; bool recorded; };

namespace {

std::mutex memory_mutex;
size_t memory_used = 0;
struct Allocation {
  size_t bytes;
  cudaMemoryType type;
};
std::map<void*, Allocation>& allocations() {
  static auto* map = new std::map<void*, Allocation>;  // never destroyed: programs free memory at exit
  return *map;
}

using samebits::Check;
using samebits::set_error;

thread_local std::string next_name;

// With checks an allocation lies alone: what runs over its ends meets nobody else's memory, and freed memory is never used again.
void* allocate_checked(size_t bytes, const char* what, bool initialised) {
  constexpr size_t kPad = size_t(1) << 16;
  size_t total = ((bytes + 4095) & ~size_t(4095)) + 2 * kPad;
  void* p = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  char* memory = static_cast<char*>(p) + kPad;
  Check::on->add(reinterpret_cast<uintptr_t>(memory), bytes, next_name.empty() ? what : next_name, initialised)->pad = kPad;
  return memory;
}

cudaError_t allocate(void** p, size_t bytes, const char* what, cudaMemoryType type = cudaMemoryTypeDevice) {
  if (p == nullptr) return set_error(cudaErrorInvalidValue, std::string(what) + ": null pointer");
  *p = nullptr;
  if (samebits::execution_error() != cudaSuccess) return samebits::execution_error();
  if (bytes == 0) return cudaSuccess;
  void* memory = nullptr;
  if (Check::on != nullptr && bytes <= samebits::current_arch().memory_bytes) {
    memory = allocate_checked(bytes, what, type != cudaMemoryTypeDevice);
    next_name.clear();
  }
  if (memory != nullptr) {
  } else if (bytes > samebits::current_arch().memory_bytes || posix_memalign(&memory, 256, bytes) != 0) {
    return set_error(cudaErrorMemoryAllocation, std::string(what) + " of " + std::to_string(bytes) + " bytes");
  }
  // Fresh memory has no defined bytes. Filling gigabytes would take all of them from the machine: large blocks keep the system's zeros.
  if (bytes <= size_t(64) << 20) memset(memory, samebits::poison_byte(), bytes);
  std::lock_guard<std::mutex> lock(memory_mutex);
  allocations()[memory] = {bytes, type};
  memory_used += bytes;
  *p = memory;
  return cudaSuccess;
}

cudaError_t release(void* p, const char* what) {
  if (p == nullptr) return cudaSuccess;
  {
    std::lock_guard<std::mutex> lock(memory_mutex);
    auto found = allocations().find(p);
    if (found == allocations().end()) {
      std::string text = std::string(what) + " of a pointer that was not allocated, or freed before";
      if (Check::on != nullptr) Check::on->report("invalid free", text, nullptr, Check::on->site_of(__builtin_return_address(0)), nullptr);
      return set_error(cudaErrorInvalidValue, text);
    }
    memory_used -= found->second.bytes;
    allocations().erase(found);
  }
  if (Check::on != nullptr) {
    std::lock_guard<std::recursive_mutex> lock(Check::mutex);
    samebits::Region* region = Check::on->find(reinterpret_cast<uintptr_t>(p));
    if (region != nullptr && region->begin == reinterpret_cast<uintptr_t>(p)) {
      region->freed = true;
      madvise(p, (region->end - region->begin) & ~size_t(4095), MADV_DONTNEED);
      return cudaSuccess;
    }
  }
  free(p);
  return cudaSuccess;
}

// Whether bytes that begin in an allocation run over its end.
bool runs_over(const void* p, size_t bytes) {
  std::lock_guard<std::mutex> lock(memory_mutex);
  auto after = allocations().upper_bound(const_cast<void*>(p));
  if (after == allocations().begin()) return false;
  const auto& [begin, allocation] = *std::prev(after);
  size_t offset = size_t(static_cast<const char*>(p) - static_cast<char*>(begin));
  return offset < allocation.bytes && bytes > allocation.bytes - offset;
}

// Copies and sets; `caller`: the code address that reports name.
cudaError_t copy(void* dst, const void* src, size_t n, cudaMemcpyKind kind, const void* caller) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) {
    return set_error(cudaErrorInvalidMemcpyDirection, "cudaMemcpy: direction " + std::to_string(kind));
  }
  if (n == 0) return cudaSuccess;
  if (dst == nullptr || src == nullptr) return set_error(cudaErrorInvalidValue, "cudaMemcpy: null pointer");
  if (samebits::execution_error() != cudaSuccess) return samebits::execution_error();
  if (Check::on != nullptr) Check::on->host_copy(reinterpret_cast<uintptr_t>(dst), reinterpret_cast<uintptr_t>(src), n, caller);
  if (runs_over(dst, n) || runs_over(src, n)) {
    return set_error(cudaErrorInvalidValue, "cudaMemcpy: " + std::to_string(n) + " bytes run over the end of an allocation");
  }
  memmove(dst, src, n);
  return cudaSuccess;
}
cudaError_t copy(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width, size_t height, cudaMemcpyKind kind, const void* caller) {
  if (width > dst_pitch || width > src_pitch) return set_error(cudaErrorInvalidPitchValue, "cudaMemcpy2D: a pitch is less than the width");
  for (size_t row = 0; row < height; ++row) {
    cudaError_t code = copy(static_cast<char*>(dst) + row * dst_pitch, static_cast<const char*>(src) + row * src_pitch, width, kind, caller);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}
cudaError_t copy(const cudaMemcpy3DParms& p, const void* caller) {
  const cudaPitchedPtr &to = p.dstPtr, &from = p.srcPtr;
  if (p.srcArray != nullptr || p.dstArray != nullptr || to.ptr == nullptr || from.ptr == nullptr) {
    return set_error(cudaErrorInvalidValue, "cudaMemcpy3D: its source and its target are no pitched pointers");
  }
  auto at = [](const cudaPitchedPtr& q, const cudaPos& pos, size_t layer) {
    return static_cast<char*>(q.ptr) + ((pos.z + layer) * q.ysize + pos.y) * q.pitch + pos.x;
  };
  for (size_t z = 0; z < p.extent.depth; ++z) {
    cudaError_t code = copy(at(to, p.dstPos, z), to.pitch, at(from, p.srcPos, z), from.pitch, p.extent.width, p.extent.height, p.kind, caller);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}
cudaError_t set(void* p, int value, size_t n, const void* caller) {
  if (n == 0) return cudaSuccess;
  if (p == nullptr) return set_error(cudaErrorInvalidValue, "cudaMemset: null pointer");
  if (samebits::execution_error() != cudaSuccess) return samebits::execution_error();
  if (Check::on != nullptr) Check::on->host_write(reinterpret_cast<uintptr_t>(p), n, "cudaMemset", caller);
  if (runs_over(p, n)) return set_error(cudaErrorInvalidValue, "cudaMemset: " + std::to_string(n) + " bytes run over the end of an allocation");
  memset(p, value, n);
  return cudaSuccess;
}
cudaError_t set(void* p, size_t pitch, int value, size_t width, size_t height, const void* caller) {
  for (size_t row = 0; row < height; ++row) {
    cudaError_t code = set(static_cast<char*>(p) + row * pitch, value, width, caller);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}
cudaError_t set(cudaPitchedPtr p, int value, cudaExtent e, const void* caller) {
  for (size_t z = 0; z < e.depth; ++z) {
    cudaError_t code = set(static_cast<char*>(p.ptr) + z * p.ysize * p.pitch, p.pitch, value, e.width, e.height, caller);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}
// On a stream: kept for later where the stream is being captured.
template <class F>
cudaError_t on(cudaStream_t stream, F work) {
  return samebits::capture(stream, [work] { work(); }) ? cudaSuccess : work();
}

}  // namespace

#define CALLER __builtin_return_address(0)

namespace samebits {
void name_allocation(const char* name) { next_name = name; }
}  // namespace samebits

namespace samebits_api {

cudaError_t cudaMalloc(void** p, size_t n) { return allocate(p, n, "cudaMalloc"); }
cudaError_t cudaMallocHost(void** p, size_t n) { return allocate(p, n, "cudaMallocHost", cudaMemoryTypeHost); }
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) { return allocate(p, n, "cudaHostAlloc", cudaMemoryTypeHost); }
cudaError_t cudaMallocManaged(void** p, size_t n, unsigned) { return allocate(p, n, "cudaMallocManaged", cudaMemoryTypeManaged); }
cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t) { return allocate(p, n, "cudaMallocAsync"); }
cudaError_t cudaFree(void* p) { return release(p, "cudaFree"); }
cudaError_t cudaFreeHost(void* p) { return release(p, "cudaFreeHost"); }
cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return release(p, "cudaFreeAsync"); }

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  std::lock_guard<std::mutex> lock(memory_mutex);
  *total = samebits::current_arch().memory_bytes;
  *free_bytes = *total - (memory_used < *total ? memory_used : *total);
  return cudaSuccess;
}

cudaError_t cudaMallocPitch(void** p, size_t* pitch, size_t width, size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return allocate(p, *pitch * height, "cudaMallocPitch");
}
cudaError_t cudaMalloc3D(cudaPitchedPtr* p, cudaExtent e) {
  p->xsize = e.width;
  p->ysize = e.height;
  p->pitch = (e.width + 511) / 512 * 512;
  return allocate(&p->ptr, p->pitch * e.height * e.depth, "cudaMalloc3D");
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  std::lock_guard<std::mutex> lock(memory_mutex);
  auto after = allocations().upper_bound(const_cast<void*>(p));
  auto before = after != allocations().begin() ? std::prev(after) : allocations().end();
  bool ours = before != allocations().end() && static_cast<const char*>(p) < static_cast<char*>(before->first) + before->second.bytes;
  void* here = const_cast<void*>(p);
  cudaMemoryType type = ours ? before->second.type : cudaMemoryTypeUnregistered;
  *a = {type, 0, ours ? here : nullptr, type != cudaMemoryTypeDevice ? here : nullptr};
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* p, size_t n, unsigned) {
  if (Check::on != nullptr) Check::on->add(reinterpret_cast<uintptr_t>(p), n, "registered host memory", true);
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* p) {
  if (Check::on != nullptr) Check::on->forget(reinterpret_cast<uintptr_t>(p));
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* dst, const void* src, size_t n, cudaMemcpyKind kind) { return copy(dst, src, n, kind, CALLER); }
cudaError_t cudaMemcpy2D(void* d, size_t dp, const void* s, size_t sp, size_t w, size_t h, cudaMemcpyKind kind) {
  return copy(d, dp, s, sp, w, h, kind, CALLER);
}
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* p) { return copy(*p, CALLER); }
cudaError_t cudaMemset(void* p, int value, size_t n) { return set(p, value, n, CALLER); }
cudaError_t cudaMemset2D(void* p, size_t pitch, int value, size_t w, size_t h) { return set(p, pitch, value, w, h, CALLER); }
cudaError_t cudaMemset3D(cudaPitchedPtr p, int value, cudaExtent e) { return set(p, value, e, CALLER); }
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t n, cudaMemcpyKind kind, cudaStream_t stream) {
  return on(stream, [=, caller = CALLER] { return copy(dst, src, n, kind, caller); });
}
cudaError_t cudaMemcpy2DAsync(void* d, size_t dp, const void* s, size_t sp, size_t w, size_t h, cudaMemcpyKind kind, cudaStream_t stream) {
  return on(stream, [=, caller = CALLER] { return copy(d, dp, s, sp, w, h, kind, caller); });
}
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* p, cudaStream_t stream) {
  return on(stream, [what = *p, caller = CALLER] { return copy(what, caller); });
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t n, cudaStream_t stream) {
  return on(stream, [=, caller = CALLER] { return set(p, value, n, caller); });
}
cudaError_t cudaMemset2DAsync(void* p, size_t pitch, int value, size_t w, size_t h, cudaStream_t stream) {
  return on(stream, [=, caller = CALLER] { return set(p, pitch, value, w, h, caller); });
}
cudaError_t cudaMemset3DAsync(cudaPitchedPtr p, int value, cudaExtent e, cudaStream_t stream) {
  return on(stream, [=, caller = CALLER] { return set(p, value, e, caller); });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t f, void* data) {
  return on(stream, [=] { return f(data), cudaSuccess; });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) { return *s = new CUstream_st{flags}, cudaSuccess; }
cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithFlags(s, cudaStreamDefault); }
cudaError_t cudaStreamGetFlags(cudaStream_t s, unsigned* flags) { return *flags = s != nullptr ? s->flags : 0, cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t s) { return delete s, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return samebits::execution_error(); }
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) { return samebits::capture_wait(stream, event), cudaSuccess; }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return *e = new CUevent_st{0, false}, cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { return delete e, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t stream) {
  if (e == nullptr) return set_error(cudaErrorInvalidResourceHandle, "cudaEventRecord: null event");
  samebits::capture_event(e, stream);
  e->ms = samebits::now_ms();
  e->recorded = true;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return samebits::execution_error(); }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  if (a == nullptr || b == nullptr || !a->recorded || !b->recorded) {
    return set_error(cudaErrorInvalidResourceHandle, "cudaEventElapsedTime: an event was not recorded");
  }
  *ms = float(b->ms - a->ms);
  return cudaSuccess;
}

}  // namespace samebits_api
