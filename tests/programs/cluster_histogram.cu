// A histogram whose bins are spread over the shared memory of a cluster, once by cooperative groups, once by inline PTX.
#include <cooperative_groups.h>

#include "program.h"

namespace cg = cooperative_groups;
constexpr int kBins = 96;

__global__ void by_groups(const int* x, int n, int* bins, int per_block) {
  extern __shared__ int mine[];
  cg::cluster_group cluster = cg::this_cluster();
  for (int i = threadIdx.x; i < per_block; i += blockDim.x) mine[i] = 0;
  cluster.sync();
  unsigned first = blockIdx.x / cluster.num_blocks() * cluster.num_threads() + cluster.thread_rank();
  for (int i = int(first); i < n; i += int(gridDim.x * blockDim.x)) {
    atomicAdd(cluster.map_shared_rank(&mine[x[i] % per_block], x[i] / per_block), 1);
  }
  cluster.sync();
  for (int i = threadIdx.x; i < per_block; i += blockDim.x) atomicAdd(&bins[int(cluster.block_rank()) * per_block + i], mine[i]);
}

__device__ unsigned rank_in_cluster() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__global__ void __cluster_dims__(1, 3, 1) by_ptx(const int* x, int n, int* bins) {
  __shared__ int mine[kBins / 3];
  int thread = threadIdx.x + blockIdx.y * blockDim.x;
  if (threadIdx.x < kBins / 3) mine[threadIdx.x] = 0;
  cluster_barrier();
  for (int i = thread; i < n; i += int(gridDim.y * blockDim.x)) {
    unsigned there, own = unsigned(__cvta_generic_to_shared(&mine[x[i] % (kBins / 3)]));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(x[i] / (kBins / 3)));
    asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], 1;" ::"r"(there) : "memory");
  }
  cluster_barrier();
  if (threadIdx.x < kBins / 3) atomicAdd(&bins[rank_in_cluster() * (kBins / 3) + threadIdx.x], mine[threadIdx.x]);
}

int main() {
  int n = 5000;
  std::vector<int> x(n), want(kBins);
  unsigned seed = 9;
  for (int& v : x) ++want[v = int((seed = seed * 1664525u + 1013904223u) >> 16) % kBins];
  int* in = upload(x);
  bool good = true;
  for (unsigned blocks : {1u, 2u, 8u}) {
    int* bins = upload(std::vector<int>(kBins));
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = blocks;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(8);
    config.blockDim = dim3(64);
    config.dynamicSmemBytes = kBins / blocks * sizeof(int);
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, by_groups, in, n, bins, int(kBins / blocks)));
    good = good && close(download(bins, kBins), want);
  }
  int* bins = upload(std::vector<int>(kBins));
  by_ptx<<<dim3(1, 6), 64>>>(in, n, bins);
  return verdict(good && close(download(bins, kBins), want));
}
