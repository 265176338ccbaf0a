// Launches: configuration, limits, blocks over workers, errors.
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>

#include "check.h"
#include "device.h"
#include "worker.h"

namespace samebits {

namespace {

struct Config {
  dim3 grid, block;
  size_t dynamic_bytes;
  cudaStream_t stream;
  const char* file;
  int line;
  dim3 cluster{0};  // x is 0: as the kernel says
  bool cooperative = false;
};

struct HostThread {  // what CUDA keeps per host thread
  cudaError_t last = cudaSuccess;
  std::string text;
  unsigned depth = 0;           // of launches from device code
  std::vector<Config> configs;  // pushed by configure(), popped by the kernel that is called next
  std::vector<size_t> open;
  Kernel** query = nullptr;
};
HostThread& host() {
  thread_local HostThread state;
  return state;
}

std::string& g_first_failure = *new std::string;  // read at exit, after destructors
std::atomic<int> g_order{0};
std::atomic<uint64_t> g_seed{0};
std::atomic<int> g_poison{0xFF};
std::atomic<double> g_patience{10};

std::string shape(dim3 d) { return coordinates(d.x, d.y, d.z); }

dim3 cluster_of(const Kernel& kernel, const Config& c) {
  return c.cluster.x != 0 ? c.cluster : kernel.cluster.x != 0 ? kernel.cluster : dim3(1);
}

// Their codes have not been compared with a GPU's.
cudaError_t check_cluster(const Kernel& kernel, const Config& c, std::string* text) {
  dim3 d = cluster_of(kernel, c);
  uint64_t blocks = uint64_t(d.x) * d.y * d.z;
  std::string what = "cluster " + shape(d);
  if (c.cluster.x != 0 && kernel.cluster.x != 0 && (d.x != kernel.cluster.x || d.y != kernel.cluster.y || d.z != kernel.cluster.z)) {
    *text = what + " for a kernel with __cluster_dims__" + shape(kernel.cluster);
  } else if (blocks == 0 || blocks > uint64_t(cluster_limit(kernel))) {
    *text = what + ": the limit is " + std::to_string(cluster_limit(kernel)) + " blocks" +
            (current_arch().major < 9 ? std::string(" on ") + current_arch().name
             : kernel.large_cluster   ? ""
                                      : " without cudaFuncAttributeNonPortableClusterSizeAllowed");
  } else if (c.grid.x % d.x != 0 || c.grid.y % d.y != 0 || c.grid.z % d.z != 0) {
    *text = "grid " + shape(c.grid) + " is no multiple of the " + what;
  } else {
    return cudaSuccess;
  }
  return cudaErrorInvalidClusterSize;
}

// The limits of the architecture. For all of them an H200 with toolkit 13.0 returns cudaErrorInvalidValue (tests/emulator_programs/
// limits.cu); older toolkits said cudaErrorInvalidConfiguration of grids and blocks.
cudaError_t check(const Kernel& kernel, const Config& c, std::string* text) {
  const Arch& arch = current_arch();
  uint64_t threads = uint64_t(c.block.x) * c.block.y * c.block.z;
  if (threads == 0) {
    *text = "empty block " + shape(c.block);
    return cudaErrorInvalidValue;
  }
  if (c.block.x > 1024 || c.block.y > 1024 || c.block.z > 64 || threads > 1024) {
    *text = "block " + shape(c.block) + " is beyond (1024, 1024, 64) or has more than 1024 threads";
    return cudaErrorInvalidValue;
  }
  if (c.grid.x == 0 || c.grid.y == 0 || c.grid.z == 0) {
    *text = "empty grid " + shape(c.grid);
    return cudaErrorInvalidValue;
  }
  if (c.grid.x > unsigned(INT_MAX) || c.grid.y > 65535 || c.grid.z > 65535) {
    *text = "grid " + shape(c.grid) + " is beyond (2147483647, 65535, 65535)";
    return cudaErrorInvalidValue;
  }
  if (kernel.max_threads != 0 && threads > kernel.max_threads) {
    *text = std::to_string(threads) + " threads exceed __launch_bounds__(" + std::to_string(kernel.max_threads) + ")";
    return cudaErrorInvalidValue;
  }
  cudaError_t cluster = check_cluster(kernel, c, text);
  if (cluster != cudaSuccess) return cluster;
  size_t limit = shared_limit(kernel) - std::min<size_t>(shared_limit(kernel), kernel.static_bytes);
  if (kernel.max_dynamic_bytes >= 0) limit = std::min(limit, size_t(kernel.max_dynamic_bytes));
  if (c.cooperative) {
    uint64_t most = resident_blocks(kernel, unsigned(threads), c.dynamic_bytes);
    if (uint64_t(c.grid.x) * c.grid.y * c.grid.z > most) {
      *text = "cooperative grid " + shape(c.grid) + ": " + std::to_string(most) + " blocks can be on the device at once";
      return cudaErrorCooperativeLaunchTooLarge;
    }
  }
  if (c.dynamic_bytes > limit) {
    *text = std::to_string(c.dynamic_bytes) + " bytes of dynamic shared memory, " + std::to_string(kernel.static_bytes) +
            " static: the limit is " + std::to_string(limit) +
            (kernel.max_dynamic_bytes < 0 ? " without cudaFuncAttributeMaxDynamicSharedMemorySize" : " as set or of " + std::string(arch.name));
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

}  // namespace

uint64_t resident_blocks(const Kernel& kernel, unsigned threads, size_t dynamic_bytes) {
  return uint64_t(blocks_per_multiprocessor(&kernel, int(threads), dynamic_bytes)) * unsigned(current_arch().multiprocessors);
}

double now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) * 1e3 + double(t.tv_nsec) * 1e-6;
}

// Shared memory that static and dynamic variables may take together.
size_t shared_limit(const Kernel& kernel) {
  return kernel.max_dynamic_bytes < 0 ? 48 * 1024 : std::max<size_t>(48 * 1024, current_arch().shared_optin);
}

const char* first_failure() { return g_first_failure.c_str(); }

cudaError_t set_error(cudaError_t code, std::string text) {
  if (code != cudaSuccess && g_first_failure.empty()) g_first_failure = text;
  host().last = code;
  host().text = std::move(text);
  return code;
}

void configure(dim3 grid, dim3 block, size_t dynamic_bytes, cudaStream_t stream, const char* file, int line) {
  HostThread& h = host();
  h.open.push_back(h.configs.size());
  h.configs.push_back({grid, block, dynamic_bytes, stream, file, line});
}

void launched() {
  HostThread& h = host();
  size_t depth = h.open.back();
  h.open.pop_back();
  if (h.configs.size() <= depth) return;
  Config c = h.configs[depth];
  h.configs.resize(depth);
  set_error(cudaErrorInvalidDeviceFunction, "the launch at " + site(c.file, c.line) + " called a function that is not a __global__ function");
}

void extend(dim3 cluster, bool cooperative) {
  host().configs.back().cluster = cluster;
  host().configs.back().cooperative = cooperative;
}

bool configure(const cudaLaunchConfig_t& config, const char* file, int line) {
  dim3 cluster(0);
  bool cooperative = false;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& a = config.attrs[i];
    if (a.id == cudaLaunchAttributeClusterDimension) cluster = dim3(a.val.clusterDim.x, a.val.clusterDim.y, a.val.clusterDim.z);
    if (a.id == cudaLaunchAttributeCooperative) cooperative = a.val.cooperative != 0;
    if (a.id > cudaLaunchAttributeMemSyncDomain || a.id == cudaLaunchAttributeProgrammaticEvent) {
      set_error(cudaErrorNotSupported, site(file, line) + ": launch attribute " + std::to_string(a.id) + " is not modelled");
      return false;
    }
  }
  configure(config.gridDim, config.blockDim, config.dynamicSmemBytes, config.stream, file, line);
  extend(cluster, cooperative);
  return true;
}

