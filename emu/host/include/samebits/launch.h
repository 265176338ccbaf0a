// What translate.py turns launches and kernel definitions into.
//
//   k<<<g, b, s, st>>>(args)   (configure(g, b, s, st), k(args), launched())
//   __global__ void k(P p) {B} void k(P p) { static Kernel kernel{...}; if (enter(&kernel)) launch(&kernel, [=]() mutable {B}); }
//
// The call converts the arguments once, with the kernel's own overloads, deduction and default arguments; the closure holds copies of
// the parameters, and every CUDA thread gets its own copy of the closure.
#pragma once

#include "runtime_api.h"
#include "thread.h"

namespace samebits {

struct Kernel {
  const char* name;
  const char* signature;
  const char* file;
  int line;
  unsigned max_threads;               // first argument of __launch_bounds__, 0 without
  dim3 cluster;                       // of __cluster_dims__, x is 0 without
  bool large_cluster = false;         // cudaFuncAttributeNonPortableClusterSizeAllowed
  int max_dynamic_bytes = -1;         // cudaFuncAttributeMaxDynamicSharedMemorySize, -1 while not set
  unsigned static_bytes = 0;          // of __shared__ variables, as far as blocks that ran have shown
};

constexpr unsigned launch_bounds(unsigned threads = 0, unsigned = 0, unsigned = 0) { return threads; }

void configure(dim3 grid, dim3 block, size_t dynamic_bytes = 0, cudaStream_t stream = 0, SAMEBITS_SITE);
void extend(dim3 cluster, bool cooperative);  // more of the configuration just made; cluster.x 0: as the kernel says
void launched();
bool enter(Kernel*);  // false: only asked which kernel this function is
void launch_closure(Kernel*, void (*run)(void*), void* closure, size_t bytes);
Kernel* kernel_of(const void* function);

template <class F>
inline void launch(Kernel* kernel, F body) {
  launch_closure(kernel, [](void* closure) { F own(*static_cast<F*>(closure)); own(); }, &body, sizeof body);
}

}  // namespace samebits
