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

// base + count * step (C16), one instruction. What numbers of 32 bits hold is asked of strides before the launch (decode_spec.py).
__device__ __forceinline__ uint64_t offset(uint64_t base, int count, unsigned step) {
#if defined(__CUDA_ARCH__) && !defined(__SAMEBITS__)
    uint64_t sum;
    asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(sum) : "r"(count), "r"(step), "l"(base));
    return sum;
#else
    return base + static_cast<uint64_t>(static_cast<unsigned>(count)) * step;
#endif
}

// Keeps a value in a register: the compiler would rather compute it again at every use.
__device__ __forceinline__ int kept(int value) {
#if defined(__CUDA_ARCH__) && !defined(__SAMEBITS__)
    asm volatile("" : "+r"(value));
#endif
    return value;
}

// Brings K and V of one kv head: the stages of this thread's tiles in the order of the work, S::kAhead of them under way.
template <class S>
struct Stream {
    // K: a pass copies the stage's pieces (16 bytes) of kStep tokens. Neighbouring threads take what is likely to lie side by side: a token's
    // pieces, or a piece's tokens.
    static constexpr int kPieces = S::kVectorsOfStage, kStep = S::kCopiers / kPieces;
    // V, a dimension's tokens side by side: a pass copies a run of tokens of each of kDimStep dimensions.
    static constexpr int kRunLength = kPage < kX ? kPage : kX, kRuns = S::kTokensOfStage / kRunLength;
    static constexpr int kDimStep = kRows ? 1 : S::kCopiers / kRuns;
    static_assert(kRows || S::kCopiers % kRuns == 0, "a pass takes whole dimensions");

    const PagedDecodeParams& p;
    Block<S>& s;
    const Row& row;
    Steps steps;
    const int32_t* const table;  // page ids of the sequence
    uint64_t keys, values;  // what this thread copies of page 0: its first bytes
    int keys_to, values_to;  // and where they go to in a stage
    const int slot, thread;  // the tile of a unit that this thread copies, and its number among those that do
    int buffer = 0;  // of the stage that the work takes next

    __device__ __forceinline__ Stream(const PagedDecodeParams& params, const Steps& bytes, Block<S>& block, const Row& of, int64_t n, int64_t g)
        : p(params), s(block), row(of), steps(bytes), table(p.block_tables + n * p.block_tables_stride[0]),
          slot(S::fed_slot()), thread(S::fed_thread()) {
        if (kDense) steps.k_vector = kPage * 16, steps.k_token = 16, steps.v_dim = kPage * kSize;
        if (!kRows) steps.v_token = kSize;
        keys = reinterpret_cast<uint64_t>(p.k_cache + g * p.k_cache_stride[1]);
        keys = offset(offset(keys, piece(), steps.k_vector), token() % (kPage < kStep ? kPage : kStep), steps.k_token);
        values = reinterpret_cast<uint64_t>(p.v_cache + g * p.v_cache_stride[1]);
        if (!kRows) values = offset(offset(values, thread / kRuns, steps.v_dim), run() % kPage, steps.v_token);
        keys_to = kept(16 * place_of_key<kPieces>(token(), piece()));
        values_to = kept(kRows ? 16 * thread : place_of_run(thread / kRuns));
    }

    // This thread's first place in a pass over K, and over V.
    __device__ __forceinline__ int piece() const { return kRows ? thread % kPieces : thread / kStep; }
    __device__ __forceinline__ int token() const { return kRows ? thread / kPieces : thread % kStep; }
    __device__ __forceinline__ int run() const { return thread % kRuns * kRunLength; }

    // Where a dimension's run of tokens goes to in a stage.
    __device__ __forceinline__ int place_of_run(int dim) const {
        return 16 * place_of_value<(kRows ? 1 : S::kTokensOfStage / kX)>(dim, run() / kX) + run() % kX * kSize;
    }

    __device__ __forceinline__ Tile tile(int unit) const { return tile_of<S>(row, unit, slot, thread); }

    // Asks for the page ids of a unit. Those of tokens that take no part come with the others and are not used.
    __device__ __forceinline__ void ask(int unit) const {
        const int first = (unit * S::kTiles + slot) * kTile / kPage;
#pragma unroll 1
        for (int i = thread; i < kTable; i += S::kCopiers) {
            copy<4>(&s.table[slot][unit & 1][i], reinterpret_cast<uint64_t>(table + first + i), first + i < p.max_pages);
        }
    }

    // The first of units [first_unit, end) in which this tile has tokens, if it is not `end`, with its page ids; those of own_unit have been asked
    // for.
    __device__ __forceinline__ int begin(int own_unit, int first_unit, int end) {
        const int unit = tile(first_unit).live() ? first_unit : first_unit + 1;
        if (unit != own_unit && unit < end) {
            __pipeline_commit();
            __pipeline_wait_prior(0);  // copies to one place come in no order
            ask(unit);
        }
        __pipeline_commit();
        __pipeline_wait_prior(0);
        wait_for_copiers<S>();
        return unit;
    }

    // Copies the first stages.
    __device__ __forceinline__ void start(int own_unit, int first_unit, int end) {
        const int unit = begin(own_unit, first_unit, end);
#pragma unroll 1
        for (int i = 0; i < S::kAhead; ++i) {
            copy_stage_of(unit, i, end, i);
            __pipeline_commit();
        }
    }

