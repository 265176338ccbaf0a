// What the programs of this folder share: checked calls, and the last line PASS or FAIL.
#pragma once
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                                  \
  do {                                                                                               \
    cudaError_t code_ = (call);                                                                      \
    if (code_ != cudaSuccess) {                                                                      \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(code_));                 \
      exit(2);                                                                                       \
    }                                                                                                \
  } while (0)

template <class T>
T* upload(const std::vector<T>& v) {
  T* p;
  CHECK(cudaMalloc(&p, v.size() * sizeof(T)));
  CHECK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
  return p;
}
template <class T>
T* fresh(size_t n) {
  T* p;
  CHECK(cudaMalloc(&p, n * sizeof(T)));
  return p;
}
template <class T>
std::vector<T> download(const T* p, size_t n) {
  std::vector<T> v(n);
  CHECK(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
  return v;
}
inline std::vector<float> numbers(size_t n, unsigned seed = 1) {  // multiples of 1/64 in [-1, 1): sums of them are exact
  std::vector<float> v(n);
  for (float& x : v) x = float(int((seed = seed * 1664525u + 1013904223u) >> 25) - 64) / 64;
  return v;
}
inline int verdict(bool good) {
  CHECK(cudaDeviceSynchronize());
  printf("%s\n", good ? "PASS" : "FAIL");
  return good ? 0 : 1;
}
template <class T>
bool close(const std::vector<T>& a, const std::vector<T>& b, double most = 0) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(std::fabs(double(a[i]) - double(b[i])) <= most)) {
      printf("element %zu: %g, not %g\n", i, double(a[i]), double(b[i]));
      return false;
    }
  }
  return true;
}
