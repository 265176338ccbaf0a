// Asynchronous copies in the forms that kernels write them: every thread copies one piece for each group, waits, and stores what it sees.
#include <cuda_pipeline.h>
#include <stdint.h>

constexpr int kGroups = 4, kThreads = 64;

template <int Form, int Size>
__device__ void copy(void* to, const void* from, unsigned valid) {
  uint32_t shared = uint32_t(__cvta_generic_to_shared(to));
  if constexpr (Form == 0) {
    __pipeline_memcpy_async(to, from, Size, Size - valid);
  } else if constexpr (Form == 1) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(shared), "l"(from), "n"(Size), "r"(valid) : "memory");
  } else if constexpr (Form == 2) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], %2, %3;" ::"r"(shared), "l"(from), "n"(Size), "r"(valid));
  } else {  // all or nothing, by a predicate
    asm volatile("{ .reg .pred p;\n  setp.eq.u32 p, %2, 0;\n  cp.async.ca.shared::cta.global [%0], [%1], %3, p; }" ::"r"(shared),
                 "l"(__cvta_generic_to_global(from)), "r"(valid), "n"(Size));
  }
}
template <int Form>
__device__ void commit() {
  if constexpr (Form == 0) __pipeline_commit(); else asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int Form, int Left>
__device__ void wait() {
  if constexpr (Left < 0) return;
  if constexpr (Form == 0) {
    __pipeline_wait_prior(Left);
  } else if constexpr (Left == 0) {
    asm volatile("cp.async.wait_all;" ::: "memory");
  } else {
    asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
  }
}

template <int Form, int Size, int Left>
__global__ void groups(const uint8_t* x, uint8_t* out, unsigned valid) {
  extern __shared__ __align__(16) uint8_t s[];
  uint8_t* mine = s + threadIdx.x * Size;
  for (int g = 0; g < kGroups; ++g) {
    for (int i = 0; i < Size; ++i) mine[g * kThreads * Size + i] = 7;  // what an earlier tile left
    copy<Form, Size>(mine + g * kThreads * Size, x + (g * kThreads + threadIdx.x) * Size, valid);
    commit<Form>();
  }
  wait<Form, Left>();
  __syncthreads();
  int other = (kThreads - 1 - int(threadIdx.x)) * Size;
  for (int g = 0; g < kGroups; ++g)
    for (int i = 0; i < Size; ++i) out[g * kThreads * Size + other + i] = s[g * kThreads * Size + other + i];
  __syncthreads();  // what a thread did not wait for has come once it has returned
}

template <int Form, int Size>
int run(int left, const uint8_t* x, uint8_t* out, unsigned valid) {
  size_t bytes = kGroups * kThreads * Size;
  if (left < 0) groups<Form, Size, -1><<<1, kThreads, bytes>>>(x, out, valid);
  if (left == 0) groups<Form, Size, 0><<<1, kThreads, bytes>>>(x, out, valid);
  if (left == 1) groups<Form, Size, 1><<<1, kThreads, bytes>>>(x, out, valid);
  if (left == 3) groups<Form, Size, 3><<<1, kThreads, bytes>>>(x, out, valid);
  return cudaGetLastError();
}
extern "C" int run_groups(int form, int size, int left, const uint8_t* x, uint8_t* out, unsigned valid) {
  switch (form * 100 + size) {
    case 4: return run<0, 4>(left, x, out, valid);
    case 8: return run<0, 8>(left, x, out, valid);
    case 16: return run<0, 16>(left, x, out, valid);
    case 104: return run<1, 4>(left, x, out, valid);
    case 108: return run<1, 8>(left, x, out, valid);
    case 116: return run<1, 16>(left, x, out, valid);
    case 216: return run<2, 16>(left, x, out, valid);
    case 308: return run<3, 8>(left, x, out, valid);
    case 112: return run<1, 12>(left, x, out, valid);
    case 208: return run<2, 8>(left, x, out, valid);
  }
  return -1;
}
