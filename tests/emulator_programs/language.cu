// What the translator has to see: launches in every dress, kernel parameters, shared variables.
#include <cuda_runtime.h>
#include <stdint.h>

#define LAUNCH(kernel, grid, block, ...) kernel<<<grid, block>>>(__VA_ARGS__)
#define TWICE(body) do { body; body; } while (0)
#define KERNEL(name) __global__ void __launch_bounds__(64) name
#define SHARED(type, name, n) __shared__ type name[n]

namespace deep {
template <class T, int N = 2>
__global__ void scale(T* x, int n, T by = T(3)) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * by * T(N);
}
}  // namespace deep

KERNEL(add_one)(int* x, int n) {
  int i = threadIdx.x + blockIdx.x * blockDim.x;
  for (; n > i && i >= 0; n = -1) x[i] += 1;  // a parameter is a variable of the thread
}
__global__ void overloaded(int* x) { *x += 10; }
__global__ void overloaded(float* x) { *x += 100.0f; }
__global__ void with_struct(int4 v, int* out, const char* text = "a > b >> c <<< d >>> (e)") {
  out[threadIdx.x] = v.x + 10 * v.y + 100 * v.z + 1000 * v.w + (text[0] == 'a' ? 0 : 1);
  v.x = -1;
}
template <class... Args>
__global__ void pack(int* out, Args... args) { *out = (0 + ... + int(args)); }
template <class F>
__global__ void apply(F f, int* out) { out[threadIdx.x] = f(threadIdx.x); }

template <class T>
struct Launcher {
  static void run(T* x, int n) { deep::scale<T, 1><<<dim3((n + 31) / 32), 32, 0, nullptr>>>(x, n); }
  template <int N>
  static void run_n(T* x, int n) { deep::template scale<T, N><<<1, (n > 32) ? n : 32>>>(x, n, T(1)); }
};

static int evaluated = 0;
static int count(int value) { ++evaluated; return value; }
static void (*kernel_by_number(int i))(int*, int) { return i == 0 ? add_one : nullptr; }

extern "C" int launches(int* x, float* f, int n) {
  LAUNCH(add_one, dim3(count((n + 63) / 64)), 64, x, count(n));
  TWICE((add_one<<<(n + 63) / 64, 64>>>(x, n)));
  add_one<<<
      (n >> 6) + 1,
      dim3(64)
  >>>(x, n);
  if (n < 0) add_one<<<1, 1>>>(x, n); else add_one<<<(n + 63) / 64, 64>>>(x, n);
  n > 0 ? add_one<<<(n + 63) / 64, 64>>>(x, n) : (void)0;
  void (*table[2])(int*, int) = {add_one, add_one};
  table[1]<<<n < 65 ? 1 : (n + 63) / 64, 64>>>(x, n);
  kernel_by_number(0)<<<(n + 63) / 64, 64>>>(x, n);
  auto twice = [&](auto kernel) { (*kernel)<<<(n + 63) / 64, 64>>>(x, n); (kernel)<<<(n + 63) / 64, 64>>>(x, n); };
  twice(&add_one);
  Launcher<float>::run(f, n);                    // x 3
  Launcher<float>::run_n<5>(f, n);               // x 5
  ::deep::scale<float><<<1, 1024>>>(f, n, {2});  // x 4
  overloaded<<<1, 1>>>(x);
  overloaded<<<1, 1>>>(f);
  return evaluated == 2 ? cudaGetLastError() : -1;
}

extern "C" int parameters(int* out) {
  with_struct<<<1, 4>>>(make_int4(1, 2, 3, 4), out);
  pack<<<1, 1>>>(out + 4, 1, 2.5f, 'a');
  int base = 40;
  apply<<<1, 2>>>([=] __device__(int i) { return base + i; }, out + 5);
  return cudaGetLastError();
}

// Host code likes these names for variables of its own.
struct Shape {
  dim3 gridDim, blockDim;
  unsigned threads() const { return gridDim.x * blockDim.x; }
};
static unsigned product(const dim3& gridDim, dim3 blockDim) { return gridDim.x * blockDim.x; }
__global__ void fill(int* out) { out[blockIdx.x * blockDim.x + threadIdx.x] = int(gridDim.x * 100 + blockDim.x); }
extern "C" int own_names(int* out) {
  dim3 blockDim(4), gridDim = dim3(2);
  const Shape shape{gridDim, blockDim};
  fill<<<gridDim, shape.blockDim>>>(out);
  out[8] = int(shape.threads() + product(gridDim, blockDim));
  return cudaGetLastError();
}

__device__ int* helper_counter() {
  __shared__ int counter;
  return &counter;
}

