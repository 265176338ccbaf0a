// paged_decode: decode attention over a paged cache, one query token a sequence, in C13's order of tiles and spans.
//
// A block of four warps serves up to eight query heads of one kv head, so that K and V are read once. kWarps warps share a tile: with one
// warp a tile the block takes whole spans, with four it takes a tile alone. In QK a lane owns 4 / kWarps tokens and every head; in PV it owns
// the head dimensions `dimension(i)` and every head. K and V come through shared memory, copied ahead of the work by the same warps
// (decode_copy.cuh), or by others where few blocks leave room for them (decode_feed.cuh). States of a row that several blocks share are joined in
// a cluster (decode_cluster.cuh), or stored and joined by a second kernel (decode_join.cuh). The bytes depend on none of this (C13).
#include "decode_cluster.cuh"
#include "decode_join.cuh"
#include "decode_balance.cuh"
#include "decode_feed.cuh"
#include "decode_tile.cuh"

// C13.5 for a finished row, after the sink where there is one.
template <class S>
__device__ __forceinline__ void finish(const PagedDecodeParams& p, Block<S>& s, Walk& walk, float (&a)[S::kElements]) {
    const Row& row = s.row;
    const int warp = S::thread() / 32, lane = S::thread() % 32;
    __syncwarp();  // the last weights have been read
    if (lane < row.heads) {
        if (S::kBalances && p.split < 0 && warp == 0) mark_finished(p, row, row.head + lane);
        if (p.sinks != nullptr) s.weights[warp][0][0][lane] = walk.step_sink(p.sinks[row.head + lane]);
        s.weights[warp][0][1][lane].next = walk.l;
        if (warp == 0) write_lse(p, row.n, row.head + lane, walk);
    }
    __syncwarp();
#pragma unroll
    for (int e = 0; e < S::kElements; ++e) {
        int h, d;
        if (!element_of<S>(row, e, &h, &d)) continue;
        if (p.sinks != nullptr) a[e] = join(false, a[e], s.weights[warp][0][0][h], 0.0f);
        write_out(p, row.n, row.head + h, d, a[e], s.weights[warp][0][1][h].next);
    }
}

// C10: a row of no tokens.
template <class S>
__device__ __forceinline__ void finish_empty(const PagedDecodeParams& p, const Row& row) {
    for (int at = static_cast<int>(threadIdx.x); at < row.heads * D; at += S::kThreads) {
        p.out[row.n * p.out_stride[0] + (row.head + at / D) * p.out_stride[1] + at % D] = sb::from_f32<T>(0.0f);
        if (at % D == 0 && p.lse != nullptr) p.lse[row.n * p.lse_stride[0] + (row.head + at / D) * p.lse_stride[1]] = -sb::kInf;
    }
}

