// Clusters of two blocks: shared memory of the other block, and when it is there.
#include <cooperative_groups.h>

#include "specimen.h"

namespace cg = cooperative_groups;

template <bool Bad>
__global__ void __cluster_dims__(2) remote_read_before_the_barrier(Args a) {
  __shared__ float s[64];
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  s[threadIdx.x] = a.x[threadIdx.x];
  if (Bad) __syncthreads(); else cluster.sync();
  float v = *cluster.map_shared_rank(&s[threadIdx.x], cluster.block_rank() ^ 1);  // expect: shared race or uninitialised read
  cluster.sync();
  a.y[blockIdx.x * 64 + threadIdx.x] = v;
}

template <bool Bad>
__global__ void __cluster_dims__(2) remote_read_between_arrive_and_wait(Args a) {
  __shared__ float s[64];
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  s[threadIdx.x] = a.x[threadIdx.x];
  float* other = cluster.map_shared_rank(s, cluster.block_rank() ^ 1);
  cluster.barrier_arrive();
  float v = 0;
  if (Bad) v = other[threadIdx.x];  // expect: shared race or uninitialised read
  cluster.barrier_wait();
  if (!Bad) v = other[threadIdx.x];
  cluster.sync();
  a.y[blockIdx.x * 64 + threadIdx.x] = v;
}

template <bool Bad>
__global__ void __cluster_dims__(2) return_before_the_remote_read(Args a) {
  __shared__ float s[64];
  cg::cluster_group cluster = cg::this_cluster();
  s[threadIdx.x] = a.x[threadIdx.x];
  cluster.sync();
  if (cluster.block_rank() == 0) {
    a.y[threadIdx.x] = *cluster.map_shared_rank(&s[threadIdx.x], 1);  // expect: block lifetime
  }
  if (!Bad) cluster.sync();
}

template <bool Bad>
__global__ void __cluster_dims__(2) remote_write_before_the_start(Args a) {
  __shared__ float s[64];
  cg::cluster_group cluster = cg::this_cluster();
  if (!Bad) cluster.sync();
  *cluster.map_shared_rank(&s[threadIdx.x], cluster.block_rank() ^ 1) = a.x[threadIdx.x];  // expect: block lifetime
  cluster.sync();
  a.y[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x];
}

template <bool Bad>
__global__ void __cluster_dims__(2) past_the_end_of_remote_memory(Args a) {
  __shared__ float s[64];
  cg::cluster_group cluster = cg::this_cluster();
  s[threadIdx.x] = a.x[threadIdx.x];
  cluster.sync();
  float* other = cluster.map_shared_rank(s, cluster.block_rank() ^ 1);
  a.y[blockIdx.x * 64 + threadIdx.x] = other[threadIdx.x + Bad];  // expect: out of bounds
  cluster.sync();
}

template <bool Bad>
__global__ void __cluster_dims__(2) both_write_one_remote_element(Args a) {
  __shared__ int s[64];
  cg::cluster_group cluster = cg::this_cluster();
  s[threadIdx.x] = 0;
  cluster.sync();
  int* first = cluster.map_shared_rank(&s[threadIdx.x], 0);
  if (Bad) *first += int(blockIdx.x) + 1; else atomicAdd(first, int(blockIdx.x) + 1);  // expect: shared race
  cluster.sync();
  if (cluster.block_rank() == 0) a.i[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x];
}

template <bool Bad>
__global__ void __cluster_dims__(2) overwritten_before_the_other_has_read(Args a) {
  __shared__ float s[64];
  cg::cluster_group cluster = cg::this_cluster();
  float sum = 0;
  for (int t = 0; t < 2; ++t) {
    s[threadIdx.x] = a.x[t * 64 + threadIdx.x];  // expect: shared race
    cluster.sync();
    sum += *cluster.map_shared_rank(&s[threadIdx.x], cluster.block_rank() ^ 1);
    if (!Bad || t == 1) cluster.sync();
  }
  a.y[blockIdx.x * 64 + threadIdx.x] = sum;
}

template <bool Bad>
__global__ void __cluster_dims__(2) cluster_barrier_in_a_branch(Args a) {
  a.y[blockIdx.x * 64 + threadIdx.x] = 1;
  if (!Bad || threadIdx.x < 32) cg::this_cluster().sync();  // expect: barrier divergence
  __syncthreads();
}

template <bool Bad>
__global__ void __cluster_dims__(2) lanes_at_two_cluster_barriers(Args a) {
  if (Bad && threadIdx.x % 2 == 0) {
    cg::this_cluster().sync();  // expect: barrier divergence
  } else {
    cg::this_cluster().sync();
  }
  a.y[blockIdx.x * 64 + threadIdx.x] = 1;
}

int main(int argc, char** argv) {
  const Specimen all[] = {
      SPECIMEN(remote_read_before_the_barrier, 4, 64, 0), SPECIMEN(remote_read_between_arrive_and_wait, 4, 64, 0),
      SPECIMEN(return_before_the_remote_read, 4, 64, 0),  SPECIMEN(remote_write_before_the_start, 4, 64, 0),
      SPECIMEN(past_the_end_of_remote_memory, 4, 64, 0),  SPECIMEN(both_write_one_remote_element, 4, 64, 0),
      SPECIMEN(overwritten_before_the_other_has_read, 4, 64, 0), SPECIMEN(cluster_barrier_in_a_branch, 4, 64, 0),
      SPECIMEN(lanes_at_two_cluster_barriers, 4, 64, 0),
  };
  return run_specimen(all, argc, argv);
}
