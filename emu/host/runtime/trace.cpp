// How accesses lie in memory: for every line of the source requests of warps, sectors, bytes and bank conflicts.
//
// Lanes of a warp run one after the other; the n-th access of each of them at one place of the code is taken for one request.
#include <stdio.h>

#include <algorithm>

#include "check.h"

namespace samebits {

namespace {

constexpr uintptr_t kSector = 32;  // bytes that global memory moves at least
constexpr unsigned kBanks = 32;    // of four bytes each

// Times that shared memory has to be read for lanes whose accesses come together: the most words that one bank has to give.
unsigned wavefronts(const TraceRequest& request, unsigned first, unsigned last) {
  std::set<uintptr_t> words[kBanks];
  for (unsigned i = first; i < last; ++i) {
    const auto& [address, bytes] = request.lanes[i];
    for (uintptr_t word = address / 4; word <= (address + bytes - 1) / 4; ++word) words[word % kBanks].insert(word);
  }
  size_t most = 0;
  for (const auto& bank : words) most = std::max(most, bank.size());
  return unsigned(most);
}

}  // namespace

void Check::note_access(Worker& worker, const Thread* thread, const Region& region, uintptr_t address, size_t bytes, unsigned kind, uint32_t site) {
  if (!region.bounded && (kind & kAtomic) && !(kind & kWrite)) return;  // where a shared variable lies, which the emulator looks up
  Trace& t = *trace;
  TraceSite& at = t.sites[site << 1 | uint32_t(region.shared)];
  if (at.seq != worker.check.seq) {  // each block counts anew
    at.seq = worker.check.seq;
    at.times.assign(worker.check.threads.size(), 0);
  }
  at.kind |= kind;
  at.arrays[region.bounded ? region.name : "other memory"] += bytes;
  uint64_t key = uint64_t(site) << 33 | uint64_t(region.shared) << 32 | uint64_t(at.times[thread->linear]++ & 0x7FFFFFFu) << 5 | thread->linear / 32;
  t.open[key].lanes.push_back({address, unsigned(bytes)});
}

// A block has ended: its requests are complete.
void Check::close_requests() {
  if (trace == nullptr) return;
  for (auto& [key, request] : trace->open) {
    bool shared = key >> 32 & 1;
    TraceSite& at = trace->sites[uint32_t(key >> 33) << 1 | uint32_t(shared)];
    ++at.requests;
    at.lanes += request.lanes.size();
    size_t widest = 0;
    std::set<uintptr_t> sectors;
    for (const auto& [address, bytes] : request.lanes) {
      at.bytes += bytes;
      widest = std::max<size_t>(widest, bytes);
      for (uintptr_t s = address / kSector; s <= (address + bytes - 1) / kSector; ++s) sectors.insert(s);
    }
    if (!shared) {
      at.sectors += sectors.size();
      continue;
    }
    unsigned together = widest <= 4 ? 32 : widest <= 8 ? 16 : 8;  // lanes: a wavefront carries 128 bytes
    for (unsigned i = 0; i < request.lanes.size(); i += together) {
      at.wavefronts += wavefronts(request, i, std::min<unsigned>(i + together, unsigned(request.lanes.size())));
      ++at.fewest;
    }
  }
  trace->open.clear();
}

std::string Check::trace_json() {
  close_requests();
  std::vector<const void*> pcs;
  for (const auto& [id, site] : trace->sites) pcs.push_back(pcs_[id >> 1]);
  auto places = resolve(pcs);
  std::map<std::tuple<std::string, int, bool, unsigned>, TraceSite> lines;
  size_t index = 0;
  for (const auto& [id, site] : trace->sites) {
    const auto& place = places[index++];
    unsigned kind = site.kind & kAtomic ? kAtomic : site.kind & kWrite;
    TraceSite& line = lines[{place.first, place.second, id & 1, kind}];
    line.requests += site.requests;
    line.lanes += site.lanes;
    line.bytes += site.bytes;
    line.sectors += site.sectors;
    line.wavefronts += site.wavefronts;
    line.fewest += site.fewest;
    for (const auto& [name, bytes] : site.arrays) line.arrays[name] += bytes;
  }
  std::string out = "[";
  for (const auto& [key, line] : lines) {
    const auto& [file, number, shared, kind] = key;
    char text[256];
    snprintf(text, sizeof text, "\"line\": %d, \"space\": \"%s\", \"access\": \"%s\", \"requests\": %llu, \"lanes\": %llu, \"bytes\": %llu", number,
             shared ? "shared" : "global", kind == kAtomic ? "atomic" : kind == kWrite ? "write" : "read", line.requests, line.lanes, line.bytes);
    out += (out.size() > 1 ? ",\n {\"file\": " : "{\"file\": ") + quoted(file) + ", " + text;
    if (shared) {
      snprintf(text, sizeof text, ", \"wavefronts\": %llu, \"conflicts\": %llu", line.wavefronts, line.wavefronts - line.fewest);
    } else {
      snprintf(text, sizeof text, ", \"sectors\": %llu, \"sectors_per_request\": %.4g, \"efficiency\": %.4g", line.sectors,
               double(line.sectors) / double(line.requests), double(line.bytes) / (double(line.sectors) * double(kSector)));
    }
    out += text;
    out += ", \"arrays\": {";
    size_t count = 0;
    for (const auto& [name, bytes] : line.arrays) out += (count++ != 0 ? ", " : "") + quoted(name) + ": " + std::to_string(bytes);
    out += "}}";
  }
  return out + "]";
}

}  // namespace samebits