    // Stage `stage` of the tile that is worked on, and copies the stage that is kAhead further. It stays until this is called again.
    __device__ __forceinline__ const unsigned char* next(int stage, const Tile& at, int unit, int end) {
        __pipeline_wait_prior(S::kAhead - 1);
        wait_for_tile<S>();  // everybody's copies are there, and everybody is done with the buffer that comes next
        const int from = buffer, further = stage + S::kAhead;
        const int to = S::kAhead == S::kBuffers ? from : from == 0 ? S::kBuffers - 1 : from - 1;  // from + ahead, around
        if (further < S::kStages) {
            copy_stage(further, at, to);
        } else {
            copy_stage_of(unit + 1, further - S::kStages, end, to);
        }
        __pipeline_commit();
        buffer = from + 1 == S::kBuffers ? 0 : from + 1;
        return s.stage[at.slot][from];
    }

    // Copies a stage of a unit, if there is one and this tile has tokens in it; with a tile's first stage go the page ids of the next tile.
    __device__ __forceinline__ void copy_stage_of(int unit, int stage, int end, int to) const {
        if (unit >= end) return;
        const Tile at = tile(unit);
        if (!at.live()) return;
        if (stage == 0 && unit + 1 < end) ask(unit + 1);
        copy_stage(stage, at, to);
    }

    // Copies a stage of a tile into a buffer.
    __device__ __forceinline__ void copy_stage(int stage, const Tile& at, int to) const {
        unsigned char* target = s.stage[at.slot][to];
        if (stage < S::kStagesOfK) {
            copy_keys(stage * kPieces, at, target);
        } else {
            copy_values((stage - S::kStagesOfK) * S::kTokensOfStage, at, target);
        }
    }

    // Tokens of a page before the tile: a page may hold several tiles.
    __device__ __forceinline__ int before_tile(const Tile& at) const { return kPage > kTile ? at.origin % kPage : 0; }

    // Vectors [vector, vector + kPieces) of every token's K.
    __device__ __forceinline__ void copy_keys(int vector, const Tile& at, unsigned char* to) const {
        constexpr int kPasses = kTile / kStep;
        const int own = token();
        const uint64_t base = offset(offset(keys, vector, steps.k_vector), before_tile(at), steps.k_token);
        const int32_t* ids = &s.table[at.slot][at.buffer][own / kPage];
        unsigned char* target = to + keys_to;
        if (kVectors % kPieces != 0 && vector + piece() >= kVectors) return;
        if (at.whole()) {
            int32_t page[kPasses];
#pragma unroll
            for (int i = 0; i < kPasses; ++i) page[i] = ids[i * kStep / kPage];
#pragma unroll
            for (int i = 0; i < kPasses; ++i) {
                copy<16>(target + 16 * i * kStep, offset(offset(base, i * kStep % kPage, steps.k_token), page[i], steps.k_page), true);
            }
        } else {
#pragma unroll 1
            for (int i = 0; i < kPasses; ++i) {
                const uint64_t from = offset(offset(base, i * kStep % kPage, steps.k_token), ids[i * kStep / kPage], steps.k_page);
                copy<16>(target + 16 * i * kStep, from, own + i * kStep >= at.low && own + i * kStep < at.high);
            }
        }
    }

    // V of tokens [token, token + kTokensOfStage), a token's dimensions or a dimension's tokens side by side.
    __device__ __forceinline__ void copy_values(int token, const Tile& at, unsigned char* to) const {
        const int32_t* ids = s.table[at.slot][at.buffer];
        if constexpr (kRows) {
            constexpr int kCopies = S::kTokensOfStage * kVectors, kPasses = (kCopies + S::kCopiers - 1) / S::kCopiers;
#pragma unroll
            for (int i = 0; i < kPasses; ++i) {
                const int number = at.thread + i * S::kCopiers, t = token + number / kVectors;
                if (kCopies % S::kCopiers != 0 && number >= kCopies) continue;
                const uint64_t from = offset(offset(values, ids[t / kPage], steps.v_page), before_tile(at) + t % kPage, steps.v_token);
                copy<16>(to + values_to + 16 * i * S::kCopiers, from + number % kVectors * 16, t >= at.low && t < at.high);
            }
        } else {
            const int t = token + run();
            const int inner = before_tile(at) + (kPage > S::kTokensOfStage ? token % kPage : 0);
            const uint64_t from = offset(offset(values, inner, steps.v_token), ids[static_cast<unsigned>(t) / kPage], steps.v_page);
            const bool there = t + kRunLength > at.low && t < at.high;
            constexpr int kPieces = S::kTokensOfStage / kX;  // of a dimension
#pragma unroll
            for (int i = 0; i < (D + kDimStep - 1) / kDimStep; ++i) {
                const int dim = at.thread / kRuns + i * kDimStep;
                if (D % kDimStep != 0 && dim >= D) continue;
                const int place = kDimStep % 8 == 0 ? values_to + 16 * i * kDimStep * kPieces : place_of_run(dim);
                copy<kRunLength * kSize>(to + place, offset(from, i * kDimStep, steps.v_dim), there);
            }
        }
    }
};
