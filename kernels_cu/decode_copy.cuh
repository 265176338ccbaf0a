// K and V of paged_decode on their way to shared memory: stages that are copied ahead of the work, across the borders of tiles.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "decode_shape.cuh"
#include "pack.cuh"

// kBytes (1, 2, 4, 8 or 16) into shared memory without passing through registers, where the architecture can; zeros, and nothing is read, where
// not `there`.
template <int kBytes>
__device__ __forceinline__ void copy(void* to, uint64_t address, bool there) {
    const void* from = reinterpret_cast<const void*>(address);
    if constexpr (kBytes < 4) {
        using Word = typename sb::WordOf<kBytes>::type;
        *static_cast<Word*>(to) = there ? __ldg(static_cast<const Word*>(from)) : 0;
    } else {
#if __CUDA_ARCH__ >= 800 && !defined(__SAMEBITS__)
        const unsigned target = static_cast<unsigned>(__cvta_generic_to_shared(to)), bytes = there ? kBytes : 0;
        if constexpr (kBytes == 16) {
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(from), "r"(bytes) : "memory");
        } else {
            asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(target), "l"(from), "n"(kBytes), "r"(bytes) : "memory");
        }
#else
        if (there) {
            __pipeline_memcpy_async(to, from, kBytes);
        } else {
            __pipeline_memcpy_async(to, from, kBytes, kBytes);
        }
#endif
    }
}

// Where K's piece `piece` (16 bytes) of token t lies in a stage: eight threads with neighbouring tokens, or pieces, meet no bank twice.
template <int kPieces>
__device__ __forceinline__ int place_of_key(int t, int piece) {
    return piece * kTile + (t ^ (kPieces < 8 ? piece * (8 / kPieces) : piece % 8));
}

// Where piece `piece` (16 bytes, kX tokens) of dimension d lies in a stage of V that has a dimension's tokens side by side.
template <int kPieces>
__device__ __forceinline__ int place_of_value(int d, int piece) {
    constexpr int kRowsOfLine = kPieces < 8 ? 8 / kPieces : 1;  // dimensions in the 128 bytes that all banks hold
    return d * kPieces + (piece ^ (d / kRowsOfLine & (kPieces < 8 ? kPieces - 1 : 7)));
}

// Copies K and V of one kv head.
template <class S>
struct Copier {
    const PagedDecodeParams& p;
    Block<S>& s;
    int64_t n;
    uint64_t k, v;  // addresses of the kv head in page 0: sums of bytes, which compile to less than pointers to elements do

    // The page ids of a tile. Those of tokens that take no part are read with the others and not used.
    __device__ __forceinline__ void copy_table(const Tile& at) const {
        const int first = at.origin / kPage;
#pragma unroll 1
        for (int i = at.thread; i < kTable; i += S::kLanes) {
            const int32_t* from = p.block_tables + n * p.block_tables_stride[0] + first + i;
            copy<4>(&s.table[at.slot][at.buffer][i], reinterpret_cast<uint64_t>(from), first + i < p.max_pages);
        }
    }

    // count * stride in bytes (C16). Neither is negative and a stride is below 4 GiB (decode_spec.py): one instruction, its sum included.
    __device__ __forceinline__ static uint64_t bytes(int count, int64_t stride) {
        return static_cast<uint64_t>(static_cast<uint32_t>(count)) * (static_cast<uint32_t>(stride) * static_cast<uint32_t>(kSize));
    }

    // Vectors [vector, vector + kVectorsOfStage) of every token's K.
    __device__ __forceinline__ void copy_keys(const Tile& at, int vector, unsigned char* to) const {
        constexpr int kPieces = S::kVectorsOfStage, kStep = S::kLanes / kPieces, kPasses = kTile / kStep;  // kStep: tokens of a pass
        // Neighbouring threads take what is likely to lie side by side: a token's pieces, or a piece's tokens.
        const int piece = kRows ? at.thread % kPieces : at.thread / kStep, own = kRows ? at.thread / kPieces : at.thread % kStep;
        const int inner = own % (kPage < kStep ? kPage : kStep) + (kPage > kTile ? at.origin % kPage : 0);  // token of a page
        const uint64_t base = k + bytes(vector + piece, p.k_cache_stride[2]) + bytes(inner, p.k_cache_stride[3]);
        const int32_t* table = &s.table[at.slot][at.buffer][own / kPage];
        unsigned char* target = to + 16 * place_of_key<kPieces>(own, piece);
        if (kVectors % kPieces != 0 && vector + piece >= kVectors) return;
        if (at.whole()) {
            int32_t page[kPasses];
#pragma unroll
            for (int i = 0; i < kPasses; ++i) page[i] = table[i * kStep / kPage];
#pragma unroll
            for (int i = 0; i < kPasses; ++i) {
                const uint64_t from = base + bytes(i * kStep % kPage, p.k_cache_stride[3]) + bytes(page[i], p.k_cache_stride[0]);
                copy<16>(target + 16 * i * kStep, from, true);
            }
        } else {
#pragma unroll 1
            for (int i = 0; i < kPasses; ++i) {
                const uint64_t from = base + bytes(i * kStep % kPage, p.k_cache_stride[3]) + bytes(table[i * kStep / kPage], p.k_cache_stride[0]);
                copy<16>(target + 16 * i * kStep, from, own + i * kStep >= at.low && own + i * kStep < at.high);
            }
        }
    }

