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
  const char* file;
  int line;
  bool cooperative = false;
};

struct HostThread {  // what CUDA keeps per host thread
  cudaError_t last = cudaSuccess;
  std::string text;
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
  size_t limit = shared_limit(kernel) - std::min<size_t>(shared_limit(kernel), kernel.static_bytes);
  if (kernel.max_dynamic_bytes >= 0) limit = std::min(limit, size_t(kernel.max_dynamic_bytes));
  if (c.cooperative) {
    uint64_t most = uint64_t(blocks_per_multiprocessor(&kernel, int(threads), c.dynamic_bytes)) * unsigned(arch.multiprocessors);
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

void configure(dim3 grid, dim3 block, size_t dynamic_bytes, cudaStream_t, const char* file, int line) {
  if (active_worker() != nullptr) trap("a launch from device code, which is not modelled");
  HostThread& h = host();
  h.open.push_back(h.configs.size());
  h.configs.push_back({grid, block, dynamic_bytes, file, line, false});
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

void configure_cooperative(dim3 grid, dim3 block, size_t dynamic_bytes, const char* file, int line) {
  configure(grid, block, dynamic_bytes, 0, file, line);
  host().configs.back().cooperative = true;
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

void launch_closure(Kernel* kernel, void (*run)(void*), void* closure, size_t bytes) {
  if (active_worker() != nullptr) trap("a __global__ function was called from device code");
  HostThread& h = host();
  if (h.configs.empty()) {
    set_error(cudaErrorInvalidConfiguration, std::string("kernel ") + kernel->name + " (" + site(kernel->file, kernel->line) +
                                                 ") was called without <<<...>>>");
    return;
  }
  Config c = h.configs.back();
  h.configs.pop_back();
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
    catch_faults();
    if (Check::on != nullptr) Check::on->begin_launch(grid);
    c.cooperative ? run_cooperative(grid) : run_grid(grid);
    if (Check::on != nullptr) Check::on->end_launch();
    release_faults();
    if (grid.code == 0) return;
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
  samebits::g_order = mode < 0 || mode > 2 ? 0 : mode;
  samebits::g_seed = seed;
}
void samebits_set_patience(double seconds) { samebits::g_patience = seconds; }
void samebits_set_poison(int byte) { samebits::g_poison = byte & 0xFF; }
}