// A unit's tiles, whose states lie in shared memory: C13.3; then C13.4, or the span's state is stored. C10: tiles without tokens are skipped.
template <class S>
__device__ __forceinline__ void join_tiles(const PagedDecodeParams& p, Block<S>& s, int unit, Walk& walk, float (&a)[S::kElements]) {
    const Row& row = s.row;
    const int warp = S::thread() / 32, lane = S::thread() % 32;
    const int first_tile = unit * S::kTiles, last_tile = (row.len - 1) / kTile;
    const int from = row.start / kTile > first_tile ? row.start / kTile - first_tile : 0;
    const int to = last_tile - first_tile < S::kTiles ? last_tile - first_tile + 1 : S::kTiles;
    Walk span = {0.0f, 0.0f};
#pragma unroll
    for (int u = 0; u < S::kTiles; ++u) {
        if (u < from || u >= to || lane >= S::kPad) continue;
        const float l = sb::sum_rows(s.rows[u][0][lane], s.rows[u][1][lane], s.rows[u][2][lane], s.rows[u][3][lane]);  // C7
        s.weights[warp][u][0][lane] = span.step(u == from, s.m[u][lane], l);
    }
    if (row.whole && lane < S::kPad) s.weights[warp][0][1][lane] = walk.step(unit == row.first_unit, span.m, span.l);
    __syncwarp();
    const bool whole = from == 0 && to == S::kTiles;
    float span_a[S::kElements];
#pragma unroll
    for (int e = 0; e < S::kElements; ++e) {
        int h, d;
        if (!element_of<S>(row, e, &h, &d)) continue;
        const int at = h * D + d;
        span_a[e] = s.scratch[from][at];
        if (whole) {
#pragma unroll
            for (int u = 1; u < S::kTiles; ++u) span_a[e] = join(false, span_a[e], s.weights[warp][u][0][h], s.scratch[u][at]);
        } else {
#pragma unroll 1
            for (int u = from + 1; u < to; ++u) span_a[e] = join(false, span_a[e], s.weights[warp][u][0][h], s.scratch[u][at]);
        }
    }
    if (S::kClusters && row.cluster) {
        const State<S> state(s);
#pragma unroll
        for (int e = 0; e < S::kElements; ++e) {
            int h, d;
            if (element_of<S>(row, e, &h, &d)) state.a[h * D + d] = span_a[e];
        }
        if (warp == 0 && lane < S::kPad) state.m[lane] = span.m, state.l[lane] = span.l;
        return;
    }
    if (!row.whole) {
        store<S>(p, row, span, span_a, unit);
        return;
    }
#pragma unroll
    for (int e = 0; e < S::kElements; ++e) {
        int h, d;
        if (element_of<S>(row, e, &h, &d)) a[e] = join(unit == row.first_unit, a[e], s.weights[warp][0][1][h], span_a[e]);
    }
}

template <class S>
__device__ __forceinline__ void decode_part(const PagedDecodeParams& p, const Steps& steps, int64_t first_sequence, Block<S>& s) {
    const int thread = S::thread(), units = S::kTiles == 1 ? 1 : static_cast<int>(p.split), first = static_cast<int>(blockIdx.y) * units;
    Part own = {first_sequence + blockIdx.z, static_cast<int>(blockIdx.x), first, first + units};
    const bool alone = S::kBalances && p.split < 0 && p.n == 1;
    if (alone) {
        own = part_alone<S>(p, static_cast<int>(p.max_seq_len));  // a guess, until the length is known
    } else if (S::kBalances && p.split < 0) {
        own = find_part(p, s);
        if (own.n == p.n) return;
    }
    const int64_t n = own.n, g = own.row / S::kHeadBlocks, head = g * kGroup + own.row % S::kHeadBlocks * S::kHeads;
    if (S::kFeeds && threadIdx.x >= S::kThreads) {
        feed(p, steps, s, own, g);
        return;
    }
    const int heads = static_cast<int>((g + 1) * kGroup - head < S::kHeads ? (g + 1) * kGroup - head : S::kHeads);
    // Page ids of the first unit, q and the length are asked for together, the ids before it is known which of them have tokens.
    Stages<S> stages(p, steps, s, s.row, n, g);
    const int asked = own.unit;
    stages.ask(asked);
    constexpr int kOfQ = (S::kPad * D + S::kThreads - 1) / S::kThreads;
    T q[kOfQ];
#pragma unroll
    for (int i = 0; i < kOfQ; ++i) {
        const int at = thread + i * S::kThreads, h = at / D < heads ? at / D : 0;
        q[i] = p.q[n * p.q_stride[0] + (head + h) * p.q_stride[1] + at % D];
    }
    const int len = p.seq_lens[n];
    if (alone) {
        own = part_alone<S>(p, len);
        if (own.end == 0) return;
    }
    if (thread == 0) {
        Row row;
        measure<S::kTiles>(p, n, len, row);
        row.whole = own.unit <= row.first_unit && own.end >= row.units;
        row.head = head, row.heads = heads, row.cluster = shares_in_cluster<S>(row);
        if constexpr (kFp8) {
            row.k_scale = p.k_scale[p.k_scales == 1 ? 0 : g];
            row.v_scale = p.v_scale[p.v_scales == 1 ? 0 : g];
        }
        s.row = row;
    }
#pragma unroll
    for (int i = 0; i < kOfQ; ++i) {
        const int at = thread + i * S::kThreads;
        if (S::kPad * D % S::kThreads == 0 || at < S::kPad * D) s.q[at % D * S::kPad + at / D] = sb::to_f32(q[i]);
    }
    wait_for_feeders<S>();
    const Row& row = s.row;
    if (row.len <= 0) {
        if (blockIdx.y == 0) finish_empty<S>(p, row);
        return;
    }
    int unit = first_unit_of(own, row);
    const int end = end_unit_of(own, row);
    if (unit >= end) {
        if (S::kClusters && row.cluster) join_cluster(p, s);
        return;
    }
    stages.start(asked, unit, end);
    Walk walk = {0.0f, 0.0f};
    float a[S::kElements];
    for (; unit < end; ++unit) {
        const Tile at = tile_of<S>(row, unit, thread / S::kLanes, thread % S::kLanes);
        float s2[S::kTokens][S::kPad] = {};
        if (at.live()) {
#pragma unroll 1
            for (int stage = 0; stage < S::kStagesOfK; ++stage) {
                const unsigned char* keys = stages.next(stage, at, unit, end);
                if (kFp8 && row.k_scale != 1.0f) {
                    add_dot_products<true>(s, at, stage * S::kVectorsOfStage, keys, s2);
                } else {
                    add_dot_products<false>(s, at, stage * S::kVectorsOfStage, keys, s2);
                }
            }
        }
        wait_for_computing<S>();  // the last unit's states have been read
        if (at.live()) {
            make_logits(p, s, at, s2);
            softmax(s, at, s2);
            if (S::kFeeds) wait_for_tile<S>();  // p is there; else the next stage is waited for by the same threads
            float of_tile[S::kDims][S::kHeads] = {};
#pragma unroll 1
            for (int stage = 0; stage < S::kStagesOfV; ++stage) {
                const unsigned char* values = stages.next(S::kStagesOfK + stage, at, unit, end);
                const int token = stage * S::kTokensOfStage;
                if (token < at.low || token + S::kTokensOfStage > at.high) {
                    add_some_values(s, at, token, values, of_tile);
                } else if (kFp8 && row.v_scale != 1.0f) {
                    add_values<true>(s, at, token, values, of_tile);
                } else {
                    add_values<false>(s, at, token, values, of_tile);
                }
            }
            put_values(s, at, of_tile);
        }
        wait_for_computing<S>();
        join_tiles(p, s, unit, walk, a);
    }
    if (row.whole) finish(p, s, walk, a);
    if (S::kClusters && row.cluster) join_cluster(p, s);
}

