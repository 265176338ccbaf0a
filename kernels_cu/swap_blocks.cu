// swap_blocks: copies pages of one cache to pages of another, bit for bit; each cache may lie on the device or in host memory.
//
// Pairs are put in order, and pages that follow each other in both caches are one run. A single run, or runs that are long on average, go to the
// copy engines, a copy each; several short ones to a kernel, since an engine takes microseconds for every copy, however short. The kernel
// reads and writes the device's memory, and pinned memory of the host through the bus; what it does not reach is left to the engines. The
// pairs lie in host memory, are read before the call returns, and travel among the kernel's parameters. The call waits for nothing but an
// engine that copies pageable memory.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

#include "access.cuh"
#include "pack.cuh"
#include "row_tiles.cuh"

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
    bool operator==(const Pair& other) const { return from == other.from && to == other.to; }
};

constexpr int kPairs = 240;  // of a launch

struct Pages {
    const T* src;
    T* dst;
    int64_t src_stride, dst_stride;
    sb::RowTiles<> tiles;  // a row for each pair
    Pair pairs[kPairs];
};
static_assert(sizeof(Pages) <= 4096, "what a kernel's parameters hold");

template <int N>
__global__ void __launch_bounds__(sb::kTileThreads) swap_pages(const __grid_constant__ Pages pages) {
    const sb::RowTiles<>& tiles = pages.tiles;
    const int64_t piece = tiles.piece();
    if (piece >= tiles.pieces) return;
    sb::Pack<T, N> held[sb::kInFlight];
#pragma unroll
    for (int u = 0; u < sb::kInFlight; ++u) {
        const int64_t pair = tiles.first_row() + tiles.row_in_tile(u);
        if (pair < tiles.rows) held[u] = sb::load_pack<N>(pages.src + pages.pairs[pair].from * pages.src_stride + piece * N);
    }
#pragma unroll
    for (int u = 0; u < sb::kInFlight; ++u) {
        const int64_t pair = tiles.first_row() + tiles.row_in_tile(u);
        if (pair < tiles.rows) sb::store_pack<N>(pages.dst + pages.pairs[pair].to * pages.dst_stride + piece * N, held[u]);
    }
}

/// Copies m pairs of pages in pieces of N elements, or of the most that are not more than `elements`.
template <int N>
cudaError_t launch(Pages& pages, const Pair* pairs, int64_t m, int64_t w, int elements, cudaStream_t on) {
    if constexpr (N > 1) {
        if (elements < N) return launch<N / 2>(pages, pairs, m, w, elements, on);
    }
    cudaError_t error = cudaSuccess;
    for (int64_t first = 0; first < m && error == cudaSuccess; first += kPairs) {
        pages.tiles = sb::RowTiles<>::cut(std::min<int64_t>(kPairs, m - first), w / N);
        std::copy_n(pairs + first, pages.tiles.rows, pages.pairs);
        swap_pages<N><<<pages.tiles.blocks(), pages.tiles.threads(), 0, on>>>(pages);
        error = cudaGetLastError();
    }
    return error;
}

/// Where the device's kernels find what has these attributes; null where they do not reach it, or not without the call's waiting for it: pageable
/// memory is copied before the call returns.
inline void* address_for(const cudaPointerAttributes& found, int device) {
    if (found.type == cudaMemoryTypeUnregistered || (found.type == cudaMemoryTypeDevice && found.device != device)) return nullptr;
    return found.devicePointer;
}

/// Whether several runs of so many bytes together are short enough for the kernel: an engine begins in the time of 256 KiB on the bus.
inline bool are_short(int64_t runs, int64_t bytes, bool in_host) {
    return runs > 1 && bytes / runs < (in_host ? int64_t{256} << 10 : int64_t{16} << 20);
}

/// address_for() what lies at `address`, with whether that is in host memory.
template <typename E>
E* reached(E* address, bool* in_host) {
#ifdef __SAMEBITS__
    *in_host = true;  // the emulator's kernels reach all memory
    return address;
#else
    int device = 0;
    cudaPointerAttributes found;
    if (cudaGetDevice(&device) != cudaSuccess || cudaPointerGetAttributes(&found, address) != cudaSuccess) {
        cudaGetLastError();
        return nullptr;
    }
    *in_host = *in_host || found.type == cudaMemoryTypeHost;
    return static_cast<E*>(address_for(found, device));
#endif
}

extern "C" int swap_blocks(const SwapBlocksParams* params, void* stream) {
    const SwapBlocksParams& p = *params;
    constexpr int64_t kSize = sizeof(T);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    const std::unique_ptr<Pair[]> pairs(new (std::nothrow) Pair[p.m]);
    if (!pairs) return static_cast<int>(cudaErrorMemoryAllocation);
    for (int64_t i = 0; i < p.m; ++i) pairs[i] = Pair{p.pairs[2 * i], p.pairs[2 * i + 1]};
    std::sort(pairs.get(), pairs.get() + p.m);

    const bool dense = p.src_stride[0] == p.w && p.dst_stride[0] == p.w;  // nothing lies between pages
    const auto end_of = [&](int64_t first) {  // of the run that begins with this pair
        int64_t next = first + 1;
        while (dense && next < p.m && pairs[next] == Pair{pairs[first].from + next - first, pairs[first].to + next - first}) ++next;
        return next;
    };
    int64_t runs = 0;
    for (int64_t first = 0; first < p.m; first = end_of(first)) ++runs;
    bool in_host = false;
    Pages pages = {reached(p.src, &in_host), reached(p.dst, &in_host), p.src_stride[0], p.dst_stride[0], {}, {}};
    if (pages.src != nullptr && pages.dst != nullptr && are_short(runs, p.m * p.w * kSize, in_host)) {
        const uint64_t bits = static_cast<uint64_t>(p.w * kSize) | sb::alignment_of(pages.src, p.pages_src, p.src_stride[0] * kSize) |
                              sb::alignment_of(pages.dst, p.pages_dst, p.dst_stride[0] * kSize);
        return static_cast<int>(launch<16 / kSize>(pages, pairs.get(), p.m, p.w, sb::widest_access(bits) / static_cast<int>(kSize), on));
    }
    for (int64_t first = 0, next; first < p.m; first = next) {
        next = end_of(first);
        const T* from = p.src + pairs[first].from * p.src_stride[0];
        const size_t bytes = static_cast<size_t>(next - first) * p.w * kSize;
        const cudaError_t error = cudaMemcpyAsync(p.dst + pairs[first].to * p.dst_stride[0], from, bytes, cudaMemcpyDefault, on);
        if (error != cudaSuccess) return static_cast<int>(error);
    }
    return 0;
}
