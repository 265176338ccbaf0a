// Kernels that must fail, each with a text that leads to the cause, and that must not take the process with them.
#include <assert.h>
#include <cuda_runtime.h>

#include <stdexcept>

__global__ void divergent(int* out) {
  if (threadIdx.x < 32) {
    __syncthreads();  // line 9
  } else {
    __syncthreads();  // line 11
  }
  out[threadIdx.x] = 1;
}
__global__ void missing_lane(int* out) {
  int v = threadIdx.x;
  if (threadIdx.x != 5) v = __shfl_xor_sync(0xFFFFFFFFu, v, 1);  // line 17
  __syncthreads();                                               // line 18
  out[threadIdx.x] = v;
}
__global__ void crossed(int* out) {
  if (threadIdx.x % 2) {
    out[threadIdx.x] = __ballot_sync(0xFFFFFFFFu, 1);
  } else {
    out[threadIdx.x] = __any_sync(0xFFFFFFFFu, 1);
  }
}
__global__ void foreign(int* out) { out[threadIdx.x] = __shfl_sync(0xFFFFFFFEu, 1, 0); }
__global__ void odd_width(int* out) { out[threadIdx.x] = __shfl_sync(0xFFFFFFFFu, 1, 0, 12); }
__global__ void wild(int* out) { *(volatile int*)(threadIdx.x == 33 ? nullptr : out) = 1; }
__global__ void misaligned(float* out) {
  __shared__ float4 a[4];
  a[threadIdx.x % 4] = make_float4(1, 2, 3, 4);
  __syncthreads();
  reinterpret_cast<float4*>(out + 1)[0] = a[threadIdx.x % 4];
}
__device__ int deep(volatile int* p, int n) {
  volatile int local[1000];
  local[n % 1000] = *p;
  return n <= 0 ? local[0] : deep(local, n - 1) + local[n % 1000];
}
__global__ void recursion(int* out) { out[0] = deep(out, 1000000); }
__global__ void division(int* out, int zero) { out[threadIdx.x] = 7 / (int(threadIdx.x) - 3 + zero); }
__global__ void throwing(int* out) { if (*out == 0) throw std::runtime_error("no reason"); }
__global__ void asserting(int* out) { assert(out[0] == 12345); }
__global__ void one_arrival_missing(int* out) {
  __shared__ unsigned long long bar;
  unsigned at = unsigned(__cvta_generic_to_shared(&bar)), done = 0;
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 2; mbarrier.arrive.shared.b64 _, [%0];" ::"r"(at));
  __syncthreads();
  while (!done) {
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at));
    if (!done) __nanosleep(100);
  }
  *out = 1;
}
__global__ void too_few_at_a_barrier(int* out) {
  if (threadIdx.x < 32) asm volatile("bar.sync 3, 64;");
  *out = 1;
}
__global__ void nested(int* out);
__global__ void nested(int* out) { if (*out == 77) return; nested<<<1, 1>>>(out); }
__global__ void fine(int* out) { out[threadIdx.x] = threadIdx.x; }

extern "C" int fail(int which, int* out) {
  switch (which) {
    case 0: divergent<<<2, 64>>>(out); break;
    case 1: missing_lane<<<2, 64>>>(out); break;
    case 2: crossed<<<1, 32>>>(out); break;
    case 3: foreign<<<1, 32>>>(out); break;
    case 4: odd_width<<<1, 32>>>(out); break;
    case 5: wild<<<1, 64>>>(out); break;
    case 6: misaligned<<<1, 32>>>(reinterpret_cast<float*>(out)); break;
    case 7: recursion<<<1, 2>>>(out); break;
    case 8: division<<<1, 32>>>(out, 0); break;
    case 9: throwing<<<1, 1>>>(out); break;
    case 10: asserting<<<1, 1>>>(out); break;
    case 11: nested<<<1, 1>>>(out); break;
    case 13: one_arrival_missing<<<1, 64>>>(out); break;
    case 14: too_few_at_a_barrier<<<1, 64>>>(out); break;
    case 12: fine(out); break;  // no configuration
    default: fine<<<1, 64>>>(out); break;
  }
  return cudaGetLastError();
}
