// Graphs: what a captured stream is given is kept, and runs in that order at every launch of the graph.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>

#include "device.h"

struct CUgraph_st {
  std::vector<std::function<void()>> nodes;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> nodes;
};

namespace samebits {

namespace {
std::mutex graph_mutex;
std::map<cudaStream_t, CUgraph_st*> capturing;
std::map<cudaEvent_t, CUgraph_st*> captured_events;  // recorded in them: who waits for one joins the capture
}  // namespace

bool capture(cudaStream_t stream, std::function<void()> work) {
  std::lock_guard<std::mutex> lock(graph_mutex);
  auto found = capturing.find(stream);
  if (found == capturing.end()) return false;
  found->second->nodes.push_back(std::move(work));
  return true;
}

void capture_event(cudaEvent_t event, cudaStream_t stream) {
  std::lock_guard<std::mutex> lock(graph_mutex);
  auto found = capturing.find(stream);
  if (found != capturing.end()) captured_events[event] = found->second;
}

void capture_wait(cudaStream_t stream, cudaEvent_t event) {
  std::lock_guard<std::mutex> lock(graph_mutex);
  auto found = captured_events.find(event);
  if (found != captured_events.end()) capturing[stream] = found->second;
}

}  // namespace samebits

namespace samebits_api {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  std::lock_guard<std::mutex> lock(samebits::graph_mutex);
  if (stream == nullptr || samebits::capturing.count(stream) != 0) {
    return set_error(cudaErrorInvalidValue, "cudaStreamBeginCapture of the default stream, or of one that is being captured");
  }
  samebits::capturing[stream] = new CUgraph_st;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  std::lock_guard<std::mutex> lock(samebits::graph_mutex);
  auto found = samebits::capturing.find(stream);
  if (found == samebits::capturing.end()) return set_error(cudaErrorInvalidValue, "cudaStreamEndCapture of a stream that is not being captured");
  *graph = found->second;
  auto of_it = [graph](auto& entries) {
    for (auto at = entries.begin(); at != entries.end();) at = at->second == *graph ? entries.erase(at) : std::next(at);
  };
  of_it(samebits::capturing);
  of_it(samebits::captured_events);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  std::lock_guard<std::mutex> lock(samebits::graph_mutex);
  *status = samebits::capturing.count(stream) != 0 ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (nodes == nullptr) return *count = graph->nodes.size(), cudaSuccess;
  for (size_t i = 0; i < *count; ++i) nodes[i] = i < graph->nodes.size() ? reinterpret_cast<cudaGraphNode_t>(&graph->nodes[i]) : nullptr;
  return *count = std::min(*count, graph->nodes.size()), cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  for (const auto& node : exec->nodes) node();
  return samebits::last_launch();
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return delete exec, cudaSuccess; }

}  // namespace samebits_api
