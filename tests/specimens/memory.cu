// Accesses outside of what was allocated, of bytes that nobody wrote, at addresses that no vector may have.
#include "specimen.h"

template <bool Bad>
__global__ void off_by_one(Args a) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (Bad ? i <= a.n : i < a.n) a.y[i] = 1;  // expect: out of bounds
}

template <bool Bad>
__global__ void before_the_start(Args a) {
  int i = threadIdx.x;
  a.y[i] = a.x[Bad ? i - 1 : i];  // expect: out of bounds
}

template <bool Bad>
__global__ void one_vector_too_many(Args a) {
  const float4* v = reinterpret_cast<const float4*>(a.x);
  int i = threadIdx.x;
  if (i < a.n / 4 + (Bad ? 1 : 0)) a.y[i] = v[i].x;  // expect: out of bounds
}

template <bool Bad>
__global__ void shared_off_by_one(Args a) {
  __shared__ float s[65];
  for (int i = threadIdx.x; i < 65 + (Bad ? 1 : 0); i += blockDim.x) s[i] = 0;  // expect: out of bounds
  __syncthreads();
  a.y[threadIdx.x] = s[threadIdx.x];
}

template <bool Bad>
__global__ void into_the_neighbouring_array(Args a) {
  __shared__ float first[32];
  __shared__ float second[64];
  second[threadIdx.x] = 1;
  float* p = first;
  if (threadIdx.x < (Bad ? 48 : 32)) p[threadIdx.x] = 2;  // expect: out of bounds
  __syncthreads();
  a.y[threadIdx.x] = second[threadIdx.x] + p[threadIdx.x / 2];
}

template <bool Bad>
__global__ void dynamic_too_small(Args a) {
  extern __shared__ float d[];
  d[threadIdx.x + (Bad ? 1 : 0)] = a.x[threadIdx.x];  // expect: out of bounds
  __syncthreads();
  a.y[threadIdx.x] = d[(threadIdx.x | 1) % blockDim.x];
}

template <bool Bad>
__global__ void row_of_a_tile(Args a) {
  __shared__ float t[8][8];
  t[threadIdx.x / 8][threadIdx.x % 8] = a.x[threadIdx.x];
  __syncthreads();
  int row = threadIdx.x / 8, column = threadIdx.x % 8 + (Bad ? 1 : 0);
  a.y[threadIdx.x] = row < 7 ? t[row][column] : 0;  // expect: out of bounds
}

template <bool Bad>
__global__ void local_array(Args a) {
  int counts[4] = {};
  for (int i = 0; i < 8; ++i) counts[(threadIdx.x + i) % (Bad ? 5 : 4)] += 1;  // expect: out of bounds
  a.i[threadIdx.x] = counts[0];
}

template <bool Bad>
__global__ void unaligned_vector(Args a) {
  float4 v = *reinterpret_cast<const float4*>(a.x + 4 * threadIdx.x + (Bad ? 1 : 0));  // expect: misaligned
  a.y[threadIdx.x] = v.x + v.w;
}

template <bool Bad>
__global__ void unaligned_in_shared(Args a) {
  __shared__ alignas(16) float s[72];
  for (int i = threadIdx.x; i < 72; i += blockDim.x) s[i] = 1;
  __syncthreads();
  float2 v = *reinterpret_cast<const float2*>(&s[2 * threadIdx.x + (Bad ? 1 : 0)]);  // expect: misaligned
  a.y[threadIdx.x] = v.x + v.y;
}

template <bool Bad>
__global__ void uninitialised_tail(Args a) {
  __shared__ float s[64];
  if (threadIdx.x < (Bad ? 50 : 64)) s[threadIdx.x] = a.x[threadIdx.x];
  __syncthreads();
  a.y[threadIdx.x] = s[63 - threadIdx.x];  // expect: uninitialised read
}

template <bool Bad>
__global__ void uninitialised_dynamic(Args a) {
  extern __shared__ int d[];
  if (!Bad) d[threadIdx.x] = 0;
  d[threadIdx.x] += 1;  // expect: uninitialised read
  a.i[threadIdx.x] = d[threadIdx.x];
}

template <bool Bad>
__global__ void uninitialised_output_read(Args a) {
  int i = threadIdx.x;
  if (Bad) {
    a.y[i] += a.x[i];  // expect: uninitialised read
  } else {
    a.y[i] = a.x[i];
  }
}

