// Regions of memory that have an extent of their own, and what is known of their bytes.
#include <string.h>
#include <sys/mman.h>

#include "check.h"

namespace samebits {

namespace {

void* map_pages(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

void release(Region* region) {
  if (region->cells != nullptr) munmap(region->cells, region->cell_bytes);
  if (region->state != nullptr) munmap(region->state, region->end - region->begin);
  delete region;
}

}  // namespace

Region* Check::add(uintptr_t begin, size_t bytes, std::string name, bool initialised) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  // What lay here before is gone: a caller registers the same buffer again.
  for (auto at = regions_.lower_bound(begin); at != regions_.end() && at->first < begin + bytes;) {
    forget((at++)->first);
  }
  Region* region = new Region;
  region->begin = begin;
  region->end = begin + bytes;
  region->name = std::move(name);
  if (!initialised) region->state = static_cast<uint8_t*>(map_pages(bytes));
  regions_[begin] = region;
  return region;
}

void Check::forget(uintptr_t begin) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  auto found = regions_.find(begin);
  if (found == regions_.end()) return;
  Region* region = found->second;
  release(region);
  regions_.erase(found);
  for (Region*& last : last_) last = nullptr;
}

void* Check::retire(void* freed, const void* pc) {
  constexpr size_t kKept = 1024;
  std::lock_guard<std::recursive_mutex> lock(mutex);
  auto found = regions_.find(reinterpret_cast<uintptr_t>(freed));
  if (found == regions_.end()) return freed;
  Region& region = *found->second;
  if (region.name != kDeviceHeap) {
    forget(region.begin);
    return freed;
  }
  if (region.freed) {
    report("invalid free", "memory of " + region.name + " is freed twice", active != nullptr ? self() : nullptr, site_of(pc), nullptr);
    return nullptr;
  }
  region.freed = true;
  retired_.push_back(freed);
  if (retired_.size() <= kKept) return nullptr;
  void* oldest = retired_.front();
  retired_.pop_front();
  forget(reinterpret_cast<uintptr_t>(oldest));
  return oldest;
}

// The region that holds the address, else nullptr.
Region* Check::find(uintptr_t address) {
  if (Region* region = recently_found(address)) return region;
  auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return nullptr;
  Region* region = std::prev(after)->second;
  return address < region->end ? last_[++turn_ % 4] = region : nullptr;
}

void Check::refine(Region& region, unsigned shift) {
  size_t old_count = (region.end - region.begin + (size_t(1) << region.shift) - 1) >> region.shift;
  unsigned times = 1u << (region.shift - shift);
  Cell* old = region.cells;
  size_t bytes = old_count * times * sizeof(Cell);
  Cell* cells = static_cast<Cell*>(map_pages(bytes));
  if (cells == nullptr) return;
  if (old != nullptr) {
    for (size_t i = 0; i < old_count; ++i) {
      if (old[i].write.seq == 0 && old[i].read.seq == 0) continue;
      for (unsigned j = 0; j < times; ++j) cells[i * times + j] = old[i];
    }
    munmap(old, region.cell_bytes);
  }
  region.cells = cells;
  region.cell_bytes = bytes;
  region.shift = shift;
}

// A shared variable of the running block; `slot` names its declaration, 0 the dynamic array.
void Check::place(Worker& worker, const char* name, uintptr_t begin, size_t bytes, unsigned slot) {
  Region*& region = slots_[uint64_t(slot) << 32 | worker.check_id];
  if (region == nullptr || region->end - region->begin != bytes) {
    if (region != nullptr) release(region);
    region = new Region;
    region->shared = true;
    region->state = static_cast<uint8_t*>(map_pages(bytes));
  } else {
    memset(region->state, 0, bytes);
  }
  region->name = name;
  region->begin = begin;
  region->end = begin + bytes;
  worker.check.shared.push_back(region);
  uintptr_t window = reinterpret_cast<uintptr_t>(worker.window());
  for (uintptr_t slot = (begin - window) >> 16; slot <= (begin + bytes - 1 - window) >> 16; ++slot) worker.check.at[slot] = region;
}

}  // namespace samebits
