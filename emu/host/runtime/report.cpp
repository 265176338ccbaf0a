// Reports: collected, told apart by their places in the source, and written as JSON.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "check.h"

namespace samebits {

namespace {

constexpr size_t kMostReports = 200;

}  // namespace

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      char hex[8];
      snprintf(hex, sizeof hex, "\\u%04x", c);
      out += hex;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

namespace {

std::string block_text(uint64_t n, const dim3& g) {
  return "[" + std::to_string(n % g.x) + ", " + std::to_string(n / g.x % g.y) + ", " + std::to_string(n / g.x / g.y) + "]";
}
std::string thread_text(unsigned n, const dim3& d) {
  return "[" + std::to_string(n % d.x) + ", " + std::to_string(n / d.x % d.y) + ", " + std::to_string(n / d.x / d.y) + "]";
}

}  // namespace

bool of_the_emulator(const std::string& file) {
  static const std::string& headers = *[] {  // never destroyed: reports are written at exit
    std::string here = __FILE__;           // .../runtime/report.cpp
    return new std::string(here.substr(0, here.rfind("/runtime/")) + "/include/");
  }();
  return file.compare(0, headers.size(), headers) == 0 || file.find("/emu/host/include/") != std::string::npos;
}

// By addr2line, which comes with every compiler's linker: once for each module.
std::vector<std::pair<std::string, int>> resolve(const std::vector<const void*>& pcs) {
  std::vector<std::pair<std::string, int>> found(pcs.size(), {"", 0});
  std::map<std::string, std::vector<size_t>> modules;
  std::vector<uintptr_t> offsets(pcs.size());
  for (size_t i = 0; i < pcs.size(); ++i) {
    Dl_info info;
    if (pcs[i] == nullptr || dladdr(pcs[i], &info) == 0 || info.dli_fname == nullptr) continue;
    offsets[i] = reinterpret_cast<uintptr_t>(pcs[i]) - 1 - reinterpret_cast<uintptr_t>(info.dli_fbase);
    modules[info.dli_fname].push_back(i);
  }
  for (auto& [module, indices] : modules) {
    std::string path = strchr(module.c_str(), '/') != nullptr ? module : "/proc/self/exe";
    if (path == "/proc/self/exe") {
      char real[4096];
      ssize_t n = readlink(path.c_str(), real, sizeof real - 1);
      if (n > 0) path.assign(real, size_t(n));
    }
    std::string command = "addr2line -a -i -e '" + path + "'";
    char hex[32];
    for (size_t i : indices) {
      snprintf(hex, sizeof hex, " 0x%zx", size_t(offsets[i]));
      command += hex;
    }
    FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
    if (pipe == nullptr) continue;
    char line[4096];
    size_t at = size_t(-1);
    bool done = false;
    while (fgets(line, sizeof line, pipe) != nullptr) {
      if (strncmp(line, "0x", 2) == 0 && strchr(line, ':') == nullptr) {
        ++at;
        done = false;
        continue;
      }
      if (at >= indices.size() || done) continue;
      char* colon = strrchr(line, ':');
      if (colon == nullptr) continue;
      std::string file(line, size_t(colon - line));
      if (file == "??" || atoi(colon + 1) == 0) continue;
      found[indices[at]] = {file, atoi(colon + 1)};
      done = !of_the_emulator(file);  // the innermost frame that is the user's
    }
    pclose(pipe);
  }
  return found;
}

void Check::report(std::string kind, std::string message, const Thread* thread, uint32_t site, const Mark* other, const char* file, int line) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  doubtful_.key.clear();
  uint32_t other_site = other != nullptr ? other->site : 0;
  std::string key = kind + "|" + std::to_string(site) + "|" + std::to_string(other_site) + "|" + (file != nullptr ? file : "") + "|" +
                    std::to_string(line) + "|" + (site == 0 && file == nullptr ? message : "");
  if (reports_.size() >= kMostReports || !seen_.insert(key).second) return;
  doubtful_.key = key;
  Report r;
  r.kind = std::move(kind);
  r.message = std::move(message);
  if (grid_ != nullptr) {
    r.kernel = grid_->kernel->name;
    r.grid = grid_->grid;
    r.dim = grid_->block;
  }
  if (thread != nullptr) {
    r.block = static_cast<Worker*>(thread->block)->check.number;
    r.thread = int(thread->linear);
  }
  r.site = site;
  if (file != nullptr) r.file = file;
  r.line = line;
  if (other != nullptr) {
    r.other_site = other->site;
    r.other_thread = other->thread < kCopies ? other->thread : int(copier(thread, *other));
    r.other_block = other->seq - first_ < numbers_.size() ? numbers_[other->seq - first_] : 0;
  }
  reports_.push_back(std::move(r));
}

