// What one access means: to which region it goes, and whether it is ordered after those before it.
#include "check.h"

#include <string.h>

#include <algorithm>

#include "gang.h"

namespace samebits {

Check* Check::on = nullptr;
std::recursive_mutex Check::mutex;
thread_local Worker* Check::active __attribute__((tls_model("initial-exec"))) = nullptr;

const char* access_name(unsigned kind) { return kind & kAtomic ? "atomic access" : kind & kWrite ? "write" : "read"; }

namespace {
struct RecentSite {
  const void* pc;
  uint32_t site;
};
RecentSite recent_sites[1024];
}  // namespace

inline __attribute__((always_inline)) uint32_t Check::site_of(const void* pc) {
  const RecentSite& slot = recent_sites[(reinterpret_cast<uintptr_t>(pc) >> 1) % 1024];
  return __builtin_expect(slot.pc == pc, 1) ? slot.site : new_site(pc);
}

uint32_t Check::new_site(const void* pc) {
  auto [found, fresh] = site_ids_.emplace(pc, uint32_t(pcs_.size()));
  if (fresh) pcs_.push_back(pc);
  recent_sites[(reinterpret_cast<uintptr_t>(pc) >> 1) % 1024] = {pc, found->second};
  return found->second;
}

void Check::begin_launch(Grid& grid) {
  grid_ = &grid;
  first_ = next_;
  numbers_.clear();
  for (auto& sync : syncs_) delete sync.second;
  syncs_.clear();
  for (Sync* sync : old_syncs_) delete sync;
  old_syncs_.clear();
}

void Check::end_launch() {
  settle();
  report_guesses();
  close_requests();
  grid_ = nullptr;
}

void Check::new_sequence(Worker& worker) {
  BlockCheck& block = worker.check;
  block.seq = next_++;
  block.cluster = block.seq - worker.cluster_rank;
  numbers_.push_back(block.number);
}

void Check::begin_block(Worker& worker, uint64_t number) {
  settle();
  if (!worker.gang().several()) close_requests();
  BlockCheck& block = worker.check;
  block.number = number;
  new_sequence(worker);
  block.base = block.most = 1;
  block.blocks.clear();
  for (unsigned rank = 0; rank < worker.cluster_blocks(); ++rank) block.blocks.push_back(&worker.gang().peer(worker, rank).check);
  block.visits.clear();
  block.refs.clear();
  block.dirty.clear();
  block.copies.clear();
  block.shared.clear();
  std::fill(std::begin(block.at), std::end(block.at), nullptr);
  uintptr_t window = reinterpret_cast<uintptr_t>(worker.window());
  for (auto at = syncs_.begin(); at != syncs_.end();) {  // shared memory begins anew
    if (at->first - window < worker.window_bytes()) {
      old_syncs_.push_back(at->second);
      at = syncs_.erase(at);
    } else {
      ++at;
    }
  }
  block.threads.resize(grid_->threads);
  for (Clocks& t : block.threads) {
    t.clock = 1;
    t.phase = t.proxied = t.proxied_base = 0;
    t.returned = false;
    memset(t.arrived, 0, sizeof t.arrived);
    memset(t.warp, 0, sizeof t.warp);
    t.refs.clear();
    t.acquired.clear();
    t.released_device = t.released_block = false;
  }
}

inline __attribute__((always_inline)) Region* Check::recently_found(uintptr_t address) const {
  for (Region* region : last_) {
    if (region != nullptr && address - region->begin < region->end - region->begin) return region;
  }
  return nullptr;
}

// Whether all of those bytes are initialised and none is pending.
inline __attribute__((always_inline)) bool written(const uint8_t* state, size_t bytes) {
  constexpr uint64_t kAll = 0x0101010101010101u;
  if (bytes == 4) {
    uint32_t v;
    memcpy(&v, state, 4);
    return v == uint32_t(kAll);
  }
  if (bytes != 8 && bytes != 16) return false;
  uint64_t v, w;
  memcpy(&v, state, 8);
  memcpy(&w, state + bytes - 8, 8);
  return v == kAll && w == kAll;
}

// The usual access, to bytes that have been written and that nobody has used out of order: notes it like touch(). False where it takes more
// than a look at the cells.
inline __attribute__((always_inline)) bool Check::quick(const BlockCheck& block, const Thread* thread, Region& region, uintptr_t address, size_t bytes,
                                                        unsigned kind, const void* pc) {
  size_t offset = address - region.begin;
  if (((offset | bytes) & ((size_t(1) << region.shift) - 1)) != 0 || address + bytes > region.end || region.freed || region.cells == nullptr || trace != nullptr ||
      (kind & ~unsigned(kWrite)) != 0 || (region.state != nullptr && !written(region.state + offset, bytes))) {
    return false;
  }
  const Clocks& mine = block.threads[thread->linear];
  if (!mine.refs.empty() || !block.refs.empty() || mine.phase != 0) return false;
  uint32_t earlier = region.shared ? std::max(first_, block.cluster) : first_;
  auto known = [&](const Mark& mark) __attribute__((always_inline)) {
    return mark.seq < earlier || (mark.seq == block.seq && (mark.clock < block.base || mark.thread == thread->linear ||
                                                            (mark.thread / 32 == thread->linear / 32 && mark.clock <= mine.warp[mark.thread % 32])));
  };
  Mark now{block.seq, mine.clock, site_of(pc), uint16_t(thread->linear), 0};
  Cell *cell = region.cells + (offset >> region.shift), *end = region.cells + ((offset + bytes) >> region.shift);
  do {
    if (!known(cell->write)) return false;
    if (kind == kRead) {
      (known(cell->read) ? cell->read : cell->other) = now;
    } else {
      if (!known(cell->read) || !known(cell->other)) return false;
      cell->write = now;
      cell->read.seq = cell->other.seq = 0;
    }
  } while (++cell != end);
  return true;
}

// The part of memory that the access lies in: own stack, shared, global.
void Check::access(Worker& worker, Thread* thread, uintptr_t address, size_t bytes, unsigned kind, const void* pc) {
  if (address - reinterpret_cast<uintptr_t>(&worker) < sizeof(Worker)) return;  // threadIdx and the like
  if (doubtful_.waiting) settle();
  recent = pc;
  uintptr_t offset = address - reinterpret_cast<uintptr_t>(worker.window());
  Region* likely = offset < worker.window_bytes() ? worker.check.at[offset >> 16] : recently_found(address);
  if (likely == nullptr || address < likely->begin || !quick(worker.check, thread, *likely, address, bytes, kind, pc)) {
    locate(worker, thread, address, bytes, kind, pc);
  }
}

void Check::locate(Worker& worker, Thread* thread, uintptr_t address, size_t bytes, unsigned kind, const void* pc) {
  if (address - reinterpret_cast<uintptr_t>(worker.window()) < worker.window_bytes()) {
    for (Region* region : worker.check.shared) {
      if (address - region->begin < region->end - region->begin) {
        if (address + bytes > region->end) outside(worker, thread, address, bytes, kind, site_of(pc));
        return touch(worker, thread, *region, address, bytes, kind, site_of(pc));
      }
    }
    return outside(worker, thread, address, bytes, kind, site_of(pc));
  }
  Worker* owner = worker.cluster_blocks() > 1 ? worker.gang().owner(worker, address) : nullptr;
  if (owner != nullptr) {
    for (Region* region : owner->check.shared) {
      if (address - region->begin >= region->end - region->begin) continue;
      if (address + bytes > region->end) outside(*owner, thread, address, bytes, kind, site_of(pc));
      visit(worker, *owner, thread, *region, site_of(pc));
      return touch(worker, thread, *region, address, bytes, kind, site_of(pc));
    }
    return outside(*owner, thread, address, bytes, kind, site_of(pc));
  }
  Region* region = find(address);
  if (region != nullptr && !region->freed) {
    if (address + bytes > region->end) outside(worker, thread, address, bytes, kind, site_of(pc));
    return touch(worker, thread, *region, address, bytes, kind, site_of(pc));
  }
  if (region == nullptr) {  // of the emulator, another thread's stack, the kernel's parameters, or a variable of namespace scope
    if (worker.own(address) || address - reinterpret_cast<uintptr_t>(grid_->closure) < grid_->closure_bytes) return;
    if ((region = segment(address)) != nullptr) {
      return touch(worker, thread, *region, address, std::min<size_t>(bytes, region->end - address), kind, site_of(pc));
    }
  }
  if (region == nullptr && !strict) {                    // nobody said what lies here: only races are seen
    uintptr_t page = address & ~uintptr_t(0xFFFFF);
    auto next = regions_.upper_bound(address);
    uintptr_t end = page + 0x100000;
    if (next != regions_.end()) end = std::min(end, next->first);
    if (next != regions_.begin()) page = std::max(page, std::prev(next)->second->end);
    region = add(page, end - page, "", true);
    region->bounded = false;
    return touch(worker, thread, *region, address, std::min<size_t>(bytes, region->end - address), kind, site_of(pc));
  }
  outside(worker, thread, address, bytes, kind, site_of(pc));
}

void Check::touch(Worker& worker, Thread* thread, Region& region, uintptr_t address, size_t bytes, unsigned kind, uint32_t site) {
  size_t offset = address - region.begin;
  bytes = std::min<size_t>(bytes, region.end - address);
  if (trace != nullptr) note_access(worker, thread, region, address, bytes, kind, site);
  if (region.state != nullptr && !written(region.state + offset, bytes)) {
    uint8_t all = kInitialised, any = 0;
    for (size_t i = 0; i < bytes; ++i) all &= region.state[offset + i], any |= region.state[offset + i];
    if ((any & kLeaving) && (kind & kWrite)) {
      report("async copy", std::string(access_name(kind)) + " of " + place_of(region, address) + " before the wait for the bulk copy that reads it",
             thread, site, nullptr);
    }
    if (any & kPending) {
      report("async copy", std::string(access_name(kind)) + " of " + place_of(region, address) + " before the wait for the asynchronous copy to it",
             thread, site, nullptr);
      if (!(kind & kWrite)) return;
    } else if ((kind & kWrite) == 0 || (kind & kRmw)) {
      if (!(all & kInitialised)) {
        report("uninitialised read", std::string(access_name(kind)) + " of " + place_of(region, address) + ", which nobody has written", thread,
               site, nullptr);
      }
    }
    if (kind & kWrite) {
      for (size_t i = 0; i < bytes; ++i) region.state[offset + i] |= kInitialised;
    }
  }
  unsigned shift = region.shift;
  while (((offset | bytes) & ((size_t(1) << shift) - 1)) != 0) --shift;
  if (shift != region.shift || region.cells == nullptr) refine(region, shift);
  if (region.cells == nullptr) return;

  const BlockCheck& block = worker.check;
  const Clocks& clocks = block.threads[thread->linear];
  Mark mine{block.seq, clocks.clock, site, uint16_t(thread->linear), uint16_t((kind & kAtomic) != 0)};
  for (size_t i = offset >> shift, end = (offset + bytes) >> shift; i < end; ++i) {
    Cell& cell = region.cells[i];
    uintptr_t at = region.begin + (i << shift);
    if (cell.write.seq != 0 && !(cell.write.atomic && mine.atomic) && !knows(block, thread, region, cell.write)) {
      race(worker, thread, region, at, kind, site, cell.write, true);
    }
    if (kind & kWrite) {
      if (cell.read.seq != 0 && !(cell.read.atomic && mine.atomic) && !knows(block, thread, region, cell.read)) {
        race(worker, thread, region, at, kind, site, cell.read, false);
      }
      if (cell.other.seq != 0 && !(cell.other.atomic && mine.atomic) && !knows(block, thread, region, cell.other)) {
        race(worker, thread, region, at, kind, site, cell.other, false);
      }
      // After its own plain write a thread's atomic tells others nothing: who does not know of that write races with it still.
      bool own = mine.atomic && !cell.write.atomic && cell.write.seq == mine.seq && cell.write.thread == mine.thread && cell.write.clock == mine.clock;
      if (!own) cell.write = mine;
      cell.read.seq = cell.other.seq = 0;
    } else if (cell.read.seq == 0 || knows(block, thread, region, cell.read)) {
      cell.read = mine;
    } else {
      cell.other = mine;
    }
  }
}

// Whether the access behind the mark is ordered before what the thread does now.
inline bool Check::knows(const BlockCheck& block, const Thread* thread, const Region& region, const Mark& mark) const {
  if (mark.seq < first_ || (region.shared && mark.seq < block.cluster)) return true;  // of an earlier launch, of an earlier block's variable
  const Clocks& mine = block.threads[thread->linear];
  if (mark.seq == block.seq) {
    if (mark.thread == thread->linear || mark.clock < block.base) return true;
    if (mark.thread / 32 == thread->linear / 32 && mark.clock <= mine.warp[mark.thread % 32]) return true;
  }
  if (mine.phase != 0 && across(block, mine.phase, mark)) return true;
  return (!mine.refs.empty() && through(mine.refs, block.seq, mark)) || (!block.refs.empty() && through(block.refs, block.seq, mark));
}

}  // namespace samebits
