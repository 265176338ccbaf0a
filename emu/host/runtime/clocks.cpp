// Order between threads: barriers, fences with atomics, and what a race is.
#include <algorithm>
#include <functional>

#include "check.h"

namespace samebits {

namespace {

// The clock in a list that is in order of threads.
void add_clock(std::vector<std::pair<uint16_t, uint32_t>>& list, unsigned thread, uint32_t clock) {
  auto at = std::lower_bound(list.begin(), list.end(), std::pair<uint16_t, uint32_t>(uint16_t(thread), 0));
  if (at == list.end() || at->first != thread) {
    list.insert(at, {uint16_t(thread), clock});
  } else {
    at->second = std::max(at->second, clock);
  }
}

bool has(const Known& known, const Mark& mark) {
  if (mark.clock < known.base) return true;
  if (mark.atomic && known.atomic == std::pair<uint16_t, uint32_t>(mark.thread, mark.clock)) return true;
  auto at = std::lower_bound(known.more.begin(), known.more.end(), std::pair<uint16_t, uint32_t>(mark.thread, 0));
  return at != known.more.end() && at->first == mark.thread && mark.clock <= at->second;
}

void join(std::vector<Ref>& to, const std::vector<Ref>& from) {
  for (const Ref& ref : from) {
    auto found = std::find_if(to.begin(), to.end(), [&](const Ref& r) { return r.sync == ref.sync; });
    if (found == to.end()) {
      to.push_back(ref);
    } else {
      found->count = std::max(found->count, ref.count);
    }
  }
}

}  // namespace

// Whether the mark is among what those releases published. Every release is looked at once.
bool Check::through(const std::vector<Ref>& refs, uint32_t own_seq, const Mark& mark) const {
  std::unordered_map<Sync*, size_t> seen;  // how many releases of it
  std::function<bool(const std::vector<Ref>&)> search = [&](const std::vector<Ref>& from) {
    for (const Ref& ref : from) {
      size_t first = seen[ref.sync];
      if (ref.count <= first) continue;
      seen[ref.sync] = ref.count;
      auto any = [&](const std::vector<size_t>& of_block, auto test) {
        size_t i = std::lower_bound(of_block.begin(), of_block.end(), ref.count) - of_block.begin();
        for (; i-- > 0 && of_block[i] >= first;) {
          const Known& known = ref.sync->log[of_block[i]];
          if ((!known.block_only || known.seq == own_seq) && test(known)) return true;
          if (ref.sync->cumulative) break;
        }
        return false;
      };
      auto own = ref.sync->by_block.find(mark.seq);
      if (own != ref.sync->by_block.end() && any(own->second, [&](const Known& known) { return has(known, mark); })) return true;
      for (const auto& [seq, of_block] : ref.sync->by_block) {  // and what the releasing threads had acquired themselves
        if (any(of_block, [&](const Known& known) { return !known.refs.empty() && search(known.refs); })) return true;
      }
    }
    return false;
  };
  return search(refs);
}

// A release: later atomic writes of the thread publish what it knows now; and an acquire: what earlier atomics saw is ordered before.
void Check::fence(Worker& worker, Thread* thread, bool device) {
  settle();
  BlockCheck& block = worker.check;
  Clocks& mine = block.threads[thread->linear];
  if (!mine.acquired.empty()) {
    join(mine.refs, mine.acquired);
    mine.acquired.clear();
  }
  Known known{block.seq, block.base, {}, mine.refs, !device};
  join(known.refs, block.refs);
  add_clock(known.more, thread->linear, mine.clock);
  unsigned first = thread->linear & ~31u;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (mine.warp[lane] >= block.base && first + lane != thread->linear) add_clock(known.more, first + lane, mine.warp[lane]);
  }
  block.most = std::max(block.most, ++mine.clock);
  if (device) {
    mine.device = known;
    mine.released_device = true;
  }
  mine.block = std::move(known);
  mine.released_block = true;
}

