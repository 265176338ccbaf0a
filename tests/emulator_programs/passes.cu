// What __CUDA_ARCH__ says in host code (nothing), in device code, and in functions of both.
#include <stdio.h>
#if !defined(__CUDA_ARCH__)
#include <math.h>
#endif

#if __CUDA_ARCH__ < 600  // true on the host, where it is 0; a device function all the same
__device__ int for_old_devices() { return 0; }
#endif

#ifdef __CUDA_ARCH__
#define BOTH __host__ __device__ __forceinline__
#define WHERE "device"
#else
#define BOTH __host__ __device__ inline
#define WHERE "host"
static int host_alone(int x) { return x + 1; }
#endif

BOTH const char* where() { return WHERE; }

template <class T>
__host__ __device__ T doubled(T x) {
#ifdef __CUDA_ARCH__
  T y = x * 2;
#else
  T y = 100 * host_alone(x);
#endif
  return y;
}

struct Point {
  int x;
  __host__ __device__ explicit Point(int x) : x(x) {
#ifndef __CUDA_ARCH__
    this->x += 100;
#endif
  }
  __host__ __device__ bool on_host() const {
#ifdef __CUDA_ARCH__
    return false;
#else
    return true;
#endif
  }
};

constexpr int relaxed(int x) {
#ifdef __CUDA_ARCH__
  return x + 1;
#else
  return x + 2;
#endif
}

__device__ int device_alone() {
#ifdef __CUDA_ARCH__
  return 1;
#else
  return -1;
#endif
}

__global__ void kernel() {
#if __CUDA_ARCH__ >= 700
  __shared__ int s[1];
  s[0] = doubled(5);
  __syncthreads();
  printf("kernel: %s %d %d %d %d\n", where(), s[0], Point(1).x, Point(1).on_host(), relaxed(device_alone()));
#endif
}

template <class F>
__global__ void apply(F f) {
  f();
}

int main() {
#ifdef __CUDA_ARCH__
  printf("main: device\n");
#else
  printf("main: host\n");
#endif
  printf("%s: %s %d %d %d %d\n", "main", where(), doubled(5), Point(1).x, Point(1).on_host(), relaxed(1));
  constexpr int constant = relaxed(2);
  printf("constant: %d\n", constant);
  kernel<<<1, 1>>>();
  apply<<<1, 1>>>([] __device__() {
#ifdef __CUDA_ARCH__
    printf("lambda: device\n");
#else
    printf("lambda: host\n");
#endif
  });
  return cudaDeviceSynchronize();
}
