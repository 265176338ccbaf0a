// How the blocks of a grid share rows that are moved piece by piece, a piece being one access of up to 16 bytes.
//
// A block takes up to 256 neighbouring pieces of `depth` rows, or, where rows are shorter, of as many times more rows as fit its threads. A
// thread owns the same piece of each of its rows: where it lies in a row is computed once. Rows may have any number of pieces.
#pragma once

#include <cstdint>

namespace sb {

constexpr int kTileThreads = 256;
constexpr int kInFlight = 4;  // pieces that a thread loads before it stores any, where nothing says otherwise

struct RowTiles {
    int64_t rows;
    int64_t pieces;     // of a row
    unsigned width;     // pieces of a row in one block, at most kTileThreads
    unsigned across;    // blocks side by side on a row
    unsigned abreast;   // rows that a block moves at once
    unsigned depth;     // rows of a thread

    static RowTiles cut(int64_t rows, int64_t pieces, unsigned depth = kInFlight) {
        const int64_t across = (pieces + kTileThreads - 1) / kTileThreads;
        const int64_t width = across == 0 ? 1 : (pieces + across - 1) / across;  // even shares
        return {rows, pieces, static_cast<unsigned>(width), static_cast<unsigned>(across), static_cast<unsigned>(kTileThreads / width), depth};
    }

    /// Blocks of the grid, along x. SPEC refuses more than 2^31 - 1.
    unsigned blocks() const {
        const int64_t high = static_cast<int64_t>(abreast) * depth;
        return static_cast<unsigned>((rows + high - 1) / high * across);
    }

    /// The first row of the block, and how many rows it has at most.
    __device__ int64_t first_row() const { return static_cast<int64_t>(blockIdx.x / across) * abreast * depth; }
    __device__ int height() const { return static_cast<int>(abreast * depth); }

    /// The thread's piece of each of its rows; `pieces` or more: it has none.
    __device__ int64_t piece() const {
        const unsigned place = threadIdx.x % width;
        return threadIdx.x < width * abreast ? static_cast<int64_t>(blockIdx.x % across) * width + place : pieces;
    }

    /// The thread's rows, counted from the first of its block: step 0 to depth - 1.
    __device__ int row_in_tile(int step) const { return static_cast<int>(step * abreast + threadIdx.x / width); }
};

}  // namespace sb