std::string Check::json() {
  settle();
  report_guesses();
  std::vector<const void*> pcs;
  for (const Report& r : reports_) pcs.push_back(pcs_[r.site]), pcs.push_back(pcs_[r.other_site]);
  std::vector<std::pair<std::string, int>> places = resolve(pcs);
  std::string out = "[";
  std::set<std::string> seen;  // an instance of a template and its like have other addresses, and the same line
  for (size_t i = 0; i < reports_.size(); ++i) {
    const Report& r = reports_[i];
    std::string file = r.site != 0 ? places[2 * i].first : r.file;
    int line = r.site != 0 ? places[2 * i].second : r.line;
    const auto other = r.other_site != 0 ? places[2 * i + 1] : std::make_pair(r.other_file, r.other_line);
    std::string key = r.kind + "|" + r.kernel + "|" + file + "|" + std::to_string(line) + "|" + other.first + "|" + std::to_string(other.second) +
                      "|" + (line == 0 ? r.message : "");
    if (!seen.insert(key).second) continue;
    out += out.size() > 1 ? ",\n " : "";
    out += "{\"kind\": " + quoted(r.kind) + ", \"kernel\": " + quoted(r.kernel);
    out += ", \"block\": " + (r.thread >= 0 ? block_text(r.block, r.grid) : "null");
    out += ", \"thread\": " + (r.thread >= 0 ? thread_text(unsigned(r.thread), r.dim) : "null");
    out += ", \"file\": " + quoted(file) + ", \"line\": " + std::to_string(line) + ", \"other\": ";
    if (r.other_thread >= 0) {
      out += "{\"block\": " + block_text(r.other_block, r.grid) + ", \"thread\": " + thread_text(unsigned(r.other_thread), r.dim) +
             ", \"file\": " + quoted(other.first) + ", \"line\": " + std::to_string(other.second) + "}";
    } else {
      out += "null";
    }
    out += ", \"message\": " + quoted(r.message) + "}";
  }
  return out + "]";
}

}  // namespace samebits

extern "C" {

// Checks on or off, for instrumented programs; 2: every address must lie in a region.
void samebits_set_check(int mode) {
  if (mode == 0) {
    samebits::Check::on = nullptr;
    return;
  }
  static samebits::Check* check = new samebits::Check;
  check->strict = mode == 2;
  samebits::Check::on = check;
}

// `bytes` at `p` are memory that kernels may access; their name for reports; whether reading them before writing is allowed.
void samebits_register(void* p, unsigned long long bytes, const char* name, int initialised) {
  if (samebits::Check::on != nullptr && bytes != 0) {
    samebits::Check::on->add(reinterpret_cast<uintptr_t>(p), size_t(bytes), name != nullptr ? name : "memory", initialised != 0);
  }
}
void samebits_unregister(void* p) {
  if (samebits::Check::on != nullptr) samebits::Check::on->forget(reinterpret_cast<uintptr_t>(p));
}

// What was found since the last samebits_clear_reports(): a JSON list of {kind, kernel, block, thread, file, line, other, message}.
const char* samebits_reports() {
  static std::string text;
  text = samebits::Check::on != nullptr ? samebits::Check::on->json() : "[]";
  return text.c_str();
}
void samebits_clear_reports() {
  if (samebits::Check::on != nullptr) samebits::Check::on->clear();
}
}