// Every block must find poison in all of them; the ends of one must not be the start of another.
template <class T>
__global__ void shared_kinds(unsigned* bad, unsigned poison) {
  __shared__ T a[8], b[3][8], single;
  __shared__ __align__(64) unsigned char bytes[5];
  __shared__ alignas(128) struct { int x; short y; } record;
  SHARED(int, in_macro, 4);
  extern __shared__ float dynamic[];
  static_assert(sizeof(a) == 8 * sizeof(T) && sizeof(b) == 24 * sizeof(T) && sizeof(record) == 8, "types are kept");
  unsigned found = 0;
  unsigned char expect = (unsigned char)poison;
  auto check = [&](const void* p, unsigned n) {
    for (unsigned i = 0; i < n; ++i) found += static_cast<const unsigned char*>(p)[i] != expect;
  };
  if (threadIdx.x == 0) {
    check(a, sizeof(a)), check(b, sizeof(b)), check(&single, sizeof(single)), check(bytes, sizeof(bytes));
    check(&record.x, 6), check(in_macro, sizeof(in_macro)), check(dynamic, 100 * sizeof(float));
    check(helper_counter(), sizeof(int));
    found += (uintptr_t(bytes) % 64 != 0) + (uintptr_t(&record) % 128 != 0) + (uintptr_t(dynamic) % 16 != 0);
    char *p[] = {(char*)a, (char*)b, (char*)&single, (char*)bytes, (char*)&record, (char*)in_macro, (char*)dynamic, (char*)helper_counter()};
    size_t n[] = {sizeof(a), sizeof(b), sizeof(single), sizeof(bytes), sizeof(record), sizeof(in_macro), 400, sizeof(int)};
    for (int i = 0; i < 8; ++i)
      for (int j = 0; j < 8; ++j) found += i != j && p[i] < p[j] + n[j] && p[j] < p[i] + n[i];
    atomicAdd(bad, found);
  }
  __syncthreads();
  a[threadIdx.x % 8] = T(1), b[threadIdx.x % 3][0] = T(2), single = T(3), bytes[0] = 4, record = {5, 6}, in_macro[0] = 7;
  dynamic[threadIdx.x] = 8, *helper_counter() = 9;
}
extern "C" int shared_variables(unsigned* bad, unsigned poison) {
  shared_kinds<float><<<5, 64, 100 * sizeof(float)>>>(bad, poison);
  shared_kinds<double><<<5, 64, 100 * sizeof(float)>>>(bad, poison);
  return cudaGetLastError();
}

extern __shared__ int at_namespace_scope[];
__shared__ float fixed_at_namespace_scope[32];
__device__ void write_dynamic(int i) { at_namespace_scope[i] = i * i; }
__global__ void namespace_shared(int* out) {
  write_dynamic(threadIdx.x);
  fixed_at_namespace_scope[threadIdx.x] = threadIdx.x;
  __syncthreads();
  int other = blockDim.x - 1 - threadIdx.x;
  out[threadIdx.x] = at_namespace_scope[other] + int(fixed_at_namespace_scope[other]);
}
extern "C" int namespace_scope(int* out) {
  namespace_shared<<<1, 32, 32 * sizeof(int)>>>(out);
  return cudaGetLastError();
}

__global__ void indices(unsigned* out) {
  unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  unsigned* o = out + (block * blockDim.x * blockDim.y * blockDim.z + thread) * 6;
  o[0] = blockIdx.x, o[1] = blockIdx.y, o[2] = blockIdx.z, o[3] = threadIdx.x, o[4] = threadIdx.y, o[5] = threadIdx.z;
}
extern "C" int all_indices(unsigned* out, unsigned* g, unsigned* b) {
  indices<<<dim3(g[0], g[1], g[2]), dim3(b[0], b[1], b[2])>>>(out);
  return cudaGetLastError();
}

__constant__ float table[4];
__device__ int total;
__global__ void use_symbols(float* out) {
  out[threadIdx.x] = table[threadIdx.x];
  atomicAdd(&total, int(threadIdx.x));
}
extern "C" int runtime_api(float* out, int* sum) {
  float host[4] = {1, 2, 3, 4}, *device;
  cudaStream_t stream;
  if (cudaStreamCreate(&stream) || cudaMalloc(&device, sizeof host)) return -1;
  for (unsigned i = 0; i < sizeof host; ++i)
    if (reinterpret_cast<unsigned char*>(device)[i] != 0xFF) return -2;  // fresh memory is poison
  if (cudaMemcpyToSymbol(table, host, sizeof host) || cudaMemset(device, 0, sizeof host)) return -3;
  use_symbols<<<1, 4, 0, stream>>>(device);
  if (cudaMemcpyAsync(out, device, sizeof host, cudaMemcpyDeviceToHost, stream) || cudaStreamSynchronize(stream)) return -4;
  if (cudaMemcpyFromSymbol(sum, total, sizeof total)) return -5;
  if (cudaFree(device) || cudaFree(device) != cudaErrorInvalidValue || cudaGetLastError() != cudaErrorInvalidValue) return -6;
  void *pinned, *managed;
  cudaPointerAttributes kinds[3];
  if (cudaMallocHost(&pinned, 8) || cudaMallocManaged(&managed, 8) || cudaPointerGetAttributes(&kinds[0], static_cast<char*>(pinned) + 7) ||
      cudaPointerGetAttributes(&kinds[1], managed) || cudaPointerGetAttributes(&kinds[2], host) || cudaFreeHost(pinned) || cudaFree(managed) ||
      kinds[0].type != cudaMemoryTypeHost || kinds[1].type != cudaMemoryTypeManaged || kinds[2].type != cudaMemoryTypeUnregistered) {
    return -9;
  }
  cudaDeviceProp p;
  int optin = 0;
  if (cudaGetDeviceProperties(&p, 0) || cudaDeviceGetAttribute(&optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0)) return -7;
  return p.major == 9 && p.minor == 0 && optin == 227 * 1024 && warpSize == 32 ? cudaStreamDestroy(stream) : -8;
}