template <class S>
__global__ void __launch_bounds__(S::kAllThreads, S::kResident) decode(const PagedDecodeParams p, const Steps steps, const int64_t first_sequence) {
    extern __shared__ __align__(128) unsigned char memory[];
    if constexpr (!S::kFeeds || kHopper) decode_part(p, steps, first_sequence, *reinterpret_cast<Block<S>*>(memory));
}

constexpr int64_t kMaxGrid = 65535;  // blocks along y and z

// Dynamic shared memory beyond 48 KiB has to be asked for.
template <typename Kernel>
cudaError_t allow_shared_memory(Kernel* kernel, int bytes) {
    return bytes > 48 * 1024 ? cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) : cudaSuccess;
}

// Blocks that share a row of max_seq_len tokens.
template <class S>
int64_t shares(const PagedDecodeParams& p) {
    const int64_t unit = S::kTiles == 1 ? kTile : (p.split > 1 ? p.split : 1) * kSpan * kTile;
    return p.max_seq_len > unit ? (p.max_seq_len + unit - 1) / unit : 1;
}

// Whether the blocks of a row form clusters: where they hold a state each and every block has a multiprocessor alone. Those of a cluster lie
// in one part of the GPU, which may leave an eighth of the others idle; pairs always fit.
template <class S>
bool choose_cluster(const PagedDecodeParams& p, int64_t blocks, int multiprocessors) {
    if (!S::kClusters || p.split > 1 || blocks == 1 || blocks > 8) return false;
    return p.n * p.g * S::kHeadBlocks * blocks <= (blocks == 2 ? multiprocessors : multiprocessors / 8 * 7);
}