// The code of the launch just made, as cudaLaunchKernel returns it.
cudaError_t last_launch() { return execution_error() == host().last ? cudaSuccess : host().last; }

bool enter(Kernel* kernel) {
  HostThread& h = host();
  if (h.query == nullptr) return true;
  *h.query = kernel;
  return false;
}

// Asks a function which kernel it is: its first statement answers before anything looks at the arguments, which are missing here.
Kernel* kernel_of(const void* function) {
  Kernel* found = nullptr;
  HostThread& h = host();
  h.query = &found;
  reinterpret_cast<void (*)()>(const_cast<void*>(function))();
  h.query = nullptr;
  return found;
}

// A launch from device code: the grid begins when the one that it came from has ended, which is the latest that CUDA allows.
void Worker::launch_later(const char* file, int line, std::function<void()> launch) {
  constexpr unsigned kDeepest = 24;
  if (grid_->depth == kDeepest) {
    fail(self(), cudaErrorLaunchFailure, {file, line, nullptr, 0}, "a launch from device code, nested more than " + std::to_string(kDeepest) + " deep");
  }
  std::lock_guard<std::mutex> lock(grid_->mutex);
  grid_->children.push_back(std::move(launch));
}

void launch_closure(Kernel* kernel, void (*run)(void*), void* closure, size_t bytes) {
  HostThread& h = host();
  if (h.configs.empty()) {
    set_error(cudaErrorInvalidConfiguration, std::string("kernel ") + kernel->name + " (" + site(kernel->file, kernel->line) +
                                                 ") was called without <<<...>>>");
    return;
  }
  Config c = h.configs.back();
  h.configs.pop_back();
  auto again = [=, copy = std::vector<char>(static_cast<char*>(closure), static_cast<char*>(closure) + bytes)]() mutable {
    host().configs.push_back(c);
    host().configs.back().stream = nullptr;
    launch_closure(kernel, run, copy.data(), bytes);
  };
  if (active_worker() != nullptr) return active_worker()->launch_later(c.file, c.line, again);
  if (c.stream != nullptr && capture(c.stream, again)) return;
  std::string text;
  cudaError_t code = check(*kernel, c, &text);
  bool grid_refused = code != cudaSuccess;
  if (code == cudaSuccess) {
    Grid grid;
    grid.kernel = kernel;
    grid.run = run;
    grid.closure = closure;
    grid.closure_bytes = bytes;
    grid.grid = c.grid;
    grid.block = c.block;
    grid.threads = c.block.x * c.block.y * c.block.z;
    grid.dynamic_bytes = c.dynamic_bytes;
    grid.shared_limit = shared_limit(*kernel);
    grid.order = Order(g_order.load());
    grid.seed = g_seed.load();
    grid.poison = g_poison.load();
    grid.patience_ms = g_patience.load() * 1e3;
    grid.blocks = uint64_t(c.grid.x) * c.grid.y * c.grid.z;
    grid.cluster = cluster_of(*kernel, c);
    grid.cluster_blocks = grid.cluster.x * grid.cluster.y * grid.cluster.z;
    grid.cooperative = c.cooperative;
    grid.depth = h.depth;
    std::unique_lock<std::recursive_mutex> alone(Check::mutex, std::defer_lock);
    if (Check::on != nullptr || grid.order != Order::forward) alone.lock();
    catch_faults();
    if (Check::on != nullptr) Check::on->begin_launch(grid);
    run_grid(grid);
    if (Check::on != nullptr) Check::on->end_launch();
    release_faults();
    if (alone.owns_lock()) alone.unlock();
    if (grid.code == 0) {
      ++h.depth;
      for (auto& child : grid.children) child();
      --h.depth;
      return;
    }
    code = cudaError_t(grid.code);
    text = std::move(grid.text);
  }
  if (Check::on != nullptr && grid_refused) {
    Check::on->report("launch", std::string("launch of ") + kernel->name + ": " + text, nullptr, 0, nullptr, c.file, c.line);
  }
  set_error(code, std::string("kernel ") + kernel->name + " (" + site(kernel->file, kernel->line) + "), launched at " +
                      site(c.file, c.line) + ": " + text);
}

