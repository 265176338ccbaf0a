// convert_fp8: converts between f32, f16 or bf16 and fp8 e4m3fn or e5m2, with one scale for all or one a head.
//
// To fp8: one division by the scale, then nearest even, saturating. From fp8: exact, one multiplication by the scale, then nearest even (C11).
// Rows [n, g, :] are cut into accesses of 16 bytes on the wide side, or of the widest that row length, strides and addresses allow.

#include <cstdint>

#include "access.cuh"
#include "pack.cuh"
#include "quantize.cuh"
#include "row_tiles.cuh"

using O = SB_O;
using X = SB_X;

struct ConvertFp8Params {
    O* out;  // [n, g, w]
    int64_t out_stride[2];
    const X* x;  // [n, g, w]
    int64_t x_stride[2];
    const float* scale;  // [scales], 1 or g of them
    int64_t n;
    int64_t g;
    int64_t w;
    int64_t scales;
};

constexpr bool kToFp8 = sizeof(O) == 1;
constexpr int kMost = 16 / (kToFp8 ? sizeof(X) : sizeof(O));  // elements of a piece

/// N converted elements.
template <int N>
__device__ __forceinline__ sb::Pack<O, N> converted(const sb::Pack<X, N>& pack, const sb::Divisor& by) {
    if constexpr (kToFp8) {
        return sb::quantized<N, O, X>(pack, by);
    } else {
        return sb::loaded<N, O, X>(pack, by.scale);
    }
}

template <int N>
__global__ void __launch_bounds__(sb::kTileThreads) convert_rows(const ConvertFp8Params p, const sb::RowTiles<> tiles) {
    const int64_t piece = tiles.piece();
    if (piece >= tiles.pieces) return;
    sb::Pack<X, N> held[sb::kInFlight];
    O* to[sb::kInFlight];
    float scale[sb::kInFlight];
#pragma unroll
    for (int u = 0; u < sb::kInFlight; ++u) {
        const int64_t row = tiles.first_row() + tiles.row_in_tile(u);
        if (row >= tiles.rows) continue;
        const int64_t n = p.g == 1 ? row : row / p.g;
        const int64_t head = row - n * p.g;
        held[u] = sb::load_pack<N>(p.x + n * p.x_stride[0] + head * p.x_stride[1] + piece * N);
        scale[u] = p.scale[p.scales == 1 ? 0 : head];
        to[u] = p.out + n * p.out_stride[0] + head * p.out_stride[1] + piece * N;
    }
    sb::Divisor by{};
#pragma unroll
    for (int u = 0; u < sb::kInFlight; ++u) {
        const int64_t row = tiles.first_row() + tiles.row_in_tile(u);
        if (row >= tiles.rows) continue;
        if (u == 0 || p.scales != 1) by = sb::divisor(scale[u]);  // rows in the grid come first: where row u exists, row 0 does
        sb::store_pack<N>(to[u], converted<N>(held[u], by));
    }
}

/// Launches with pieces of N elements, or of the most that are not more than `elements`.
template <int N>
int launch(const ConvertFp8Params& p, int elements, void* stream) {
    if constexpr (N > 1) {
        if (elements < N) return launch<N / 2>(p, elements, stream);
    }
    const auto tiles = sb::RowTiles<>::cut(p.n * p.g, p.w / N);
    convert_rows<N><<<tiles.blocks(), tiles.threads(), 0, static_cast<cudaStream_t>(stream)>>>(p, tiles);
    return static_cast<int>(cudaGetLastError());
}

extern "C" int convert_fp8(const ConvertFp8Params* params, void* stream) {
    ConvertFp8Params p = *params;
    if (p.n == 0) return 0;  // an empty grid cannot be launched
    if (p.scales == 1 && p.g > 1 && p.out_stride[1] == p.w && p.x_stride[1] == p.w) {
        p.w *= p.g;  // the heads of a row are one
        p.g = 1;
    }
    const auto elements = [&](const auto* address, const int64_t* stride) {
        constexpr int64_t kSize = sizeof(*address);
        return sb::widest_access(static_cast<uint64_t>(p.w * kSize) | sb::alignment_of(address, p.n, stride[0] * kSize) |
                                 sb::alignment_of(address, p.g, stride[1] * kSize)) / static_cast<int>(kSize);
    };
    const int read = elements(p.x, p.x_stride), written = elements(p.out, p.out_stride);
    return launch<kMost>(p, read < written ? read : written, stream);
}
