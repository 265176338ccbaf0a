// Warp operations: what the last lane of a mask computes for all of them, and what is said where they can never come together.
#include <string.h>

#include <algorithm>

#include "check.h"
#include "gang.h"
#include "worker.h"

namespace samebits {

namespace {

bool same_call(const Warp& warp, uint32_t group, unsigned lane) {
  uint32_t differ = 0;
  for (unsigned i = 0; i < 32; ++i) {
    uint32_t d = (warp.mask[i] ^ warp.mask[lane]) | uint32_t(uint8_t(warp.op[i]) ^ uint8_t(warp.op[lane]));
    differ |= d & (0u - (group >> i & 1u));
  }
  return differ == 0;
}

template <class T, class F>
void reduce(Warp& warp, uint32_t group, F f) {
  T total{};
  bool first = true;
  for (uint32_t left = group; left != 0; left &= left - 1) {
    T v = T(uint32_t(warp.value[__builtin_ctz(left)]));
    total = first ? v : T(f(total, v));
    first = false;
  }
  for (unsigned i = 0; i < 32; ++i) {
    if (group >> i & 1) warp.result[i] = uint32_t(total);
  }
}

void all_lanes(Warp& warp, uint32_t group, uint64_t result) {
  for (unsigned i = 0; i < 32; ++i) {
    if (group >> i & 1) warp.result[i] = result;
  }
}

uint32_t lanes_with(const Warp& warp, uint32_t group, uint64_t value) {
  uint32_t lanes = 0;
  for (unsigned i = 0; i < 32; ++i) lanes |= uint32_t((group >> i & 1) && warp.value[i] == value) << i;
  return lanes;
}

void compute(Warp& warp, Op op, uint32_t group, uint64_t poison) {
  uint32_t nonzero;
  unsigned first = unsigned(__builtin_ctz(group));
  switch (op) {
    case Op::shuffle:
      if (group == 0xFFFFFFFFu) {
        for (unsigned i = 0; i < 32; ++i) warp.result[i] = warp.value[warp.source[i]];
        return;
      }
      for (uint32_t left = group; left != 0; left &= left - 1) {
        unsigned i = unsigned(__builtin_ctz(left)), source = warp.source[i];
        // A lane that takes no part has no value to give: CUDA leaves it undefined, here it is poison.
        warp.result[i] = group >> source & 1 ? warp.value[source] : poison;
      }
      return;
    case Op::ballot:
    case Op::all:
    case Op::any:
      nonzero = group & ~lanes_with(warp, group, 0);
      return all_lanes(warp, group, op == Op::ballot ? nonzero : op == Op::all ? nonzero == group : nonzero != 0);
    case Op::match_any:
      for (unsigned i = 0; i < 32; ++i) {
        if (group >> i & 1) warp.result[i] = lanes_with(warp, group, warp.value[i]);
      }
      return;
    case Op::match_all:
      return all_lanes(warp, group, lanes_with(warp, group, warp.value[first]) == group ? group : 0);
    case Op::reduce_add: return reduce<uint32_t>(warp, group, [](uint32_t a, uint32_t b) { return a + b; });
    case Op::reduce_and: return reduce<uint32_t>(warp, group, [](uint32_t a, uint32_t b) { return a & b; });
    case Op::reduce_or: return reduce<uint32_t>(warp, group, [](uint32_t a, uint32_t b) { return a | b; });
    case Op::reduce_xor: return reduce<uint32_t>(warp, group, [](uint32_t a, uint32_t b) { return a ^ b; });
    case Op::reduce_min_u: return reduce<uint32_t>(warp, group, [](uint32_t a, uint32_t b) { return a < b ? a : b; });
    case Op::reduce_max_u: return reduce<uint32_t>(warp, group, [](uint32_t a, uint32_t b) { return a < b ? b : a; });
    case Op::reduce_min_s: return reduce<int32_t>(warp, group, [](int32_t a, int32_t b) { return a < b ? a : b; });
    case Op::reduce_max_s: return reduce<int32_t>(warp, group, [](int32_t a, int32_t b) { return a < b ? b : a; });
    default: return;
  }
}

std::string hex(uint32_t v) {
  char text[16];
  snprintf(text, sizeof text, "0x%08x", v);
  return text;
}

std::string lanes_text(uint32_t lanes) {
  std::string text;
  for (unsigned i = 0; i < 32; ++i) {
    if (!(lanes >> i & 1)) continue;
    unsigned last = i;
    while (last + 1 < 32 && (lanes >> (last + 1) & 1)) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(i) + (last > i ? "-" + std::to_string(last) : "");
    i = last;
  }
  return text;
}

}  // namespace

// Completes the operation in which `lane` waits if every lane of its mask that has not returned waits in the same one.
bool Worker::complete(Warp& warp, unsigned lane) {
  uint32_t group = warp.mask[lane] & warp.alive;
  if ((warp.waiting & group) != group || !same_call(warp, group, lane)) return false;
  if (group == 0) return false;
  if (Check::active != nullptr) checked_collective(warp, lane, group);
  compute(warp, warp.op[lane], group, 0x0101010101010101u * uint64_t(grid_->poison & 0xFF));
  warp.waiting &= ~group;
  warp.ready |= group;
  polls_ = 0;
  ready_warps_ |= 1u << (&warp - warps_);
  return true;
}

void Worker::foreign_mask(Thread* thread) {
  fail(thread, cudaErrorLaunchFailure, op_name(thread->op) + " (" + site(thread->file, thread->line) + "): mask " + hex(thread->mask) +
                                           " does not name the calling lane " + std::to_string(thread->linear % 32));
}

inline void Worker::collective(Thread* thread, Op op, unsigned source, unsigned mask, uint64_t value, const char* file, int line) {
  unsigned lane = thread->linear % 32;
  Warp& warp = warps_[thread->linear / 32];
  uint32_t bit = 1u << lane;
  thread->file = file;
  thread->line = line;
  thread->op = op;
  thread->mask = mask;
  warp.ready &= ~bit;
  if (__builtin_expect(op == Op::activemask, 0)) {
    warp.converging |= bit;
  } else {
    if (__builtin_expect((mask & bit) == 0, 0)) foreign_mask(thread);
    warp.mask[lane] = mask;
    warp.op[lane] = op;
    warp.source[lane] = uint8_t(source);
    warp.value[lane] = value;
    warp.waiting |= bit;
    if ((warp.waiting & mask & warp.alive) == (mask & warp.alive)) complete(warp, lane);
  }
  block_on(thread, warp);
}

void collective_wait(Thread* t, unsigned op_and_source, unsigned mask, uint64_t value, const char* file, int line) {
  static_cast<Worker*>(t->block)->collective(t, Op(op_and_source & 0xFF), op_and_source >> 8, mask, value, file, line);
}

// Nobody can run: says where everybody waits and for whom.
std::string Worker::deadlock() const {
  std::string text = gang_->several() ? "block " + coordinates(block_idx.x, block_idx.y, block_idx.z) + ": deadlock:" : "deadlock:";
  unsigned groups = 0;
  for (unsigned w = 0; w < warp_count_; ++w) {
    const Warp& warp = warps_[w];
    uint32_t left = warp.waiting | warp.at_barrier | warp.held | warp.across[kCluster].waiting | warp.across[kGrid].waiting;
    while (left != 0) {
      unsigned first = unsigned(__builtin_ctz(left));
      const Thread* t = fiber_of_[w * 32 + first];
      uint32_t group = 0;
      for (unsigned i = first; i < 32; ++i) {
        if (!(left >> i & 1)) continue;
        const Thread* o = fiber_of_[w * 32 + i];
        bool in_barrier = warp.at_barrier >> i & 1;
        bool masked = warp.waiting >> i & 1;
        if (bool(warp.at_barrier >> first & 1) == in_barrier && o->line == t->line && o->op == t->op && (!masked || o->mask == t->mask)) {
          group |= 1u << i;
        }
      }
      left &= ~group;
      if (++groups > 8) continue;
      text += groups == 1 ? " " : "; ";
      text += "warp " + std::to_string(w) + " lanes " + lanes_text(group) + " wait at " + op_name(t->op);
      if (warp.at_barrier >> first & 1) {
        text += " (" + site(t->file, t->line) + ") that " + std::to_string(alive_ - arrived_) + " threads of the block have not reached";
      } else if (t->op == Op::cluster_barrier) {
        text += " (" + site(t->file, t->line) + ") that other threads of the cluster have not reached";
      } else if (warp.held >> first & 1) {
        text += " (" + site(t->file, t->line) + ")" + held_text(t);
      } else if (t->op == Op::grid_barrier) {
        unsigned absent = gang_->absent();
        text += " (" + site(t->file, t->line) + ") that " + (absent != 0 ? std::to_string(absent) + " blocks which have returned" : "other threads of the grid") + " have not reached";
      } else {
        text += " (" + site(t->file, t->line) + ") with mask " + hex(t->mask) + " for lanes " + lanes_text(t->mask & warp.alive & ~group);
      }
    }
  }
  if (groups > 8) text += "; and " + std::to_string(groups - 8) + " more groups";
  return text;
}

bool Worker::waits_within() const {
  return std::any_of(warps_, warps_ + warp_count_, [](const Warp& warp) { return (warp.waiting | warp.at_barrier | warp.held) != 0; });
}

void Worker::record_deadlock() {
  partner = fiber_of_[waiting_thread(false)];
  if (Check::active != nullptr) Check::on->failure(deadlock(), fiber_of_[waiting_thread(true)]);
  record(cudaErrorLaunchFailure, deadlock());
}

}  // namespace samebits
