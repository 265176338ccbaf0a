// Which thread of a block runs next: blocks, barriers and the end of threads.
#include <string.h>

#include <algorithm>
#include <exception>

#include "check.h"
#include "device.h"
#include "gang.h"
#include "worker.h"

namespace samebits {

uint64_t mix(uint64_t z) {  // splitmix64
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// A permutation of 0..n-1 without a table: a Feistel network over the next even number of bits, walked until it falls below n.
uint64_t permute(uint64_t i, uint64_t n, uint64_t seed) {
  if (n < 2) return i;
  unsigned half = (64 - unsigned(__builtin_clzll(n - 1)) + 1) / 2;
  uint64_t low = (uint64_t(1) << half) - 1;
  do {
    uint64_t left = i >> half, right = i & low;
    for (unsigned round = 0; round < 4; ++round) {
      uint64_t next = left ^ (mix(right ^ mix(seed + round)) & low);
      left = right;
      right = next;
    }
    i = (left << half) | right;
  } while (i >= n);
  return i;
}

Shuffle shuffle;
Prefer prefer;

int Worker::pick_slow() {
  if (alive_ == 0) return -1;
  while (ready_warps_ == 0) gang_->suspend(*this);  // for ever if no other block can help
  if (order_ == Order::reverse) {
    uint32_t lanes = warps_[current_].ready;
    if (lanes == 0) {
      current_ = 31u - unsigned(__builtin_clz(ready_warps_));
      lanes = warps_[current_].ready;
    }
    return int(current_ * 32 + 31u - unsigned(__builtin_clz(lanes)));
  }
  return order_ == Order::shuffle ? pick_shuffled() : pick_preferred();
}

namespace {
unsigned nth(uint32_t bits, unsigned n) {
  while (n-- > 0) bits &= bits - 1;
  return unsigned(__builtin_ctz(bits));
}
}  // namespace

int Worker::pick_preferred() {
  auto choose = [](uint32_t ready, Mixed which) {
    uint32_t bit = prefer.which == which ? 1u << (prefer.index % 32) : 0, others = ready & ~bit;
    if ((ready & bit) != 0 && (prefer.first || others == 0)) return prefer.index % 32;
    return unsigned(__builtin_ctz(others));
  };
  current_ = prefer.which != kWarps && warps_[current_].ready != 0 ? current_ : choose(ready_warps_, kWarps);
  return int(current_ * 32 + choose(warps_[current_].ready, kLanes));
}

int Worker::pick_shuffled() {
  random_ = mix(random_);
  if (started_ && (shuffle.mixed & kBlocks) && random_ % 64 == 0 && gang_->several()) gang_->suspend(*this);
  unsigned forward = warps_[current_].ready != 0 ? current_ : unsigned(__builtin_ctz(ready_warps_)), warp = forward;
  if (shuffle.mixed & kWarps) warp = nth(ready_warps_, unsigned(random_ >> 32) % unsigned(__builtin_popcount(ready_warps_)));
  uint32_t lanes = warps_[warp].ready;
  unsigned lane = unsigned(__builtin_ctz(lanes));
  if (shuffle.mixed & kLanes) lane = nth(lanes, unsigned(random_) % unsigned(__builtin_popcount(lanes)));
  unsigned usual = forward * 32 + unsigned(__builtin_ctz(warps_[forward].ready)), chosen = warp * 32 + lane;
  if (chosen != usual) {
    uint64_t index = shuffle.made++;
    if (index < shuffle.from || index >= shuffle.to) chosen = usual;
    if (index + 1 == shuffle.to) snprintf(shuffle.last, sizeof shuffle.last, "%s", decision(chosen, usual).c_str());
  }
  current_ = chosen / 32;
  return int(chosen);
}

std::string Worker::decision(unsigned chosen, unsigned usual) const {
  auto place = [this](unsigned linear) {
    std::string text = "thread " + coordinates(linear % block_dim.x, linear / block_dim.x % block_dim.y, linear / block_dim.x / block_dim.y);
    const Thread* t = stack_pointer_[linear] != nullptr ? fiber_of_[linear] : nullptr;
    return text + (t == nullptr ? " from its start" : t->file != nullptr ? " from " + site(t->file, t->line) : "");
  };
  return std::string(grid_->kernel->name) + ", block " + coordinates(block_idx.x, block_idx.y, block_idx.z) + ": " + place(chosen) + " before " + place(usual);
}

int Worker::pick_after(unsigned linear) {
  unsigned warp = linear / 32, lane = linear % 32;
  uint32_t lanes = lane == 31 ? 0 : warps_[warp].ready & (0xFFFFFFFEu << lane);
  for (unsigned i = 1; lanes == 0 && i <= warp_count_; ++i) {
    current_ = (warp + i) % warp_count_;
    lanes = warps_[current_].ready;
  }
  if (lanes == 0) return int(linear);
  return int(current_ * 32 + unsigned(__builtin_ctz(lanes)));
}

bool Worker::add_fiber() {
  Thread* thread = stacks_.create(this);
  if (thread == nullptr) {
    record(cudaErrorMemoryAllocation, "no memory for the stack of one more thread");
    return false;
  }
  free_.push_back({thread, prepare_stack(thread, fiber_main)});
  return true;
}

void* Worker::acquire(unsigned linear) {
  if (free_.empty() && !add_fiber()) leave();
  Fiber fiber = free_.back();
  free_.pop_back();
  fiber.thread->linear = linear;
  fiber_of_[linear] = fiber.thread;
  return fiber.stack_pointer;
}

// Atomics that change nothing, again and again, and nobody in the block who gets anywhere.
void Worker::check_patience(Thread* thread, const void* pc) {
  double now = now_ms();
  if (polls_ == 4096) polling_since_ = now;
  if (now - std::max(polling_since_, gang_->idle_since()) <= grid_->patience_ms) return;
  fail(thread, cudaErrorLaunchTimeout, pc, "it polls memory that nobody changes: all blocks that the device holds have started");
}

void Worker::yield(Thread* thread, const void* pc) {
  if (++polls_ % 4096 == 0) check_patience(thread, pc);
  if (++turns_ % 64 == 0) gang_->let_others(*this);
  unsigned next = unsigned(pick_after(thread->linear));
  current_ = next / 32;
  go_to(thread, next);
}

// Threads that have returned are missed by nobody: barriers and masks count those that have not (PTX bar.sync since sm_70; __shfl_sync).
inline void Worker::finish(Thread* thread) {
  if (__builtin_expect(async_used_, 0)) finish_async(thread);
  Warp& warp = warps_[thread->linear / 32];
  uint32_t bit = 1u << (thread->linear % 32);
  warp.alive &= ~bit;
  warp.ready &= ~bit;
  --alive_;
  polls_ = 0;
  for (uint32_t left = warp.waiting; left != 0;) {
    unsigned lane = unsigned(__builtin_ctz(left));
    left &= ~warp.mask[lane];
    complete(warp, lane);
  }
  if (arrived_ != 0 && arrived_ == alive_) release_barrier();
  for (unsigned i = 0; named_used_ && i < 16; ++i) release_named(i);
  if (Check::active != nullptr) Check::on->finish(*this, *thread);
  if (__builtin_expect((came_[kCluster] | came_[kGrid]) != 0, 0)) leave_across(thread->linear);
  if (warp.ready == 0) idle(warp);
}

// A fiber runs one thread after the other with plain calls, until one of them waits; then the next threads need fibers of their own.
void fiber_main() {
  Thread* thread = self();
  Worker& worker = *static_cast<Worker*>(thread->block);
  for (;;) {
    const dim3& d = worker.block_dim;
    unsigned linear = thread->linear;
    thread->spins = 0;
    thread->result = &worker.warps_[linear / 32].result[linear % 32];
    if (d.y == 1 && d.z == 1) {
      thread->index = {linear, 0, 0};
    } else {
      thread->index = {linear % d.x, linear / d.x % d.y, linear / d.x / d.y};
    }
    try {
      worker.grid_->run(worker.grid_->closure);
    } catch (const std::exception& e) {
      worker.fail(thread, cudaErrorLaunchFailure, std::string("device code threw: ") + e.what());
    } catch (...) {
      worker.fail(thread, cudaErrorLaunchFailure, "device code threw an exception");
    }
    worker.finish(thread);
    int next = worker.pick();
    if (next >= 0 && worker.stack_pointer_[next] == nullptr) {
      thread->linear = unsigned(next);
      worker.fiber_of_[next] = thread;
      continue;
    }
    worker.free_.push_back({thread, nullptr});
    switch_stack(&worker.free_.back().stack_pointer, next < 0 ? worker.gang_->main() : worker.stack_pointer_[next]);
  }
}

void Worker::idle(Warp& warp) {
  if (warp.converging == 0) {
    ready_warps_ &= ~(1u << (&warp - warps_));
    return;
  }
  // All lanes that came to the same __activemask() while the warp had anything else to do are taken to have come together.
  unsigned base = unsigned(&warp - warps_) * 32;
  const Thread* first = fiber_of_[base + unsigned(__builtin_ctz(warp.converging))];
  uint32_t group = 0;
  for (uint32_t left = warp.converging; left != 0; left &= left - 1) {
    unsigned lane = unsigned(__builtin_ctz(left));
    const Thread* t = fiber_of_[base + lane];
    if (t->line == first->line && t->file == first->file) group |= 1u << lane;
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (group >> lane & 1) warp.result[lane] = group;
  }
  warp.converging &= ~group;
  warp.ready |= group;
}

void Worker::diverge(Thread* thread) {
  const Thread* other = partner = fiber_of_[barrier_first_];
  fail(thread, cudaErrorLaunchFailure,
       "divergent barrier: it is at " + op_name(thread->op) + " (" + site(thread->file, thread->line) + ") while thread " +
           coordinates(other->index.x, other->index.y, other->index.z) + " waits at " + op_name(barrier_op_) + " (" +
           site(barrier_file_, barrier_line_) + ")");
}

inline void Worker::barrier(Thread* thread, Op op, int predicate, const char* file, int line) {
  thread->file = file;
  thread->line = line;
  thread->op = op;
  if (arrived_ == 0) {
    barrier_op_ = op;
    barrier_file_ = file;
    barrier_line_ = line;
    barrier_first_ = thread->linear;
    predicates_ = 0;
  } else if (__builtin_expect(line != barrier_line_ || op != barrier_op_ || file != barrier_file_, 0)) {
    if (line != barrier_line_ || op != barrier_op_ || strcmp(file, barrier_file_) != 0) diverge(thread);
  }
  ++arrived_;
  predicates_ += predicate != 0;
  Warp& warp = warps_[thread->linear / 32];
  uint32_t bit = 1u << (thread->linear % 32);
  warp.at_barrier |= bit;
  warp.ready &= ~bit;
  if (arrived_ == alive_) release_barrier();
  block_on(thread, warp);
}

void barrier(Thread* t, Op op, int predicate, const char* file, int line) {
  static_cast<Worker*>(t->block)->barrier(t, op, predicate, file, line);
}

void Worker::release_barrier() {
  if (Check::active != nullptr) checked_barrier();
  switch (barrier_op_) {
    case Op::syncthreads_and: barrier_result = predicates_ == arrived_; break;
    case Op::syncthreads_or: barrier_result = predicates_ != 0; break;
    default: barrier_result = int(predicates_);
  }
  for (unsigned i = 0; i < warp_count_; ++i) {
    Warp& warp = warps_[i];
    if (warp.at_barrier == 0) continue;
    warp.ready |= warp.at_barrier;
    warp.at_barrier = 0;
    ready_warps_ |= 1u << i;
  }
  arrived_ = 0;
  polls_ = 0;
  current_ = order_ == Order::reverse ? warp_count_ - 1 : 0;
}

}  // namespace samebits