void Check::atomic(Worker& worker, Thread* thread, uintptr_t address, size_t bytes, bool reads, bool writes, const void* pc) {
  access(worker, thread, address, bytes, kAtomic | (writes ? kWrite : kRead) | (reads ? kRmw : 0), pc);
  BlockCheck& block = worker.check;
  Clocks& mine = block.threads[thread->linear];
  if (syncs_.empty() && !mine.released_block) return;
  auto found = syncs_.find(address);
  if (reads && found != syncs_.end()) {
    if (mine.acquired.empty() && mine.refs.empty()) block.dirty.push_back(thread->linear);
    join(mine.acquired, {{found->second, found->second->log.size()}});
  }
  if (!writes || !mine.released_block) return;
  Sync& sync = *sync_at(address);
  sync.cumulative = false;
  auto publish = [&](const Known& known) {
    sync.by_block[known.seq].push_back(sync.log.size());
    sync.log.push_back(known);
    sync.log.back().atomic = {uint16_t(thread->linear), mine.clock};
  };
  if (mine.released_device) publish(mine.device);
  if (mine.block.block_only) publish(mine.block);
  block.most = std::max(block.most, ++mine.clock);
}

// All threads of the block that have not returned, or all that are left where `everybody` is false.
void Check::barrier(Worker& worker, bool) {
  settle();
  BlockCheck& block = worker.check;
  block.base = ++block.most;
  for (Clocks& t : block.threads) t.clock = block.base;
  for (unsigned linear : block.dirty) {  // a barrier is taken for a fence by what has been acquired, as published programs do
    Clocks& t = block.threads[linear];
    join(block.refs, t.refs);
    join(block.refs, t.acquired);
    t.refs.clear();
    t.acquired.clear();
  }
  block.dirty.clear();
}

// Every block of the grid has come: all that was done is ordered. The caller gives new numbers to the blocks.
void Check::grid_barrier() {
  settle();
  first_ = next_;
  numbers_.clear();
}

void Check::warp_barrier(Worker& worker, unsigned warp, uint32_t group) {
  settle();
  BlockCheck& block = worker.check;
  Clocks* lanes = &block.threads[warp * 32];
  uint32_t known[32] = {};
  std::vector<Ref> refs;
  for (uint32_t left = group; left != 0; left &= left - 1) {
    unsigned lane = unsigned(__builtin_ctz(left));
    unsigned count = unsigned(std::min<size_t>(32, block.threads.size() - warp * 32));
    for (unsigned i = 0; i < count; ++i) known[i] = std::max(known[i], lanes[lane].warp[i]);
    known[lane] = std::max(known[lane], lanes[lane].clock);
    if (!lanes[lane].refs.empty()) join(refs, lanes[lane].refs);
  }
  for (uint32_t left = group; left != 0; left &= left - 1) {
    unsigned lane = unsigned(__builtin_ctz(left));
    std::copy_n(known, 32, lanes[lane].warp);
    block.most = std::max(block.most, ++lanes[lane].clock);
    if (!refs.empty()) {
      lanes[lane].refs = refs;
      block.dirty.push_back(warp * 32 + lane);
    }
  }
}

std::string Check::place_of(const Region& region, uintptr_t address) const {
  if (!region.bounded) return "global memory";
  return "byte " + std::to_string(address - region.begin) + " of " + (region.shared ? "shared " : "") + region.name + " (" +
         std::to_string(region.end - region.begin) + " bytes)";
}

void Check::race(Worker&, Thread* thread, Region& region, uintptr_t address, unsigned kind, uint32_t site, const Mark& other, bool other_writes) {
  if (other.seq - first_ >= numbers_.size()) return;
  bool same_block = numbers_[other.seq - first_] == static_cast<Worker*>(thread->block)->check.number;
  if (!other_writes && region.shared) {  // its read came before the write that it should have waited for: one fault, not two
    reports_.erase(std::remove_if(reports_.begin(), reports_.end(), [&](const Report& r) {
                     return r.site == other.site && r.kind == "uninitialised read" && r.message.find(region.name) != std::string::npos;
                   }), reports_.end());
  }
  std::string message = std::string(access_name(kind)) + " of " + place_of(region, address) + " and " +
                        (other.atomic ? "an atomic access" : other_writes ? "a write" : "a read") + " by " +
                        (!same_block ? (region.shared ? "another block without a barrier of the cluster between them"
                                                      : "another block without order by fence and atomic")
                         : other.thread / 32 == thread->linear / 32 ? "another lane of the warp without __syncwarp() or a barrier"
                                                                    : "another warp without a barrier between them");
  std::string name = region.shared ? "shared race" : "global race";
  bool plain_writes = other_writes && !other.atomic && kind == kWrite;
  size_t granule = size_t(1) << region.shift;
  report(name, message, thread, site, &other);
  bool reads = kind == kRead && other_writes && other.atomic, read_before = (kind & kAtomic) && !other_writes && !other.atomic;
  if ((reads || read_before) && !doubtful_.key.empty()) {
    uint32_t seq = reads ? static_cast<Worker*>(thread->block)->check.seq : other.seq;
    guesses_.push_back({address, seq, reads ? thread->linear : other.thread, std::move(reports_.back()), doubtful_.key});
    reports_.pop_back();
    return;
  }
  if (!plain_writes || reports_.empty() || doubtful_.waiting || doubtful_.key.empty()) return;
  // The hook comes before the write: whether both write the same value, which harms nobody, shows at the next one.
  doubtful_.waiting = true;
  doubtful_.address = address;
  doubtful_.bytes = granule;
  for (size_t i = 0; i < granule; ++i) doubtful_.old[i] = reinterpret_cast<unsigned char*>(address)[i];
  doubtful_.report = std::move(reports_.back());
  reports_.pop_back();
}