cudaError_t execution_error() {
  switch (host().last) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure: return host().last;
    default: return cudaSuccess;
  }
}

// Eight blocks everywhere that has clusters, sixteen on request where the hardware has them.
int cluster_limit(const Kernel& kernel) {
  if (current_arch().major < 9) return 1;
  return kernel.large_cluster && current_arch().major < 12 ? 16 : 8;
}

cudaError_t most_clusters(int* clusters, const Kernel* kernel, const cudaLaunchConfig_t& config) {
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  Config c{config.gridDim, config.blockDim, config.dynamicSmemBytes, config.stream, "", 0};
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const auto& d = config.attrs[i].val.clusterDim;
    if (config.attrs[i].id == cudaLaunchAttributeClusterDimension) c.cluster = dim3(d.x, d.y, d.z);
  }
  std::string text;
  cudaError_t code = check_cluster(*kernel, c, &text);
  if (code != cudaSuccess) return set_error(code, text);
  dim3 d = cluster_of(*kernel, c);
  int blocks = blocks_per_multiprocessor(kernel, int(c.block.x * c.block.y * c.block.z), c.dynamic_bytes);
  *clusters = blocks * current_arch().multiprocessors / int(d.x * d.y * d.z);
  return cudaSuccess;
}

int poison_byte() { return g_poison.load() & 0xFF; }

}  // namespace samebits

namespace samebits_api {
cudaError_t cudaGetLastError() {
  cudaError_t code = samebits::host().last;
  samebits::host().last = cudaSuccess;
  return code;
}
cudaError_t cudaPeekAtLastError() { return samebits::host().last; }
}  // namespace samebits_api

extern "C" {
const char* samebits_last_error() { return samebits::host().text.c_str(); }
void samebits_clear_error() { samebits::set_error(cudaSuccess, ""); }
void samebits_set_order(int mode, unsigned long long seed) {
  samebits::g_order = mode < 0 || mode > 3 ? 0 : mode;
  samebits::g_seed = seed;
}
void samebits_set_patience(double seconds) { samebits::g_patience = seconds; }
void samebits_set_poison(int byte) { samebits::g_poison = byte & 0xFF; }
}
