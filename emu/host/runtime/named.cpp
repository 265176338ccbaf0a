// Threads that wait for what is counted: mbarriers, and the sixteen numbered barriers of a block (bar.sync, bar.arrive).
#include <algorithm>

#include "check.h"

namespace samebits {

void Worker::hold(Thread* thread, std::vector<unsigned>& waiters) {
  Warp& warp = warps_[thread->linear / 32];
  waiters.push_back(thread->linear);
  warp.held |= 1u << (thread->linear % 32);
  warp.ready &= ~(1u << (thread->linear % 32));
  block_on(thread, warp);
}

void Worker::let_go(std::vector<unsigned>& waiters) {
  for (unsigned linear : waiters) {
    Warp& warp = warps_[linear / 32];
    warp.ready |= 1u << (linear % 32);
    warp.held &= ~(1u << (linear % 32));
    ready_warps_ |= 1u << (linear / 32);
  }
  waiters.clear();
  polls_ = 0;
}

// Threads that have come, where a warp whose lanes all have come counts as a whole one.
unsigned Worker::came(const Named& b) const {
  unsigned count = 0;
  for (unsigned i = 0; i < warp_count_; ++i) {
    bool whole = b.lanes[i] != 0 && (warps_[i].alive & ~b.lanes[i]) == 0;
    count += whole && b.count != 0 ? 32 : unsigned(__builtin_popcount(b.lanes[i]));
  }
  return count;
}

void Worker::named(Thread* thread, unsigned number, unsigned count, bool wait, bool aligned, const Here& here) {
  thread->file = here.file;
  thread->line = here.line;
  thread->op = Op::named_barrier;
  unsigned whole = warp_count_ * 32;
  // bar.sync 0 is __syncthreads(); with a count others may arrive at it without waiting, unless some wait at __syncthreads() already.
  bool plain = count == 0 || (count == whole && arrived_ != 0);
  if (number == 0 && wait && plain) return barrier(thread, Op::syncthreads, 0, here.file, here.line);
  if (number > 15) fail(thread, cudaErrorLaunchFailure, here, "barrier " + std::to_string(number) + " of a block's 16");
  if (count % 32 != 0 || count > whole || (count == 0 && !wait)) {
    fail(thread, cudaErrorLaunchFailure, here, "barrier " + std::to_string(number) + " for " + std::to_string(count) + " threads of a block of " +
                                                   std::to_string(grid_->threads) + ": a multiple of 32 is wanted");
  }
  named_used_ = true;
  Named& b = named_[number];
  uint32_t bit = 1u << (thread->linear % 32), &lanes = b.lanes[thread->linear / 32];
  unsigned before = came(b);
  if (before != 0 && b.count != count) {
    partner = b.waiters.empty() ? nullptr : fiber_of_[b.waiters[0]];
    fail(thread, cudaErrorLaunchFailure, here, "divergent barrier: barrier " + std::to_string(number) + " is for " + std::to_string(count) +
                                                   " threads here and for " + std::to_string(b.count) + " at " + site(b.first.file, b.first.line));
  }
  if (lanes & bit) {
    fail(thread, cudaErrorLaunchFailure, here, "divergent barrier: it arrives at barrier " + std::to_string(number) + " again, for which " +
                                                   std::to_string(count) + " threads have not come yet");
  }
  if (before == 0) b.first = here;
  b.count = count;
  b.aligned = b.aligned || aligned;
  lanes |= bit;
  polls_ = 0;
  uintptr_t place = named_place(number);
  if (Check::active != nullptr) Check::on->gather(*this, thread, place);
  unsigned round = b.round;
  release_named(number);
  if (wait && b.round == round) hold(thread, b.waiters);
  if (Check::active != nullptr && wait) Check::on->pass_phase(*this, thread, place);
}

// What the checks know a numbered barrier by: an address of the block's shared memory at which nothing lies.
uintptr_t Worker::named_place(unsigned number) const { return reinterpret_cast<uintptr_t>(window_) + window_bytes_ - 16 + number; }

void Worker::release_named(unsigned number) {
  Named& b = named_[number];
  unsigned count = came(b);
  if (count == 0 || count < (b.count != 0 ? b.count : alive_)) return;
  if (Check::active != nullptr) {
    for (unsigned i = 0; i < warp_count_ && b.aligned; ++i) {
      unsigned lanes = std::min(32u, grid_->threads - i * 32);
      if (b.lanes[i] == 0 || unsigned(__builtin_popcount(b.lanes[i])) == lanes) continue;
      Check::on->report("barrier divergence", "barrier " + std::to_string(number) + " is reached by some lanes of warp " + std::to_string(i) + " alone",
                        fiber_of_[i * 32 + unsigned(__builtin_ctz(b.lanes[i]))], 0, nullptr, b.first.file, b.first.line);
    }
    Check::on->end_phase(named_place(number));
  }
  std::fill(std::begin(b.lanes), std::end(b.lanes), 0);
  b.aligned = false;
  ++b.round;
  let_go(b.waiters);
}

// Why a thread that is held does not go on.
std::string Worker::held_text(const Thread* thread) const {
  auto waits = [thread](const std::vector<unsigned>& waiters) {
    return std::find(waiters.begin(), waiters.end(), thread->linear) != waiters.end();
  };
  for (const auto& [address, b] : mbarriers_) {
    if (waits(b.waiters)) return b.text();
  }
  for (unsigned i = 0; i < 16; ++i) {
    const Named& b = named_[i];
    if (!waits(b.waiters)) continue;
    return ", number " + std::to_string(i) + ", to which " + std::to_string(came(b)) + " of " + std::to_string(b.count != 0 ? b.count : alive_) +
           " threads have come";
  }
  return "";
}

void named_barrier(unsigned number, unsigned count, bool wait, bool aligned, const char* file, int line) {
  Thread* thread = self();
  static_cast<Worker*>(thread->block)->named(thread, number, count, wait, aligned, {file, line, __builtin_return_address(0), 0});
}

}  // namespace samebits
