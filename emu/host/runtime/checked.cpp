// What the scheduler tells the checks: barriers, warp operations, failures.
#include <link.h>
#include <string.h>

#include <algorithm>

#include "check.h"

namespace samebits {

void Worker::checked_barrier() {
  if (arrived_ != grid_->threads) {
    const Thread* first = fiber_of_[barrier_first_];
    Check::on->report("barrier divergence",
                      op_name(barrier_op_) + " is reached by " + std::to_string(arrived_) + " of the block's " + std::to_string(grid_->threads) +
                          " threads: the others have returned",
                      first, 0, nullptr, barrier_file_, barrier_line_);
  }
  Check::on->barrier(*this, arrived_ == grid_->threads);
}

void Worker::checked_collective(Warp& warp, unsigned lane, uint32_t group) {
  unsigned number = unsigned(&warp - warps_);
  const Thread* thread = fiber_of_[number * 32 + lane];
  uint32_t mask = warp.mask[lane], lanes = grid_->threads - number * 32 >= 32 ? 0xFFFFFFFFu : (1u << (grid_->threads - number * 32)) - 1;
  if ((mask & lanes) != group) {
    Check::on->report("mask", op_name(warp.op[lane]) + ": its mask names lanes " + std::to_string(__builtin_ctz(mask & lanes & ~group)) +
                                  " and others that have returned",
                      thread, 0, nullptr, thread->file, thread->line);
  }
  if (warp.op[lane] == Op::shuffle) {
    bool useless = true;
    for (uint32_t left = group; left != 0; left &= left - 1) {
      useless = useless && !(group >> warp.source[unsigned(__builtin_ctz(left))] & 1);
    }
    if (useless) {
      Check::on->report("mask", op_name(Op::shuffle) + ": every lane of the mask reads a lane that is not in it", thread, 0, nullptr, thread->file,
                        thread->line);
    }
  }
  if (warp.op[lane] == Op::syncwarp) Check::on->warp_barrier(*this, number, group);
}

// Of those that wait for ever, one at a barrier or in a warp operation; of the other kind where there is none.
unsigned Worker::waiting_thread(bool at_barrier) const {
  unsigned found = 0;
  for (unsigned w = 0; w < warp_count_; ++w) {
    uint32_t across = warps_[w].across[kCluster].waiting | warps_[w].across[kGrid].waiting;
    uint32_t held = warps_[w].at_barrier | warps_[w].held | across;
    uint32_t wanted = at_barrier ? held : warps_[w].waiting, others = at_barrier ? warps_[w].waiting : held;
    if (wanted != 0) return w * 32 + unsigned(__builtin_ctz(wanted));
    if (others != 0) found = w * 32 + 31u - unsigned(__builtin_clz(others));
  }
  return found;
}

// Copies and sets by the host: within their allocations?
bool Check::host_range(uintptr_t address, size_t bytes, const char* what, const void* pc) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  Region* region = find(address);
  if (region == nullptr || !region->bounded) return region != nullptr;
  if (region->freed) {
    report("use after free", std::string(what) + " of freed " + region->name, nullptr, site_of(pc), nullptr);
  } else if (address + bytes > region->end) {
    report("out of bounds", std::string(what) + " of " + std::to_string(bytes) + " bytes ends " + std::to_string(address + bytes - region->end) +
                                " bytes behind the end of " + region->name + " of " + std::to_string(region->end - region->begin) + " bytes",
           nullptr, site_of(pc), nullptr);
  }
  return true;
}

void Check::host_write(uintptr_t address, size_t bytes, const char* what, const void* pc) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (!host_range(address, bytes, what, pc)) return;
  Region* region = find(address);
  bytes = std::min<size_t>(bytes, region->end - address);
  if (region->state != nullptr) memset(region->state + (address - region->begin), kInitialised, bytes);
}

void Check::host_copy(uintptr_t to, uintptr_t from, size_t bytes, const void* pc) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  bool device_source = host_range(from, bytes, "cudaMemcpy", pc);
  if (!host_range(to, bytes, "cudaMemcpy", pc)) return;
  Region *target = find(to), *source = device_source ? find(from) : nullptr;
  bytes = std::min<size_t>(bytes, target->end - to);
  if (target->state == nullptr) return;
  uint8_t* state = target->state + (to - target->begin);
  if (source == nullptr || source->state == nullptr) {
    memset(state, kInitialised, bytes);
  } else {  // what nobody has written is still that where it is copied to
    memmove(state, source->state + (from - source->begin), std::min<size_t>(bytes, source->end - from));
  }
}

void Check::report_leaks() {
  for (auto& [begin, region] : regions_) {
    if (region->freed || !region->bounded || region->name == "registered host memory") continue;
    report("unfreed memory", region->name + " of " + std::to_string(region->end - region->begin) + " bytes was never freed", nullptr, 0, nullptr);
  }
}

// What ends a launch. Its kind from its text, its place where the thread waits or fails.
void Check::failure(const std::string& what, const Thread* thread, const void* pc, const Here* here) {
  settle();
  auto has = [&](const char* text) { return what.find(text) != std::string::npos; };
  const char* kind = has("mbarrier")            ? "mbarrier"
                     : has("divergent barrier") || has("deadlock") ? "barrier divergence"
                     : has("mask 0x")         ? "mask"
                     : has("assertion")       ? "assert"
                     : has("address")         ? "out of bounds"
                     : has("misaligned")      ? "misaligned"
                     : has("stack of")        ? "stack"
                     : has("shared memory") || has("shared variable") ? "launch"
                     : has("polls")           ? "no progress"
                                              : "failure";
  if (pc != nullptr && !reports_.empty() && reports_.back().thread == int(thread->linear) && reports_.back().site != 0 &&
      (reports_.back().kind == "out of bounds" || reports_.back().kind == "use after free")) {
    return;  // the access that faults has been reported
  }
  bool waits = pc == nullptr && (has("deadlock") || kind[0] == 'b' || kind == std::string("mask"));
  report(kind, what, thread, pc != nullptr ? site_of(static_cast<const char*>(pc) + 1) : 0, nullptr,
         here != nullptr ? here->file : waits ? thread->file : nullptr, here != nullptr ? here->line : waits ? thread->line : 0);
  const Thread* other = static_cast<Worker*>(thread->block)->partner;
  if (other == nullptr || doubtful_.key.empty()) return;
  Report& r = reports_.back();
  r.other_file = other->file;
  r.other_line = other->line;
  r.other_thread = int(other->linear);
  r.other_block = r.block;
}

// The loaded segment of a program or library that holds the address, as a region; nullptr if none does.
Region* Check::segment(uintptr_t address) {
  struct Wanted {
    uintptr_t address, begin, end;
  } wanted{address, 0, 0};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        Wanted& w = *static_cast<Wanted*>(data);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& header = info->dlpi_phdr[i];
          uintptr_t begin = info->dlpi_addr + header.p_vaddr;
          if (header.p_type != PT_LOAD || w.address - begin >= header.p_memsz) continue;
          w.begin = begin;
          w.end = begin + header.p_memsz;
          return 1;
        }
        return 0;
      },
      &wanted);
  if (wanted.begin == 0) return nullptr;
  Region* region = add(wanted.begin, wanted.end - wanted.begin, "a variable of namespace scope", true);
  region->bounded = false;
  return region;
}

}  // namespace samebits