void Check::compared(Worker& worker, Thread* thread, uintptr_t address, size_t bytes) {
  if (guesses_.empty()) return;
  auto checked = [&](const Guess& g) { return g.address - address < bytes && g.seq == worker.check.seq && g.thread == thread->linear; };
  for (const Guess& guess : guesses_) {
    if (checked(guess)) seen_.erase(guess.key);
  }
  guesses_.erase(std::remove_if(guesses_.begin(), guesses_.end(), checked), guesses_.end());
}

void Check::report_guesses() {
  for (Guess& guess : guesses_) reports_.push_back(std::move(guess.report));
  guesses_.clear();
}

void Check::settle() {
  if (!doubtful_.waiting) return;
  doubtful_.waiting = false;
  bool same = true;
  for (size_t i = 0; i < doubtful_.bytes; ++i) same = same && reinterpret_cast<unsigned char*>(doubtful_.address)[i] == doubtful_.old[i];
  if (same) {
    seen_.erase(doubtful_.key);
  } else {
    reports_.push_back(std::move(doubtful_.report));
  }
}

// Reports an access out of bounds. A write to what is not the emulator's to lose ends the launch: it might leave nothing to report with.
void Check::outside(Worker& worker, Thread* thread, uintptr_t address, size_t bytes, unsigned kind, uint32_t site) {
  std::string message = std::string(access_name(kind)) + " of " + std::to_string(bytes) + " bytes ";
  const Region* near = nullptr;
  auto consider = [&](const Region* region) {
    auto distance = [&](const Region* r) { return address < r->begin ? r->begin - address : address >= r->end ? address - r->end : 0; };
    if (near == nullptr || distance(region) < distance(near)) near = region;
  };
  size_t offset = address - reinterpret_cast<uintptr_t>(worker.window());
  bool in_window = offset < worker.window_bytes(), harmless = in_window && bytes <= worker.window_bytes() - offset;
  if (in_window) {
    for (const Region* region : worker.check.shared) consider(region);
  } else {
    auto after = regions_.upper_bound(address);
    if (after != regions_.end()) consider(after->second);
    if (after != regions_.begin()) consider(std::prev(after)->second);
  }
  std::string kind_name = "out of bounds";
  if (near == nullptr) {
    message += "at an address in no allocation";
  } else if (near->freed && address - near->begin < near->end - near->begin) {
    kind_name = "use after free";
    message += "in freed " + near->name + " of " + std::to_string(near->end - near->begin) + " bytes";
  } else if (address >= near->end || address >= near->begin) {
    size_t beyond = address + bytes - near->end;
    if (beyond > (size_t(1) << 30)) {
      message += "at an address in no allocation";
    } else {
      message += "ending " + std::to_string(beyond) + " bytes behind the end of " + (near->shared ? "shared " : "") + near->name + " of " +
                 std::to_string(near->end - near->begin) + " bytes";
    }
  } else if (near->begin - address > (size_t(1) << 30)) {
    message += "at an address in no allocation";
  } else {
    message += std::to_string(near->begin - address) + " bytes before the start of " + (near->shared ? "shared " : "") + near->name + " of " +
               std::to_string(near->end - near->begin) + " bytes";
  }
  if (near != nullptr && address >= near->begin - near->pad && address + bytes <= near->end + near->pad) harmless = true;
  report(kind_name, message, thread, site, nullptr);
  if ((kind & kWrite) && !harmless) static_cast<Worker*>(thread->block)->stop(thread, cudaErrorIllegalAddress, pcs_[site], message);
}

}  // namespace samebits
