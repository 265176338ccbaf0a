// Cooperative groups: tiles, coalesced lanes, and a barrier of the whole grid.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "program.h"

namespace cg = cooperative_groups;

__global__ void sum(const int* x, int n, int* partial, int* total, int* odd) {
  cg::grid_group grid = cg::this_grid();
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<16> tile = cg::tiled_partition<16>(block);
  __shared__ int s[8];
  int v = 0;
  for (unsigned long long i = grid.thread_rank(); i < n; i += grid.size()) {
    v += x[i];
    if (x[i] & 1) {
      cg::coalesced_group active = cg::coalesced_threads();
      if (active.thread_rank() == 0) atomicAdd(odd, int(active.size()));
    }
  }
  v = cg::reduce(tile, v, cg::plus<int>());
  if (tile.thread_rank() == 0) s[tile.meta_group_rank()] = v;
  block.sync();
  if (block.thread_rank() == 0) {
    for (unsigned i = 1; i < tile.meta_group_size(); ++i) v += s[i];
    partial[blockIdx.x] = v;
  }
  grid.sync();
  if (grid.thread_rank() < 16) {
    int t = 0;
    for (unsigned b = unsigned(grid.thread_rank()); b < gridDim.x; b += 16) t += partial[b];
    t = cg::reduce(tile, t, cg::plus<int>());
    if (tile.thread_rank() == 0) *total = t;
  }
}

int main() {
  int n = 6000, want = 0, odds = 0;
  std::vector<int> x(n);
  for (int i = 0; i < n; ++i) want += x[i] = (i * 7919) % 1000 - 400, odds += x[i] & 1;
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  int *d = upload(x), *partial = fresh<int>(20), *total = fresh<int>(2), *odd = total + 1;
  CHECK(cudaMemset(total, 0, 2 * sizeof(int)));
  void* arguments[] = {(void*)&d, (void*)&n, (void*)&partial, (void*)&total, (void*)&odd};
  CHECK(cudaLaunchCooperativeKernel((void*)sum, 20, 128, arguments));
  return verdict(properties.cooperativeLaunch && close(download(total, 2), {want, odds}));
}
