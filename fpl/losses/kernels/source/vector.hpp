// Vectors of neighbouring pixels: arithmetic, exp and log in float32, conversions of half-precision numbers.
//
// A vector holds one number of each of LANES neighbouring pixels. These are the vector extensions of GCC and Clang, so
// the same lines serve every instruction set; no intrinsics.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#define FPL_INLINE inline __attribute__((always_inline))

namespace fpl {

// A vector wider than the machine's own is taken apart into scalars, ten times slower: its width follows the machine.
#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
typedef float F __attribute__((vector_size(4 * LANES)));
typedef int32_t I __attribute__((vector_size(4 * LANES)));  // also masks: -1 where true, 0 where false

constexpr float INF = std::numeric_limits<float>::infinity();
constexpr float NOT_A_NUMBER = std::numeric_limits<float>::quiet_NaN();

FPL_INLINE F all(float x) { return x - F{}; }
FPL_INLINE I all(int32_t x) { return x - I{}; }
FPL_INLINE F float_bits(I x) { return (F)x; }
FPL_INLINE I int_bits(F x) { return (I)x; }
FPL_INLINE F at(const float* from) { F v; std::memcpy(&v, from, sizeof v); return v; }
FPL_INLINE I at(const int32_t* from) { I v; std::memcpy(&v, from, sizeof v); return v; }
FPL_INLINE void put(float* to, F v) { std::memcpy(to, &v, sizeof v); }
FPL_INLINE void put(int32_t* to, I v) { std::memcpy(to, &v, sizeof v); }

FPL_INLINE bool any(I mask) {
  int64_t parts[LANES / 2];
  std::memcpy(parts, &mask, sizeof parts);
  for (int step = LANES / 4; step; step /= 2)
    for (int l = 0; l < step; ++l) parts[l] |= parts[l + step];
  return parts[0] != 0;
}

// In double and in the order of the lanes, so that the result is the same everywhere.
FPL_INLINE double sum_lanes(F v) {
  double sum = 0;
  for (int l = 0; l < LANES; ++l) sum += (double)v[l];
  return sum;
}

// exp(x) for x <= 0, to 1e-7; 0 below -87. A comparison is false for NaN, so NaN goes through.
FPL_INLINE F exp_neg(F x) {
  F t = x < -87.0f ? all(-87.0f) : x;
  F n = (t * 1.44269504088896341f + 12582912.0f) - 12582912.0f;  // rounded to whole
  F r = t - n * 0.693359375f;                                    // ln 2 in two parts
  r = r + n * 2.12194440e-4f;
  F p = all(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  F y = p * float_bits((__builtin_convertvector(n, I) + 127) << 23);
  return x < -87.0f ? all(0.0f) : y;
}

// log(x) for x >= 1, to 1e-7.
FPL_INLINE F log_of(F x) {
  I e = (int_bits(x) - 0x3f3504f3) >> 23;
  F f = float_bits(int_bits(x) - (e << 23)) - 1.0f, z = f * f, n = __builtin_convertvector(e, F);
  F p = all(7.0376836292e-2f);
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  F y = f + (p * f * z - n * 2.12194440e-4f - 0.5f * z) + n * 0.693359375f;
  return x < INF ? y : x;  // infinity and NaN as they are
}

// log(1 + x) for x >= 0, also where 1 + x rounds to 1.
FPL_INLINE F log1p_of(F x) {
  F u = 1.0f + x, d = u - 1.0f;
  F y = log_of(u) + (x - d) / u;
  y = d > 0.0f ? y : x;
  return x < INF ? y : x;
}

inline float from_half(uint16_t h) {
  uint32_t body = h & 0x7fffu, bits;
  if (body >= 0x7c00u) {
    bits = 0x7f800000u | (body << 13);
  } else {
    float scaled;
    bits = body << 13;
    std::memcpy(&scaled, &bits, 4);
    scaled *= 5.192296858534828e33f;  // 2^112: the exponents' different offsets
    std::memcpy(&bits, &scaled, 4);
  }
  bits |= (uint32_t)(h & 0x8000u) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline uint16_t to_half(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  uint32_t sign = (bits >> 16) & 0x8000u, body = bits & 0x7fffffffu;
  if (body > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
  if (body >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
  if (body < 0x38800000u) {  // a denormal: the addition rounds
    float scaled;
    std::memcpy(&scaled, &body, 4);
    scaled += 0.5f;
    std::memcpy(&body, &scaled, 4);
    return (uint16_t)(sign | (body - 0x3f000000u));
  }
  body += 0xc8000fffu + ((body >> 13) & 1u);
  return (uint16_t)(sign | (body >> 13));
}

inline float from_bfloat(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline uint16_t to_bfloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16, nan = (bits >> 16) | 0x40u;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

}  // namespace fpl
