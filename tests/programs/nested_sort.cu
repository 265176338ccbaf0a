// Launches from device code: a quicksort whose grids launch those of their halves, on streams of their own; and several threads of the
// host that each sort their own numbers.
#include <algorithm>
#include <thread>

#include "program.h"

constexpr int kSmall = 16, kDeepest = 12;

__device__ void sort_small(int* x, int left, int right) {
  for (int i = left; i <= right; ++i) {
    int least = i;
    for (int j = i + 1; j <= right; ++j) least = x[j] < x[least] ? j : least;
    int v = x[i];
    x[i] = x[least], x[least] = v;
  }
}

__global__ void sort(int* x, int left, int right, int depth) {
  if (depth == kDeepest || right - left < kSmall) return sort_small(x, left, right);
  int i = left, j = right, pivot = x[(left + right) / 2];
  while (i <= j) {
    while (x[i] < pivot) ++i;
    while (x[j] > pivot) --j;
    if (i <= j) {
      int v = x[i];
      x[i++] = x[j], x[j--] = v;
    }
  }
  for (int half = 0; half < 2; ++half) {
    int first = half == 0 ? left : i, last = half == 0 ? j : right;
    if (first >= last) continue;
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    sort<<<1, 1, 0, stream>>>(x, first, last, depth + 1);
    cudaStreamDestroy(stream);
  }
}

int main() {
  constexpr int kHosts = 3;
  bool good[kHosts] = {};
  std::vector<std::thread> hosts;
  for (int h = 0; h < kHosts; ++h) {
    hosts.emplace_back([h, &good] {
      std::vector<int> x(200 + 50 * h);
      for (size_t i = 0; i < x.size(); ++i) x[i] = int((i + h) * 7919 % 101);
      int* d = upload(x);
      sort<<<1, 1, 0, cudaStreamPerThread>>>(d, 0, int(x.size()) - 1, 0);
      CHECK(cudaStreamSynchronize(cudaStreamPerThread));
      std::sort(x.begin(), x.end());
      good[h] = download(d, x.size()) == x;
      CHECK(cudaFree(d));
    });
  }
  for (std::thread& host : hosts) host.join();
  return verdict(std::all_of(good, good + kHosts, [](bool g) { return g; }));
}
