// Sizes beyond 32 bits, without the memory for them: what swap_blocks asks of the copy engines, and the grids of RowTiles.

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

struct Copy {
    uint64_t to, from, bytes;
};
static std::vector<Copy> copies;

static cudaError_t record(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
    copies.push_back({reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from), bytes});
    return cudaSuccess;
}

static cudaError_t failure = cudaSuccess;
static cudaError_t last_error() { return failure != cudaSuccess ? failure : cudaGetLastError(); }

#define SB_T sb::bf16
#define cudaMemcpyAsync record
#define cudaGetLastError last_error
#include "../../kernels_cu/swap_blocks.cu"
#undef cudaMemcpyAsync
#undef cudaGetLastError

#include "../../kernels_cu/row_tiles.cuh"

// The copies of m pairs of pages of w elements, `stride` apart, between caches at addresses 0: at most `room`, returns how many.
extern "C" int64_t copies_of(const int64_t* pairs, int64_t m, int64_t w, int64_t stride, Copy* out, int64_t room) {
    copies.clear();
    const SwapBlocksParams params{nullptr, {stride}, nullptr, {stride}, pairs, INT64_MAX, w, INT64_MAX, m};
    if (swap_blocks(&params, nullptr) != 0) return -1;
    for (size_t i = 0; i < copies.size() && i < static_cast<size_t>(room); ++i) out[i] = copies[i];
    return static_cast<int64_t>(copies.size());
}

// The address by which kernels of device `own` reach memory of a cudaMemoryType; 0 where they do not.
extern "C" int64_t address_of(int type, int device, int64_t pointer, int own) {
    const cudaPointerAttributes found = {static_cast<cudaMemoryType>(type), device, reinterpret_cast<void*>(pointer), nullptr};
    return reinterpret_cast<int64_t>(address_for(found, own));
}

extern "C" int short_runs(int64_t runs, int64_t bytes, int in_host) { return are_short(runs, bytes, in_host != 0); }

// What swap_blocks returns for two pairs of pages of 8 elements where the runtime refuses the launch.
extern "C" int launch_that_fails(const sb::bf16* src, const int64_t* pairs) {
    sb::bf16 dst[2 * 8];
    const SwapBlocksParams params{src, {8}, dst, {8}, pairs, 4, 8, 2, 2};
    failure = cudaErrorInvalidValue;
    const int code = swap_blocks(&params, nullptr);
    failure = cudaSuccess;
    return code;
}

__global__ void last_block(const sb::RowTiles<64> tiles, int64_t* found) {
    if (blockIdx.x + 1 == gridDim.x) *found = tiles.first_row();
}

extern "C" unsigned blocks_of(int64_t rows, int64_t pieces) { return sb::RowTiles<>::cut(rows, pieces).blocks(); }

// The first row of the last block, where a thread takes one piece of 64 rows.
extern "C" int64_t last_row_of(int64_t rows, int64_t pieces) {
    const auto tiles = sb::RowTiles<64>::cut(rows, pieces);
    int64_t found = -1;
    last_block<<<tiles.blocks(), 1>>>(tiles, &found);
    return cudaDeviceSynchronize() == cudaSuccess ? found : -1;
}
