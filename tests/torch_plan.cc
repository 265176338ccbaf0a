// Runs a plan of kernels_cu/torch_call.cc where stand-ins count for torch's CUDA devices, and prints what its kernel saw.
#include "../kernels_cu/torch_call.cc"

#include <c10/core/impl/FakeGuardImpl.h>

#include <cstdio>

namespace {

using Devices = c10::impl::FakeGuardImpl<c10::DeviceType::CUDA>;
const Devices devices;
const c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::CUDA, &devices);

int kernel(const void* params, void* stream) {
  const auto* words = static_cast<const int64_t*>(params);
  std::printf("on %d, stream %ld, words %ld %ld", int(Devices::getDeviceIndex()), reinterpret_cast<long>(stream), words[0], words[1]);
  return 0;
}

int failing(const void*, void*) { return 9; }

int32_t stream_of(int32_t device, void** stream) {
  *stream = reinterpret_cast<void*>(100 + device);
  return 0;
}

void show(int current, int device, int (*entry)(const void*, void*)) {
  Devices::setDeviceIndex(current);
  // entry, error, device, space; the parameters {0, 5}; one tensor, at word 0; no workspace left out
  const Plan plan({reinterpret_cast<int64_t>(entry), 0, device, 0, 2, 0, 5, 1, 0, 0});
  try {
    plan.run("k", {7});
  } catch (const std::runtime_error& error) {
    std::printf("%s", error.what());
  }
  std::printf("; then %d\n", int(Devices::getDeviceIndex()));
}

}  // namespace

int main() {
  current_stream = stream_of;
  for (int current : {0, 1}) {
    std::printf("current device %d: ", current);
    show(current, 0, kernel);
  }
  std::printf("current device 1, on the CPU: ");
  show(1, -1, kernel);
  std::printf("an error: ");
  show(1, 0, failing);
}
