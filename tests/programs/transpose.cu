// Transpose through a shared tile with a column of padding; two-dimensional blocks, a pitched copy.
#include "program.h"

#define LAUNCH(kernel, grid, block, ...) kernel<<<grid, block>>>(__VA_ARGS__)

template <typename T, int Tile = 16>
__global__ void transpose(T* out, const T* in, int rows, int columns, size_t pitch) {
  __shared__ T tile[Tile][Tile + 1];
  int x = blockIdx.x * Tile + threadIdx.x, y = blockIdx.y * Tile + threadIdx.y;
  if (x < columns && y < rows) tile[threadIdx.y][threadIdx.x] = in[y * pitch + x];
  __syncthreads();
  x = blockIdx.y * Tile + threadIdx.x;
  y = blockIdx.x * Tile + threadIdx.y;
  if (x < rows && y < columns) out[y * rows + x] = tile[threadIdx.x][threadIdx.y];
}

int main() {
  int rows = 45, columns = 70;
  std::vector<float> x = numbers(rows * columns), want(rows * columns);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) want[j * rows + i] = x[i * columns + j];
  float* in;
  size_t pitch;
  CHECK(cudaMallocPitch((void**)&in, &pitch, columns * sizeof(float), rows));
  CHECK(cudaMemcpy2D(in, pitch, x.data(), columns * sizeof(float), columns * sizeof(float), rows, cudaMemcpyHostToDevice));
  float* out = fresh<float>(rows * columns);
  dim3 grid((columns + 15) / 16, (rows + 15) / 16), block(16, 16);
  LAUNCH(transpose, grid, block, out, (const float*)in, rows, columns, pitch / sizeof(float));
  return verdict(close(download(out, rows * columns), want));
}