template <bool Bad>
__global__ void uninitialised_accumulator(Args a) {
  if (!Bad && threadIdx.x == 0) a.y[0] = 0;
  __syncthreads();
  atomicAdd(&a.y[0], 1.0f);  // expect: uninitialised read
}

template <bool Bad>
__global__ void index_in_32_bits(Args a) {
  int page = 40000 + blockIdx.x, stride = 65536;
  if (Bad) {
    int at = page * stride;  // expect: signed overflow
    a.y[0] = at < 0 ? 1 : 2;
  } else {
    long long at = (long long)page * stride;
    a.y[0] = at < 0 ? 1 : 2;
  }
}

__device__ int table[16];
template <bool Bad>
__global__ void device_table(Args a) {
  int k = threadIdx.x % (Bad ? 17 : 16);
  atomicAdd(&table[k], 1);  // expect: out of bounds
  if (a.n == 0) a.i[0] = table[0];
}

template <bool Bad>
__global__ void bytes_of_a_wider_type(Args a) {
  char* bytes = reinterpret_cast<char*>(a.y);
  int width = Bad ? 2 : 1;
  for (int i = threadIdx.x; i < a.n * 4 / 2 + (Bad ? 1 : 0); i += blockDim.x) bytes[i * width] = 1;  // expect: out of bounds
}

template <bool Bad>
__global__ void end_of_the_device_heap(Args a) {
  int* mine = static_cast<int*>(malloc(4 * sizeof(int)));
  for (int i = 0; i < (Bad ? 5 : 4); ++i) mine[i] = i;  // expect: out of bounds
  a.i[threadIdx.x] = mine[3];
  free(mine);
}

template <bool Bad>
__global__ void node_used_after_its_delete(Args a) {
  int* node = new int(threadIdx.x);
  int value = *node;
  delete node;
  a.i[threadIdx.x] = Bad ? *static_cast<volatile int*>(node) : value;  // expect: use after free
}

template <bool Bad>
__global__ void freed_by_every_thread(Args a) {
  __shared__ int* scratch;
  if (threadIdx.x == 0) scratch = static_cast<int*>(malloc(32 * sizeof(int)));
  __syncthreads();
  scratch[threadIdx.x] = threadIdx.x;
  __syncthreads();
  a.i[threadIdx.x] = scratch[31 - threadIdx.x];
  __syncthreads();
  if (Bad || threadIdx.x == 0) free(scratch);  // expect: invalid free
}

// Through all that the process has: the launch has to end before there is nothing left to report with.
template <bool Bad>
__global__ void past_everything(Args a) {
  for (size_t i = 0; i < (Bad ? size_t(1) << 30 : a.n); ++i) a.y[i * (a.n / 256)] = 0;  // expect: out of bounds
}

int main(int argc, char** argv) {
  const Specimen all[] = {
      SPECIMEN(off_by_one, 3, 128, 0),           SPECIMEN(before_the_start, 1, 32, 0),          SPECIMEN(one_vector_too_many, 1, 128, 0),
      SPECIMEN(shared_off_by_one, 1, 32, 0),     SPECIMEN(into_the_neighbouring_array, 1, 64, 0), SPECIMEN(dynamic_too_small, 1, 64, 256),
      SPECIMEN(row_of_a_tile, 1, 64, 0),         SPECIMEN(local_array, 1, 32, 0),               SPECIMEN(unaligned_vector, 1, 32, 0),
      SPECIMEN(unaligned_in_shared, 1, 32, 0),   SPECIMEN(uninitialised_tail, 1, 64, 0),        SPECIMEN(uninitialised_dynamic, 1, 64, 256),
      SPECIMEN(uninitialised_output_read, 1, 64, 0), SPECIMEN(uninitialised_accumulator, 1, 32, 0), SPECIMEN(index_in_32_bits, 1, 1, 0),
      SPECIMEN(device_table, 1, 64, 0),          SPECIMEN(bytes_of_a_wider_type, 1, 64, 0),
      SPECIMEN(end_of_the_device_heap, 1, 32, 0), SPECIMEN(node_used_after_its_delete, 1, 32, 0), SPECIMEN(freed_by_every_thread, 1, 32, 0),
      SPECIMEN(past_everything, 1, 1, 0),
  };
  return run_specimen(all, argc, argv);
}
