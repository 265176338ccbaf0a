// Thread-block clusters: where a block stands in its cluster, their barrier, and shared memory of the other blocks.
#pragma once

#include "thread.h"

namespace samebits {
void* map_shared(const void* own, unsigned rank);  // the same variable in the block of that rank
int shared_rank(const void*);                      // of the block in whose shared memory it lies, -1 without
}  // namespace samebits

static inline dim3 __clusterDim() { return ::samebits::self()->block->cluster_dim; }
static inline dim3 __clusterRelativeBlockIdx() { return dim3(::samebits::self()->block->cluster_idx); }
static inline unsigned __clusterRelativeBlockRank() { return ::samebits::self()->block->cluster_rank; }
static inline unsigned __clusterSizeInBlocks() {
  dim3 c = __clusterDim();
  return c.x * c.y * c.z;
}
static inline int __clusterDimIsSpecified() { return __clusterSizeInBlocks() > 1; }
static inline dim3 __clusterGridDimInClusters() {
  dim3 c = __clusterDim(), g = ::samebits::grid_dim();
  return dim3(g.x / c.x, g.y / c.y, g.z / c.z);
}
static inline dim3 __clusterIdx() {
  dim3 c = __clusterDim(), b = dim3(::samebits::block_index());
  return dim3(b.x / c.x, b.y / c.y, b.z / c.z);
}

static inline void __cluster_barrier_arrive(SAMEBITS_SITE) { ::samebits::arrive(::samebits::kCluster, true, file, line); }
static inline void __cluster_barrier_arrive_relaxed(SAMEBITS_SITE) { ::samebits::arrive(::samebits::kCluster, true, file, line); }
static inline void __cluster_barrier_wait(SAMEBITS_SITE) { ::samebits::wait(::samebits::kCluster, file, line); }
static inline void* __cluster_map_shared_rank(const void* p, unsigned rank) { return ::samebits::map_shared(p, rank); }
static inline unsigned __cluster_query_shared_rank(const void* p) { return unsigned(::samebits::shared_rank(p)); }
static inline unsigned __isClusterShared(const void* p) { return ::samebits::shared_rank(p) >= 0; }

// The next grid of a stream starts when this one has ended.
static inline void cudaGridDependencySynchronize() {}
static inline void cudaTriggerProgrammaticLaunchCompletion() {}
