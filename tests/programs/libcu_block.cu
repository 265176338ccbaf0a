// libcu++ within a block: values of cuda::std, an atomic_ref, and bulk copies that a cuda::barrier or cuda::ptx waits for.
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/ptx>
#include <cuda/std/array>
#include <cuda/std/bit>
#include <cuda/std/optional>
#include <cuda/std/span>
#include <cuda/std/tuple>
#include <cuda/std/type_traits>
#include <cuda/std/utility>

#include "program.h"

namespace cde = cuda::device::experimental;
namespace ptx = cuda::ptx;
using barrier = cuda::barrier<cuda::thread_scope_block>;
constexpr int kTile = 64;

__device__ int sum(cuda::std::span<const int> s) {
  int total = 0;
  for (int v : s) total += v;
  return total;
}
__device__ cuda::std::optional<int> find(cuda::std::span<const int> s, int v) {
  for (cuda::std::size_t i = 0; i < s.size(); ++i)
    if (s[i] == v) return int(i);
  return cuda::std::nullopt;
}

__global__ void values(int* out) {
  cuda::std::array<int, 4> a{1, 2, 3, 4};
  auto [x, y] = cuda::std::make_tuple(1, 2.5f);
  static_assert(cuda::std::is_same_v<decltype(x), int>);
  if (threadIdx.x == 0 && blockIdx.x == 0) {
    out[0] = sum(a) + sum(cuda::std::span(a).subspan(1, 2)) + sum(cuda::std::span<int, 4>(a).first(1));
    out[1] = find(a, 3).value_or(-1) - find(a, 9).value_or(-1);
    out[2] = cuda::std::popcount(7u) + cuda::std::countl_zero(1u) + cuda::std::bit_width(9u) + int(cuda::std::rotl(0x80000000u, 4));
    out[3] = cuda::std::bit_cast<int>(float(x) + y);
  }
  cuda::atomic_ref<int, cuda::thread_scope_device>(out[4]).fetch_add(1, cuda::std::memory_order_relaxed);
}

__global__ void by_barrier(const int* x, int* y, bool announced) {
  __shared__ alignas(16) int s[kTile];
  __shared__ barrier bar;
  if (threadIdx.x == 0) {
    init(&bar, blockDim.x);
    cde::fence_proxy_async_shared_cta();
  }
  __syncthreads();
  barrier::arrival_token token;
  if (threadIdx.x == 0 && announced) {
    cde::cp_async_bulk_global_to_shared(s, x, sizeof s, bar);
    token = cuda::device::barrier_arrive_tx(bar, 1, sizeof s);
  } else {
    if (threadIdx.x == 0) cuda::memcpy_async(s, x, cuda::aligned_size_t<16>(sizeof s), bar);
    token = bar.arrive();
  }
  bar.wait(cuda::std::move(token));
  s[threadIdx.x] += 1;
  cde::fence_proxy_async_shared_cta();
  __syncthreads();
  if (threadIdx.x == 0) {
    cde::cp_async_bulk_shared_to_global(y, s, sizeof s);
    cde::cp_async_bulk_commit_group();
    cde::cp_async_bulk_wait_group_read<0>();
  }
}

__global__ void by_ptx(const int* x, int* y) {
  __shared__ alignas(16) int s[kTile];
  __shared__ uint64_t bar;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&bar, 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  __syncthreads();
  if (threadIdx.x < 32 && ptx::elect_sync(~0u)) {
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, sizeof s);
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, s, x, sizeof s, &bar);
  }
  while (!ptx::mbarrier_try_wait_parity(&bar, 0)) {
  }
  y[threadIdx.x] = s[kTile - 1 - threadIdx.x] + 1;
}

int main() {
  std::vector<int> x(kTile), plus_one(kTile), reversed(kTile);
  for (int i = 0; i < kTile; ++i) x[i] = 3 * i, plus_one[i] = 3 * i + 1, reversed[i] = 3 * (kTile - 1 - i) + 1;
  int *in = upload(x), *a = fresh<int>(kTile), *b = fresh<int>(kTile), *c = fresh<int>(kTile), *d = upload(std::vector<int>(5));
  values<<<2, 64>>>(d);
  by_barrier<<<1, kTile>>>(in, a, true);
  by_barrier<<<1, kTile>>>(in, b, false);
  by_ptx<<<1, kTile>>>(in, c);
  std::vector<int> values_wanted = {10 + 5 + 1, 2 + 1, 3 + 31 + 4 + 8, 0x40600000, 128};
  return verdict(download(d, 5) == values_wanted && download(a, kTile) == plus_one && download(b, kTile) == plus_one && download(c, kTile) == reversed);
}