template <class S>
cudaError_t launch(const PagedDecodeParams& p, int multiprocessors, cudaStream_t stream) {
    const int64_t blocks = shares<S>(p);
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {1, static_cast<unsigned>(blocks), 1};
    cudaLaunchConfig_t config = {};
    config.blockDim = dim3(S::kAllThreads);
    config.dynamicSmemBytes = sizeof(Block<S>);
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = choose_cluster<S>(p, blocks, multiprocessors);
    cudaError_t failed = allow_shared_memory(decode<S>, sizeof(Block<S>));
    const bool balanced = p.split < 0;
    for (int64_t first = 0; first < p.n && failed == cudaSuccess; first = balanced ? p.n : first + kMaxGrid) {
        const unsigned sequences = static_cast<unsigned>(p.n - first < kMaxGrid ? p.n - first : kMaxGrid);
        config.gridDim = dim3(static_cast<unsigned>(p.g * S::kHeadBlocks), static_cast<unsigned>(blocks), sequences);
        if (balanced) config.gridDim = dim3(static_cast<unsigned>(p.n * p.g * S::kHeadBlocks - p.split));  // whole rows, and further parts
        failed = cudaLaunchKernelEx(&config, decode<S>, p, Steps(p), first);
        if (failed == cudaSuccess) failed = cudaGetLastError();  // of the run too, where the launch has waited for it
    }
    if (failed != cudaSuccess || blocks == 1 || config.numAttrs > 0) return failed;
    const int stored = static_cast<int>((p.states < kStates ? p.states : kStates) * D * sizeof(float));
    failed = allow_shared_memory(join_states<S::kTiles>, stored);
    if (failed != cudaSuccess) return failed;
    const unsigned cuts = D % 16 == 0 && 2 * p.n * p.h <= multiprocessors ? 4 : 1;  // of a head's dimensions
    join_states<S::kTiles><<<dim3(static_cast<unsigned>(p.n), static_cast<unsigned>(p.h), cuts), kJoiners, stored, stream>>>(p);
    return cudaGetLastError();
}

extern "C" int paged_decode(const PagedDecodeParams* params, void* stream) {
    PagedDecodeParams p = *params;
    if (p.n == 0 || p.h == 0) return 0;  // an empty grid cannot be launched
    int device = 0, multiprocessors = 0, architecture = 0, shared = 0;
    cudaError_t failed = cudaGetDevice(&device);
    if (failed == cudaSuccess) failed = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (failed == cudaSuccess) failed = cudaDeviceGetAttribute(&architecture, cudaDevAttrComputeCapabilityMajor, device);
    if (failed == cudaSuccess) failed = cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (failed != cudaSuccess) return failed;
    const auto fits = [&](auto shape) { return sizeof(Block<decltype(shape)>) <= static_cast<size_t>(shared); };
    const auto run = [&](auto shape) { return launch<decltype(shape)>(p, multiprocessors, static_cast<cudaStream_t>(stream)); };
    // A tile a block: two heads of it, or four, where blocks of two would have to share multiprocessors.
    using Two = Shape<4, 1, 2>;
    using Four = Shape<4, 1, (kGroup > 2 ? 4 : 2)>;
    using Few = Shape<2, 4>;
    const bool many = p.n * p.g * Two::kHeadBlocks * shares<Two>(p) > multiprocessors;
    if (p.split == 0 && many && fits(Four())) return run(Four());
    if (p.split == 0 && fits(Two())) return run(Two());
    if (p.split < 0) return run(Shape<1, 4>());
    if (p.split == 0) p.split = 1;
    const int64_t blocks = p.n * p.g * Few::kHeadBlocks * shares<Few>(p);
    if (p.warps == 1 || (p.warps == 0 && blocks > multiprocessors) || architecture < 9 || !fits(Few())) return run(Shape<1, 4>());
    if (kGroup > 4 && 2 * blocks <= multiprocessors) return run(Shape<2, 4, (kGroup > 4 ? 4 : 8)>());  // half of the heads a block
    return run(Few());
}
