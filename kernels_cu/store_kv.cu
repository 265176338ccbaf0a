// store_kv: copies row i of K and V to slot slots[i] of their pools, bit for bit.
//
// One warp a row: its lanes copy neighbouring pieces of 16 bytes (or of the widest size that length, strides and addresses allow), four of
// K and four of V in flight before the first is stored. Nothing is computed: every bit is kept, NaN payloads too (C9).

#include <cstdint>

#include "access.cuh"
#include "dtypes.cuh"

using T = SB_T;
using Index = SB_INDEX;

struct StoreKvParams {
    const T* k;  // [r, w]
    int64_t k_stride[1];
    const T* v;  // [r, w]
    int64_t v_stride[1];
    T* k_pool;  // [s, w]
    int64_t k_pool_stride[1];
    T* v_pool;  // [s, w]
    int64_t v_pool_stride[1];
    const Index* slots;  // [m], m <= r: rows from m on are padding
    int64_t r;
    int64_t w;
    int64_t s;
    int64_t m;
};

constexpr int kWarps = 8;     // rows a block
constexpr int kInFlight = 4;  // pieces of K, and as many of V, that a lane loads before it stores any

template <typename Piece>
__global__ void __launch_bounds__(kWarps * 32) store_rows(const StoreKvParams p) {
    const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (row >= p.m) return;
    const int64_t slot = static_cast<int64_t>(p.slots[row]);  // C16: 64 bits before any product
    if (slot < 0) return;                                     // a padding row

    const Piece* __restrict__ from_k = reinterpret_cast<const Piece*>(p.k + row * p.k_stride[0]);
    const Piece* __restrict__ from_v = reinterpret_cast<const Piece*>(p.v + row * p.v_stride[0]);
    Piece* __restrict__ to_k = reinterpret_cast<Piece*>(p.k_pool + slot * p.k_pool_stride[0]);
    Piece* __restrict__ to_v = reinterpret_cast<Piece*>(p.v_pool + slot * p.v_pool_stride[0]);
    const int64_t pieces = p.w * static_cast<int64_t>(sizeof(T)) / static_cast<int64_t>(sizeof(Piece));

#pragma unroll 1  // kInFlight is enough
    for (int64_t first = lane; first < pieces; first += 32 * kInFlight) {
        Piece k[kInFlight], v[kInFlight];
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) {
            const int64_t i = first + 32 * u;
            if (i < pieces) {
                k[u] = from_k[i];
                v[u] = from_v[i];
            }
        }
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) {
            const int64_t i = first + 32 * u;
            if (i < pieces) {
                to_k[i] = k[u];
                to_v[i] = v[u];
            }
        }
    }
}

template <typename Piece>
int launch(const StoreKvParams& p, void* stream) {
    const int64_t blocks = (p.m + kWarps - 1) / kWarps;
    store_rows<Piece><<<static_cast<unsigned>(blocks), kWarps * 32, 0, static_cast<cudaStream_t>(stream)>>>(p);
    return static_cast<int>(cudaGetLastError());
}

extern "C" int store_kv(const StoreKvParams* params, void* stream) {
    const StoreKvParams& p = *params;
    constexpr int64_t kSize = sizeof(T);
    if (p.m == 0) return 0;  // an empty grid cannot be launched
    const int bytes = sb::widest_access(static_cast<uint64_t>(p.w * kSize) | sb::alignment_of(p.k, p.r, p.k_stride[0] * kSize) |
                                      sb::alignment_of(p.v, p.r, p.v_stride[0] * kSize) |
                                      sb::alignment_of(p.k_pool, p.s, p.k_pool_stride[0] * kSize) |
                                      sb::alignment_of(p.v_pool, p.s, p.v_pool_stride[0] * kSize));
    switch (bytes) {
        case 16: return launch<uint4>(p, stream);
        case 8: return launch<uint2>(p, stream);
        case 4: return launch<uint32_t>(p, stream);
        case 2: return launch<uint16_t>(p, stream);
        default: return launch<uint8_t>(p, stream);
    }
}
