// Blocks of paged_decode in which warps of their own copy K and V, one for each tile: the warps that compute neither ask for addresses nor wait
// for each other. An mbarrier of every buffer counts the copies of its stage, another the warps that are done with it.
#pragma once

#include "decode_cluster.cuh"
#include "decode_copy.cuh"

__device__ __forceinline__ unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void init_mbarrier(uint64_t* bar, int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void arrive(uint64_t* bar) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
}

// One arrival of this thread, as soon as all that it has copied is there.
__device__ __forceinline__ void arrive_with_copies(uint64_t* bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(bar)) : "memory");
}

// Waits for the end of the phase of this parity.
__device__ __forceinline__ void wait(uint64_t* bar, unsigned parity) {
    unsigned done = 0;
    while (!done) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(shared_address(bar)), "r"(parity) : "memory");
    }
}

// A place in the ring of buffers, and the parity of the round.
template <class S>
struct Turn {
    int buffer = 0;
    unsigned round = 0;

    __device__ __forceinline__ void advance() {
        if (++buffer == S::kBuffers) buffer = 0, round ^= 1;
    }
};

// The stages of this thread's tiles as the warps take them that compute: Stream's part for them.
template <class S>
struct Reader {
    Block<S>& s;
    const int slot, lane;
    Turn<S> turn;
    int last = -1;  // the buffer that has been read

    __device__ __forceinline__ Reader(const PagedDecodeParams&, const Steps&, Block<S>& block, const Row&, int64_t, int64_t)
        : s(block), slot(S::thread() / S::kLanes), lane(S::thread() % 32) {}
    __device__ __forceinline__ void ask(int) {}
    __device__ __forceinline__ void start(int, int, int) {}

    // The next stage. It stays until this is called again.
    __device__ __forceinline__ const unsigned char* next(int, const Tile&, int, int) {
        if (last >= 0) {
            __syncwarp();
            if (lane == 0) arrive(&s.empty[slot * S::kBuffers + last]);
        }
        last = turn.buffer;
        wait(&s.full[slot * S::kBuffers + last], turn.round);
        turn.advance();
        return s.stage[slot][last];
    }
};

template <class S>
using Stages = std::conditional_t<S::kFeeds, Reader<S>, Stream<S>>;

// What a warp does that copies a tile of every unit of the block. It measures the row by itself and waits for nobody before it starts.
template <class S>
__device__ __forceinline__ void feed(const PagedDecodeParams& p, const Steps& steps, Block<S>& s, const Part& own, int64_t g) {
    Row row;
    Stream<S> stream(p, steps, s, row, own.n, g);
    stream.ask(own.unit);
    measure<S::kTiles>(p, own.n, p.seq_lens[own.n], row);
    uint64_t *full = &s.full[stream.slot * S::kBuffers], *empty = &s.empty[stream.slot * S::kBuffers];
    if (stream.thread == 0) {
#pragma unroll
        for (int i = 0; i < S::kBuffers; ++i) {
            init_mbarrier(&full[i], S::kCopiers);
            init_mbarrier(&empty[i], S::kWarps);
        }
    }
    __syncwarp();
    arrive_at<S::kAllThreads>(2 + S::kTiles);  // those that compute may use the mbarriers
    const int end = end_unit_of(own, row);
    int unit = stream.begin(own.unit, first_unit_of(own, row), end);
    Turn<S> turn;
    for (; unit < end && stream.tile(unit).live(); ++unit) {
        __pipeline_wait_prior(0);
        __syncwarp();  // the page ids are there, and everybody is done with those that come next
        if (unit + 1 < end) stream.ask(unit + 1);
        __pipeline_commit();
        const Tile at = stream.tile(unit);
        for (int stage = 0; stage < S::kStages; ++stage) {
            wait(&empty[turn.buffer], turn.round ^ 1);  // of the round before; in the first nothing is waited for
            stream.copy_stage(stage, at, turn.buffer);
            if constexpr (kSmallestCopy < 4) {  // which is no copy that an mbarrier could wait for
                __pipeline_commit();
                __pipeline_wait_prior(0);
                arrive(&full[turn.buffer]);
            } else {
                arrive_with_copies(&full[turn.buffer]);
            }
            turn.advance();
        }
    }
    row.cluster = shares_in_cluster<S>(row);
    attend_join<S>(row);
}
