// Products of 16 x 16 tiles: by wmma fragments, by ldmatrix with mma.sync, and by mma.sync with other sums. The values are small: every order of sums gives the same.
#include <cuda_fp16.h>
#include <mma.h>

#include "program.h"

using namespace nvcuda;

__global__ void by_wmma(const half* a, const half* b, float* c, int n) {
  int row = blockIdx.y * 16, column = blockIdx.x * 16;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
  wmma::fill_fragment(fc, 0.0f);
  for (int k = 0; k < n; k += 16) {
    wmma::load_matrix_sync(fa, a + row * n + k, n);
    wmma::load_matrix_sync(fb, b + k * n + column, n);
    wmma::mma_sync(fc, fa, fb, fc);
  }
  wmma::store_matrix_sync(c + row * n + column, fc, n, wmma::mem_row_major);
}

__global__ void by_mma(const half* a, const half* b, float* c, int n) {  // a 16 x 8 tile of c a block
  __shared__ alignas(16) half sa[16][16], sb[16][8];
  int row = blockIdx.y * 16, column = blockIdx.x * 8, lane = threadIdx.x;
  float d[4] = {0, 0, 0, 0};
  for (int k = 0; k < n; k += 16) {
    for (int i = lane; i < 256; i += 32) sa[i / 16][i % 16] = a[(row + i / 16) * n + k + i % 16];
    for (int i = lane; i < 128; i += 32) sb[i / 8][i % 8] = b[(k + i / 8) * n + column + i % 8];
    __syncwarp();
    unsigned fa[4], fb[2];
    unsigned pa = unsigned(__cvta_generic_to_shared(&sa[lane % 16][lane / 16 * 8]));
    unsigned pb = unsigned(__cvta_generic_to_shared(&sb[lane % 16][0]));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3]) : "r"(pa));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(fb[0]), "=r"(fb[1]) : "r"(pb));
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
    __syncwarp();
  }
  for (int e = 0; e < 4; ++e) c[(row + lane / 4 + e / 2 * 8) * n + column + lane % 4 * 2 + e % 2] = d[e];
}

// Fragments straight from global memory, A by rows and B by columns: sums in half, and of bytes in int.
__global__ void half_sums(const half* a, const half* b, half* c, int n) {
  int row = blockIdx.y * 16 + threadIdx.x / 4, column = blockIdx.x * 8, quad = threadIdx.x % 4;
  auto pair = [n](const half* m, int i, int k) { return *reinterpret_cast<const unsigned*>(m + i * n + k); };
  unsigned d[2] = {0, 0};
  for (int k = 2 * quad; k < n; k += 16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5},\n"
        "    {%6, %7}, {%0, %1};"
        : "+r"(d[0]), "+r"(d[1])
        : "r"(pair(a, row, k)), "r"(pair(a, row + 8, k)), "r"(pair(a, row, k + 8)), "r"(pair(a, row + 8, k + 8)),
          "r"(pair(b, column + threadIdx.x / 4, k)), "r"(pair(b, column + threadIdx.x / 4, k + 8)));
  }
  *reinterpret_cast<unsigned*>(c + row * n + column + 2 * quad) = d[0];
  *reinterpret_cast<unsigned*>(c + (row + 8) * n + column + 2 * quad) = d[1];
}

__global__ void byte_sums(const signed char* a, const signed char* b, int* c, int n) {
  int row = blockIdx.y * 16 + threadIdx.x / 4, column = blockIdx.x * 8, quad = threadIdx.x % 4;
  auto four = [n](const signed char* m, int i, int k) { return *reinterpret_cast<const unsigned*>(m + i * n + k); };
  int d[4] = {0, 0, 0, 0};
  for (int k = 4 * quad; k < n; k += 32) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(four(a, row, k)), "r"(four(a, row + 8, k)), "r"(four(a, row, k + 16)), "r"(four(a, row + 8, k + 16)),
                   "r"(four(b, column + threadIdx.x / 4, k)), "r"(four(b, column + threadIdx.x / 4, k + 16)));
  }
  for (int e = 0; e < 4; ++e) c[(row + e / 2 * 8) * n + column + 2 * quad + e % 2] = d[e];
}

int main() {
  int n = 32;
  std::vector<half> a(n * n), b(n * n);
  std::vector<float> want(n * n);
  for (int i = 0; i < n * n; ++i) a[i] = half(float(i * 7 % 9 - 4)), b[i] = half(float(i * 5 % 7 - 3));
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      for (int k = 0; k < n; ++k) want[i * n + j] += float(a[i * n + k]) * float(b[k * n + j]);
  half *da = upload(a), *db = upload(b);
  float *c = fresh<float>(n * n), *d = fresh<float>(n * n);
  by_wmma<<<dim3(n / 16, n / 16), 32>>>(da, db, c, n);
  by_mma<<<dim3(n / 8, n / 16), 32>>>(da, db, d, n);
  bool good = close(download(c, n * n), want) && close(download(d, n * n), want);

  std::vector<half> by_columns(n * n), sums;
  std::vector<signed char> a8(n * n), b8(n * n);
  for (int i = 0; i < n * n; ++i) by_columns[i] = b[i % n * n + i / n], a8[i] = (signed char)float(a[i]), b8[i] = (signed char)float(by_columns[i]);
  half *db2 = upload(by_columns), *e = fresh<half>(n * n);
  int* f = fresh<int>(n * n);
  half_sums<<<dim3(n / 8, n / 16), 32>>>(da, db2, e, n);
  byte_sums<<<dim3(n / 8, n / 16), 32>>>(upload(a8), upload(b8), f, n);
  sums = download(e, n * n);
  std::vector<int> counts = download(f, n * n);
  return verdict(good && close(std::vector<float>(sums.begin(), sums.end()), want) && close(std::vector<float>(counts.begin(), counts.end()), want));
}