    // V of tokens [token, token + kTokensOfStage), a token's dimensions or a dimension's tokens side by side.
    __device__ __forceinline__ void copy_values(const Tile& at, int token, unsigned char* to) const {
        const int32_t* table = s.table[at.slot][at.buffer];
        const int tile = kPage > kTile ? at.origin % kPage : 0;  // a page may hold several tiles
        if constexpr (kRows) {
            constexpr int kCopies = S::kTokensOfStage * kVectors, kPasses = (kCopies + S::kLanes - 1) / S::kLanes;
#pragma unroll
            for (int i = 0; i < kPasses; ++i) {
                const int number = at.thread + i * S::kLanes, t = token + number / kVectors;
                if (kCopies % S::kLanes != 0 && number >= kCopies) continue;
                const uint64_t row = v + bytes(tile + t % kPage, p.v_cache_stride[3]) + number % kVectors * 16;
                copy<16>(to + 16 * number, row + bytes(table[t / kPage], p.v_cache_stride[0]), t >= at.low && t < at.high);
            }
        } else {
            constexpr int kRunLength = kPage < kX ? kPage : kX;  // tokens of a copy
            constexpr int kRuns = S::kTokensOfStage / kRunLength, kStep = S::kLanes / kRuns, kPieces = S::kTokensOfStage / kX;
            static_assert(S::kLanes % kRuns == 0, "a pass takes whole dimensions");
            const int own = at.thread / kRuns, run = at.thread % kRuns * kRunLength, t = token + run;
            uint64_t from = v + bytes(tile + t % kPage, p.v_cache_stride[3]) + bytes(own, p.v_cache_stride[2]) + bytes(table[t / kPage], p.v_cache_stride[0]);
            const bool there = t + kRunLength > at.low && t < at.high;
            unsigned char* target = to + 16 * place_of_value<kPieces>(own, run / kX) + run % kX * kSize;
#pragma unroll
            for (int i = 0; i < (D + kStep - 1) / kStep; ++i) {
                if (D % kStep != 0 && own + i * kStep >= D) continue;
                if (kStep % 8 != 0) target = to + 16 * place_of_value<kPieces>(own + i * kStep, run / kX) + run % kX * kSize;
                copy<kRunLength * kSize>(kStep % 8 != 0 ? target : target + 16 * i * kStep * kPieces, from, there);
                from += bytes(kStep, p.v_cache_stride[2]);
            }
        }
    }
};

// The stages of this thread's tiles in the order of the work, S::ahead(buffers) of them under way.
template <class S>
struct Stream {
    const Copier<S> copier;
    int unit, last_unit;  // whose stages are copied next, and where they end
    const int buffers;
    Tile at;  // that unit's tile
    int stage = 0;  // of that tile
    int buffer = 0;  // of the stage that the work takes next

    // Copies the next stage, where there is one, into a buffer; with a tile's first stage go the page ids of the next tile.
    __device__ __forceinline__ void copy_next(int to) {
        if (unit < last_unit && at.live()) {
            unsigned char* target = copier.s.stage(buffers, at.slot, to);
            if (stage < S::kStagesOfK) {
                if (stage == 0 && unit + 1 < last_unit) copier.copy_table(tile_of<S>(copier.s.row, unit + 1));
                copier.copy_keys(at, stage * S::kVectorsOfStage, target);
            } else {
                copier.copy_values(at, (stage - S::kStagesOfK) * S::kTokensOfStage, target);
            }
            if (++stage == S::kStages) stage = 0, at = tile_of<S>(copier.s.row, ++unit);
        }
        __pipeline_commit();
    }

    __device__ __forceinline__ void begin() {
#pragma unroll 1
        for (int i = 0; i < S::ahead(buffers); ++i) copy_next(i);
    }

    // The next stage for the work. It stays until this is called again.
    __device__ __forceinline__ const unsigned char* next() {
        if (S::kBuffersAlone != S::kBuffers && buffers == S::kBuffersAlone) {
            __pipeline_wait_prior(S::ahead(S::kBuffersAlone) - 1);
        } else {
            __pipeline_wait_prior(S::ahead(S::kBuffers) - 1);
        }
        wait_for_tile<S>();  // everybody's copies are there, and everybody is done with the buffer that comes next
        const int from = buffer;
        copy_next(S::ahead(buffers) == buffers ? from : from == 0 ? buffers - 1 : from - 1);  // from + ahead, around
        buffer = from + 1 == buffers ? 0 : from + 1;
        return copier.s.stage(buffers, thread_of_block() / S::kLanes, from);
    }
};
