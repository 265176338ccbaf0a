// Streams whose work is captured into a graph and launched twice: kernels, copies, a host function, a second stream that joins by an event.
#include "program.h"

__global__ void scale(float* x, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= by;
}
static void count(void* calls) { ++*static_cast<int*>(calls); }

int main() {
  int n = 500, calls = 0;
  std::vector<float> x = numbers(n), half(n), whole(n), got(n);
  float *d = upload(x), *copy = fresh<float>(n);
  cudaStream_t first, second;
  cudaEvent_t ready, done;
  CHECK(cudaStreamCreate(&first));
  CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  CHECK(cudaEventCreate(&ready));
  CHECK(cudaEventCreate(&done));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaStreamCaptureStatus status;
  CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
  scale<<<(n + 127) / 128, 128, 0, first>>>(d, 0.5f, n);
  CHECK(cudaEventRecord(ready, first));
  CHECK(cudaStreamWaitEvent(second, ready, 0));
  CHECK(cudaMemcpyAsync(copy, d, n * sizeof(float), cudaMemcpyDeviceToDevice, second));
  CHECK(cudaEventRecord(done, second));
  CHECK(cudaStreamWaitEvent(first, done, 0));
  scale<<<(n + 127) / 128, 128, 0, first>>>(d, -1.0f, n);
  CHECK(cudaLaunchHostFunc(first, count, &calls));
  CHECK(cudaStreamIsCapturing(second, &status));
  CHECK(cudaStreamEndCapture(first, &graph));
  bool good = status == cudaStreamCaptureStatusActive && calls == 0 && close(download(d, n), x);  // nothing has run
  CHECK(cudaStreamIsCapturing(second, &status));
  good = good && status == cudaStreamCaptureStatusNone;
  CHECK(cudaGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  CHECK(cudaGraphDestroy(graph));
  for (int i = 0; i < 2; ++i) CHECK(cudaGraphLaunch(exec, first));
  CHECK(cudaStreamSynchronize(first));
  for (int i = 0; i < n; ++i) half[i] = x[i] * -0.25f, whole[i] = x[i] * 0.25f;
  good = good && calls == 2 && close(download(copy, n), half) && close(download(d, n), whole);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaStreamDestroy(first));
  CHECK(cudaStreamDestroy(second));
  return verdict(good);
}
