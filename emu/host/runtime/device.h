// The architectures whose limits are enforced, and the parts of the runtime that share state.
#pragma once

#include <functional>
#include <string>

#include "samebits/runtime_more.h"

namespace samebits {

struct Arch {
  const char* name;
  const char* device;  // a typical device
  int major, minor;
  size_t shared_optin;           // bytes of shared memory a block may have
  size_t shared_multiprocessor;  // bytes per multiprocessor
  size_t shared_reserved;        // bytes the system takes of each block's
  int threads_multiprocessor, blocks_multiprocessor, multiprocessors;
  size_t l2_bytes, memory_bytes;
};

const Arch& current_arch();
std::string choose_arch(const std::string& name);  // from now on the current one; what is wrong, "" if nothing is
size_t shared_limit(const Kernel&);
cudaError_t set_error(cudaError_t, std::string text);
cudaError_t execution_error();  // of a launch on this host thread that failed while it ran, not of one that was refused
int poison_byte();
const char* first_failure();  // text of the first error of the process, "" without
double now_ms();
bool capture(cudaStream_t, std::function<void()>);  // false: the stream is not being captured
void capture_event(cudaEvent_t, cudaStream_t);      // recorded in the stream
void capture_wait(cudaStream_t, cudaEvent_t);

}  // namespace samebits
