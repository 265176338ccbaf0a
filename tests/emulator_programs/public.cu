// What programs of others brought to light: each mode is one of them.
#include <cuda/atomic>
#include <cuda_fp16.h>
#include <stdio.h>
#include <string.h>

#include <cuda_runtime.h>

extern "C" __global__ void turn(float* out, const float* in) {  // a function, not a linkage block: its shared variable is a local one
  __shared__ float tile[8][9];
  tile[threadIdx.y][threadIdx.x] = in[threadIdx.y * 8 + threadIdx.x];
  __syncthreads();
  out[threadIdx.y * 8 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

__global__ void twice(cudaPitchedPtr p, cudaExtent e) {
  float* row = reinterpret_cast<float*>(static_cast<char*>(p.ptr) + (threadIdx.z * p.ysize + threadIdx.y) * p.pitch);
  if (threadIdx.x < e.width / sizeof(float)) row[threadIdx.x] *= 2;
}

// Blocks in turn; the last one resets the counter with a plain write, which is ordered behind the atomics that it has seen.
__global__ void in_turn(int* lock, int* sum) {
  if (threadIdx.x == 0) {
    int state;
    do {
      asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(state) : "l"(lock));
    } while (state != int(blockIdx.x));
  }
  __syncthreads();
  if (threadIdx.x == 1) *sum = (blockIdx.x != 0 ? *sum : 0) + 1;
  __syncthreads();
  if (threadIdx.x == 0 && blockIdx.x == gridDim.x - 1) {
    lock[0] = 0;
  } else if (threadIdx.x == 0) {
    asm volatile("fence.acq_rel.gpu;");
    asm volatile("red.relaxed.gpu.global.add.s32 [%0], 1;" ::"l"(lock));
  }
}

__device__ cuda::atomic<int, cuda::thread_scope_device> locked;
__device__ int guarded;
__global__ void spin() {  // an exchange that changes nothing lets the owner of the lock run
  while (locked.exchange(1, cuda::memory_order_acquire) != 0) {}
  guarded = guarded + 1;
  locked.store(0, cuda::memory_order_release);
}

// The sum of the CUDA C++ Programming Guide: its first, plain read is a guess that the compare-and-swap checks. The other one checks nothing.
__global__ void guesses(double* sum) {
  unsigned long long *at = reinterpret_cast<unsigned long long*>(sum), old = *at, assumed;
  do {
    assumed = old;
    old = atomicCAS(at, assumed, __double_as_longlong(__longlong_as_double(assumed) + 1));
  } while (assumed != old);
}
__global__ void believes(unsigned* sum, unsigned* out) {
  if (threadIdx.x == 0) atomicCAS(sum, 0u, 1u);
  if (threadIdx.x == 1) out[threadIdx.x] = *sum;  // FAULT of believes
}

__global__ void unaligned(const float* p, float* out) {
  out[0] = __ldg(reinterpret_cast<const float4*>(p + 1)).x;  // FAULT of unaligned
}
__global__ void endless(int* p) {
  while (p[0] == 0) {}  // FAULT of endless
}
__global__ void trapped() {
  if (threadIdx.x == 3) __trap();  // FAULT of trapped
}
__global__ void wild(int** p) {
  **p = 1;  // FAULT of wild
}

// A pool of the program's own, managed memory by places, and what else samples set up around a kernel.
__global__ void increment(int* p) { p[threadIdx.x] += 1; }
bool pools() {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t pool;
  cudaStream_t stream;
  int *p, *shared, got[32], blocks = 0;
  bool right = cudaMemPoolCreate(&pool, &properties) == cudaSuccess && cudaStreamCreate(&stream) == cudaSuccess;
  right = right && cudaMallocFromPoolAsync(&p, sizeof got, pool, stream) == cudaSuccess && cudaMemsetAsync(p, 0, sizeof got, stream) == cudaSuccess;
  increment<<<1, 32, 0, stream>>>(p);
  cudaMemcpyAsync(got, p, sizeof got, cudaMemcpyDeviceToHost, stream);
  cudaFreeAsync(p, stream);
  cudaMallocManaged(&shared, sizeof got);
  right = right && cudaMemAdvise(shared, sizeof got, cudaMemAdviseSetPreferredLocation, properties.location) == cudaSuccess;
  right = right && cudaMemPrefetchAsync(shared, sizeof got, properties.location, 0, stream) == cudaSuccess;
  right = right && cudaStreamAttachMemAsync(stream, shared, 0, cudaMemAttachSingle) == cudaSuccess;
  right = right && cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, increment, 256, 0, 0) == cudaSuccess && blocks == 8;
  cudaStreamDestroy(stream);
  cudaFree(shared);
  return right && cudaMemPoolDestroy(pool) == cudaSuccess && got[31] == 1;
}

