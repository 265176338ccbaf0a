// How the blocks of a grid share rows that are moved piece by piece, a piece being one access of up to 16 bytes.
//
// A block takes up to 256 neighbouring pieces of some rows, or, where rows are shorter, of as many times more rows as fit its threads. A
// thread owns the same piece of each of its rows: where it lies in a row is computed once. Rows may have any number of pieces. A block has two
// dimensions, and the blocks side by side on a row are a power of two, so that no thread divides to find its place.
#pragma once

#include <cstdint>

namespace sb {

constexpr int kTileThreads = 256;  // of a block, at most
constexpr int kInFlight = 4;       // pieces that a thread loads before it stores any, where nothing says otherwise

/// DEPTH: rows of a thread.
template <int DEPTH = kInFlight>
struct RowTiles {
    int64_t rows;
    int64_t pieces;    // of a row
    unsigned width;    // pieces of a row in one block (threadIdx.x), at most kTileThreads
    unsigned abreast;  // rows that a block moves at once (threadIdx.y)
    unsigned shift;    // 2^shift blocks lie side by side on a row

    /// `pieces` is at least 1.
    static RowTiles cut(int64_t rows, int64_t pieces) {
        unsigned shift = 0;
        while (pieces > int64_t{kTileThreads} << shift) ++shift;
        const unsigned width = static_cast<unsigned>((pieces + (int64_t{1} << shift) - 1) >> shift);  // even shares
        return {rows, pieces, width, kTileThreads / width, shift};
    }

    /// Blocks of the grid, along x. SPEC refuses more than 2^31 - 1.
    unsigned blocks() const {
        const int64_t high = static_cast<int64_t>(abreast) * DEPTH;
        return static_cast<unsigned>((rows + high - 1) / high << shift);
    }
    dim3 threads() const { return dim3(width, abreast); }

    /// The first row of the block, and how many rows it has at most.
    __device__ int64_t first_row() const { return static_cast<int64_t>(blockIdx.x >> shift) * abreast * DEPTH; }
    __device__ int height() const { return static_cast<int>(abreast * DEPTH); }

    /// The thread's piece of each of its rows; `pieces` or more: it has none.
    __device__ int64_t piece() const { return static_cast<int64_t>(blockIdx.x & ((1u << shift) - 1)) * width + threadIdx.x; }

    /// The thread's rows, counted from the first of its block: step 0 to DEPTH - 1.
    __device__ int row_in_tile(int step) const { return static_cast<int>(step * abreast + threadIdx.y); }
};

}  // namespace sb
