// Clusters: their geometry, their barrier, shared memory of the others, and launches at their limits. Valid CUDA for sm_90.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

struct Place {
  unsigned rank, blocks, thread_rank, threads, x, y, z, cluster_x, cluster_y, found;
};
__global__ void places(Place* out) {
  __shared__ int s;
  cg::cluster_group c = cg::this_cluster();
  if (c.block_rank() % 2 == 1) {  // the blocks see their variables in different orders
    __shared__ int other;
    other = 3;
    (void)other;
  }
  unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  if (threadIdx.x == 0) s = int(block);
  c.sync();
  int* next = c.map_shared_rank(&s, int((c.block_rank() + 1) % c.num_blocks()));
  if (threadIdx.x == blockDim.x - 1) {
    dim3 i = c.block_index(), d = c.dim_blocks();
    out[block] = {c.block_rank(), c.num_blocks(), c.thread_rank(), c.num_threads(), i.x, i.y, i.z, d.x, d.y, unsigned(*next)};
    if (c.query_shared_rank(next) != (c.block_rank() + 1) % c.num_blocks()) out[block].found = ~0u;
  }
  c.sync();
}

// Blocks hand a token round the cluster, each after its neighbour: barriers between, threads that returned are missed by nobody.
__global__ void __cluster_dims__(4) ring(int* out, int rounds) {
  __shared__ int token[2];
  cg::cluster_group c = cg::this_cluster();
  if (threadIdx.x > 40) return;
  if (threadIdx.x == 0) token[0] = int(c.block_rank()) + 1;
  c.sync();
  for (int r = 0; r < rounds; ++r) {
    if (threadIdx.x == 0) *c.map_shared_rank(&token[(r + 1) % 2], int((c.block_rank() + 1) % 4)) = token[r % 2] * 3 + r;
    auto arrival = c.barrier_arrive();
    c.barrier_wait(static_cast<decltype(arrival)&&>(arrival));
  }
  if (threadIdx.x == 40) out[blockIdx.x] = token[rounds % 2];
}
__global__ void __cluster_dims__(2) misused(int which) {
  __shared__ int s;
  cg::cluster_group c = cg::this_cluster();
  switch (which) {
    case 0: c.barrier_arrive(); c.barrier_arrive(); break;
    case 1: c.barrier_wait(); break;
    case 2: *c.map_shared_rank(&s, 2) = 1; break;
    case 3: if (c.block_rank() == 0) c.sync(); else __syncthreads(); break;  // one returns: the other waits for nobody
    case 4: if (threadIdx.x < 32) c.sync(); else __syncthreads(); break;
  }
}
template <class... P, class... A>
static int start(void (*kernel)(P...), dim3 grid, dim3 block, dim3 cluster, A... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = cluster.x;
  attributes[1].val.clusterDim.y = cluster.y;
  attributes[1].val.clusterDim.z = cluster.z;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.attrs = attributes;
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

extern "C" int run_places(unsigned gx, unsigned gy, unsigned gz, unsigned cx, unsigned cy, unsigned cz, int large, Place* out) {
  cudaFuncSetAttribute(places, cudaFuncAttributeNonPortableClusterSizeAllowed, large);
  int code = start(places, dim3(gx, gy, gz), 33, dim3(cx, cy, cz), out);
  cudaGetLastError();
  return code;
}
extern "C" int run_ring(int blocks, int rounds, int* out) {
  ring<<<blocks, 64>>>(out, rounds);
  return cudaGetLastError();
}
extern "C" int run_ring_in_clusters_of(unsigned blocks, int* out) {
  int code = start(ring, 8, 64, blocks, out, 1);
  cudaGetLastError();
  return code;
}
extern "C" int run_misused(int which) {
  misused<<<2, 64>>>(which);
  return cudaGetLastError();
}