int main(int count, char** arguments) {
  const char mode = count > 1 ? arguments[1][0] : 'p';
  float host[64], back[64] = {}, *in = nullptr, *out = nullptr;
  for (int i = 0; i < 64; ++i) host[i] = float(i);
  cudaMalloc(&in, sizeof host);
  cudaMalloc(&out, sizeof host);
  cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
  bool right = true;
  if (mode == 'p') {
    right = pools();
    turn<<<1, dim3(8, 8)>>>(out, in);
    cudaMemcpy(back, out, sizeof back, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 64; ++i) right = right && back[i] == float(i % 8 * 8 + i / 8);

    cudaPitchedPtr cube;
    const cudaExtent all = make_cudaExtent(4 * sizeof(float), 2, 3), part = make_cudaExtent(2 * sizeof(float), 1, 2);
    right = right && cudaMalloc3D(&cube, all) == cudaSuccess && cudaMemset3D(cube, 0, all) == cudaSuccess;
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(host, 4 * sizeof(float), 4, 2);
    copy.srcPos = make_cudaPos(sizeof(float), 1, 1);
    copy.dstPtr = cube;
    copy.dstPos = make_cudaPos(2 * sizeof(float), 0, 1);
    copy.extent = part;
    copy.kind = cudaMemcpyHostToDevice;
    right = right && cudaMemcpy3D(&copy) == cudaSuccess;
    twice<<<1, dim3(4, 2, 3)>>>(cube, all);
    cudaMemcpy3DParms all_back = {};
    all_back.srcPtr = cube;
    all_back.dstPtr = make_cudaPitchedPtr(back, 4 * sizeof(float), 4, 2);
    all_back.extent = all;
    all_back.kind = cudaMemcpyDeviceToHost;
    right = right && cudaMemcpy3DAsync(&all_back) == cudaSuccess;
    for (int i = 0; i < 24; ++i) {  // (x, y, z) has come from (x - 1, y + 1, z): by 3 further on
      bool copied = i % 4 >= 2 && i / 4 % 2 == 0 && i / 8 >= 1;
      right = right && back[i] == (copied ? 2 * float(i + 3) : 0);
    }

    int *lock = nullptr, *sum = nullptr, total[2];
    cudaMalloc(&lock, sizeof(int));
    cudaMalloc(&sum, sizeof(int));
    cudaMemset(lock, 0, sizeof(int));
    in_turn<<<5, 32>>>(lock, sum);
    spin<<<2, 64>>>();
    cudaMemcpy(&total[0], sum, sizeof(int), cudaMemcpyDeviceToHost);
    cudaMemcpyFromSymbol(&total[1], guarded, sizeof(int));
    right = right && total[0] == 5 && total[1] == 128;

    double added = 0;
    cudaMemset(in, 0, sizeof(double));
    guesses<<<2, 64>>>(reinterpret_cast<double*>(in));
    cudaMemcpy(&added, in, sizeof added, cudaMemcpyDeviceToHost);
    right = right && added == 128 && __half2float(CUDART_ONE_FP16) == 1 && __half2float(CUDART_MAX_NORMAL_FP16) == 65504;
  } else if (mode == 'c') {
    cudaMemcpyAsync(back, in, sizeof host + 4, cudaMemcpyDeviceToHost, 0);  // FAULT of cudaMemcpyAsync
  } else if (mode == 'b') {
    believes<<<1, 32>>>(reinterpret_cast<unsigned*>(in), reinterpret_cast<unsigned*>(out));
  } else if (mode == 'u') {
    unaligned<<<1, 1>>>(in, out);
  } else if (mode == 'e') {
    cudaMemset(in, 0, sizeof host);
    endless<<<1, 1>>>(reinterpret_cast<int*>(in));
  } else if (mode == 't') {
    trapped<<<1, 32>>>();
  } else if (mode == 'w') {
    cudaMemset(in, 0, sizeof host);
    wild<<<1, 1>>>(reinterpret_cast<int**>(in));
    right = cudaMemset(out, 0, 4) == cudaErrorIllegalAddress && cudaMalloc(&out, 4) == cudaErrorIllegalAddress;  // as on a GPU
  } else if (mode == 'l') {
    printf("%zu\n", strlen(static_cast<const char*>(arguments[count])));  // FAULT of library
  }
  puts(right ? "PASS" : "FAIL");
  return !right;
}
