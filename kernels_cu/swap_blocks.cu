// swap_blocks: copies pages of one cache to pages of another, bit for bit; each cache may lie on the device or in host memory.
//
// There is no kernel: copy engines do it, on the caller's stream. Pairs are put in order, and pages that follow each other in both caches go
// as one copy. The pairs lie in host memory and are read before the call returns, which waits for nothing; pinned caches make the copies to
// and from the host asynchronous.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

#include "dtypes.cuh"

using T = SB_T;

struct SwapBlocksParams {
    const T* src;  // [pages_src, w]
    int64_t src_stride[1];
    T* dst;  // [pages_dst, w]
    int64_t dst_stride[1];
    const int64_t* pairs;  // [m, 2]: from, to, in host memory
    int64_t pages_src;
    int64_t w;
    int64_t pages_dst;
    int64_t m;
};

struct Pair {
    int64_t from, to;
    bool operator<(const Pair& other) const { return from != other.from ? from < other.from : to < other.to; }
};

extern "C" int swap_blocks(const SwapBlocksParams* params, void* stream) {
    const SwapBlocksParams& p = *params;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    const std::unique_ptr<Pair[]> pairs(new (std::nothrow) Pair[p.m]);
    if (!pairs) return static_cast<int>(cudaErrorMemoryAllocation);
    for (int64_t i = 0; i < p.m; ++i) pairs[i] = Pair{p.pairs[2 * i], p.pairs[2 * i + 1]};
    std::sort(pairs.get(), pairs.get() + p.m);

    const bool dense = p.src_stride[0] == p.w && p.dst_stride[0] == p.w;  // nothing lies between pages
    for (int64_t first = 0, next; first < p.m; first = next) {
        const Pair& run = pairs[first];
        next = first + 1;
        while (dense && next < p.m && pairs[next].from == run.from + (next - first) && pairs[next].to == run.to + (next - first)) ++next;
        const size_t bytes = static_cast<size_t>(next - first) * p.w * sizeof(T);
        const T* from = p.src + run.from * p.src_stride[0];
        const cudaError_t error = cudaMemcpyAsync(p.dst + run.to * p.dst_stride[0], from, bytes, cudaMemcpyDefault, on);
        if (error != cudaSuccess) return static_cast<int>(error);
    }
    return 0;
}
