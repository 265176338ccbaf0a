// Instructions of the table in emu/host/ptx_table.py, one result each.
#include <cstdint>

#define ONE(TEXT, C, T, ...)             \
  {                                      \
    T r;                                 \
    asm volatile(TEXT : "=" C(r) : __VA_ARGS__); \
    put(out, at++, r);                   \
  }

template <class T>
__device__ void put(unsigned long long* out, int at, T v) {
  unsigned long long bits = 0;
  memcpy(&bits, &v, sizeof v);
  out[at * 32 + threadIdx.x] = bits;
}

__global__ void instructions(const unsigned* x, const unsigned* y, const float* f, unsigned long long* out) {
  __shared__ alignas(16) unsigned s[128];
  int at = 0, lane = threadIdx.x;
  unsigned a = x[lane], b = y[lane];
  float g = f[lane], h = f[31 - lane];
  ONE("add.u32 %0, %1, %2;", "r", unsigned, "r"(a), "r"(b))
  ONE("sub.s32 %0, %1, %2;", "r", unsigned, "r"(a), "r"(b))
  ONE("mul.hi.u32 %0, %1, %2;", "r", unsigned, "r"(a), "r"(b))
  ONE("mad.lo.s32 %0, %1, %2, 7;", "r", unsigned, "r"(a), "r"(b))
  ONE("mul.wide.s32 %0, %1, %2;", "l", long long, "r"(a), "r"(b))
  ONE("and.b32 %0, %1, %2;", "r", unsigned, "r"(a), "r"(b))
  ONE("shl.b32 %0, %1, %2;", "r", unsigned, "r"(a), "r"(b & 63))
  ONE("shr.s32 %0, %1, %2;", "r", unsigned, "r"(a), "r"(b & 63))
  ONE("bfe.u32 %0, %1, 5, 9;", "r", unsigned, "r"(a))
  ONE("bfi.b32 %0, %1, %2, 8, 12;", "r", unsigned, "r"(a), "r"(b))
  ONE("prmt.b32 %0, %1, %2, 0x7531;", "r", unsigned, "r"(a), "r"(b))
  ONE("lop3.b32 %0, %1, %2, 0x0F0F0F0F, 0xCA;", "r", unsigned, "r"(a), "r"(b))
  ONE("popc.b32 %0, %1;", "r", unsigned, "r"(a))
  ONE("max.s32 %0, %1, %2;", "r", unsigned, "r"(a), "r"(b))
  ONE("fma.rn.f32 %0, %1, %2, %1;", "f", float, "f"(g), "f"(h))
  ONE("mul.rz.f32 %0, %1, %2;", "f", float, "f"(g), "f"(h))
  ONE("cvt.rzi.s32.f32 %0, %1;", "r", unsigned, "f"(g))
  ONE("cvt.rn.f32.s32 %0, %1;", "f", float, "r"(a))
  ONE("cvt.u32.u8 %0, %1;", "r", unsigned, "r"(a))
  ONE("{ .reg .b16 t; cvt.rn.f16.f32 t, %1; mov.b32 %0, {t, t}; }", "r", unsigned, "f"(g))
  ONE("cvt.rn.bf16x2.f32 %0, %1, %2;", "r", unsigned, "f"(g), "f"(h))
  ONE("{ .reg .pred p; setp.lt.u32 p, %1, %2; selp.b32 %0, %1, %2, p; @!p add.u32 %0, %0, 1; }", "r", unsigned, "r"(a), "r"(b))
  ONE("shfl.sync.down.b32 %0, %1, 3, 0x1f, 0xffffffff;", "r", unsigned, "r"(a))
  ONE("shfl.sync.idx.b32 %0, %1, 5, 0x181f, 0xffffffff;", "r", unsigned, "r"(a))
  {
    unsigned address = (unsigned)__cvta_generic_to_shared(&s[4 * lane]);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %1, %2};" ::"r"(address), "r"(a), "r"(b) : "memory");
    unsigned long long r;
    asm volatile("ld.shared.u64 %0, [%1+8];" : "=l"(r) : "r"(address) : "memory");
    put(out, at++, r);
  }
  ONE("ld.global.nc.L1::no_allocate.u32 %0, [%1];", "r", unsigned, "l"(x + lane))
  ONE("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }", "r", unsigned, "r"(a & 1))
  ONE("mov.u32 %0, %%laneid;", "r", unsigned, "r"(0))
}
// Names of the program's own that the translation must not take for its own.
enum class Mode { none };
__device__ unsigned bits(unsigned v) { return v + 1; }
__global__ void own_names(unsigned* out, unsigned p0, unsigned p1, unsigned o0) {
  unsigned samebits = 0, in0 = 2;
  asm("sub.u32 %0, %1, %2;\n\tmad.lo.u32 %0, %0, %3, %4;" : "=r"(samebits) : "r"(p1), "r"(p0), "r"(bits(o0)), "r"(in0));
  out[0] = Mode::none == Mode() ? samebits : 0;
}
extern "C" int run_own_names(unsigned* out) {
  own_names<<<1, 1>>>(out, 5, 12, 9);
  return cudaGetLastError();
}
// Carries from one asm to the next and within one, and a loop: sum, difference and product of 64 bits by halves, bits set by shifting.
__global__ void carries(const unsigned long long* x, const unsigned long long* y, unsigned long long* out) {
  unsigned long long a = x[threadIdx.x], b = y[threadIdx.x], low, high;
  unsigned a0 = unsigned(a), a1 = unsigned(a >> 32), b0 = unsigned(b), b1 = unsigned(b >> 32), r0, r1, r2;
  asm volatile("add.cc.u32 %0, %1, %2;" : "=r"(r0) : "r"(a0), "r"(b0));
  asm volatile("addc.cc.u32 %0, %1, %2;" : "=r"(r1) : "r"(a1), "r"(b1));
  asm volatile("addc.u32 %0, 0, 0;" : "=r"(r2));
  out[threadIdx.x] = (unsigned long long)r1 << 32 | r0, out[32 + threadIdx.x] = r2;
  asm("sub.cc.u32 %0, %2, %4; subc.u32 %1, %3, %5;" : "=r"(r0), "=r"(r1) : "r"(a0), "r"(a1), "r"(b0), "r"(b1));
  out[64 + threadIdx.x] = (unsigned long long)r1 << 32 | r0;
  asm("{\n\t.reg .u32 al, ah, bl, bh, r<4>;\n\t"
      "mov.b64 {al, ah}, %2;  mov.b64 {bl, bh}, %3;\n\t"
      "mul.lo.u32 r0, al, bl;  mul.hi.u32 r1, al, bl;\n\t"
      "mad.lo.cc.u32 r1, al, bh, r1;  madc.hi.u32 r2, al, bh, 0;\n\t"
      "mad.lo.cc.u32 r1, ah, bl, r1;  madc.hi.cc.u32 r2, ah, bl, r2;  addc.u32 r3, 0, 0;\n\t"
      "mad.lo.cc.u32 r2, ah, bh, r2;  madc.hi.u32 r3, ah, bh, r3;\n\t"
      "mov.b64 %0, {r0, r1};  mov.b64 %1, {r2, r3};\n\t}"
      : "=l"(low), "=l"(high) : "l"(a), "l"(b));
  out[96 + threadIdx.x] = low, out[128 + threadIdx.x] = high;
  asm("{ .reg .pred done; .reg .b64 left, bit; mov.b64 left, %1; mov.b64 %0, 0;\n"
      "next: setp.eq.u64 done, left, 0;\n"
      "@done bra.uni end;\n"
      "and.b64 bit, left, 1; add.u64 %0, %0, bit; shr.u64 left, left, 1;\n"
      "bra next;\n"
      "end: }"
      : "=l"(low) : "l"(a));
  asm("shf.l.wrap.b32 %0, %1, %2, 40;" : "=r"(r0) : "r"(a0), "r"(a1));
  asm("shf.r.clamp.b32 %0, %1, %2, 40;" : "=r"(r1) : "r"(a0), "r"(a1));
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r2) : "r"(a0), "r"(b0), "r"(a1));
  out[160 + threadIdx.x] = low, out[192 + threadIdx.x] = r0, out[224 + threadIdx.x] = r1, out[256 + threadIdx.x] = r2;
}
extern "C" int run_carries(const unsigned long long* x, const unsigned long long* y, unsigned long long* out) {
  carries<<<1, 32>>>(x, y, out);
  return cudaGetLastError();
}
extern "C" int run(const unsigned* x, const unsigned* y, const float* f, unsigned long long* out) {
  instructions<<<1, 32>>>(x, y, f, out);
  return cudaGetLastError();
}
