// Logits of any dtype and layout in memory, read into tiles of float32 and written from them.

#pragma once

#include "pixel.hpp"

namespace fpl {

enum Kind { FLOAT32 = 0, BFLOAT16 = 1, FLOAT16 = 2 };

}  // namespace fpl

extern "C" {

// [B, C, N] anywhere in memory; strides in elements.
struct Logits {
  void* data;
  int64_t image, channel, pixel;
  int32_t kind;
};
}

namespace fpl {

// `count` numbers of one channel, of whatever kind, as float32.
__attribute__((noinline)) inline void load_row(const Logits& from, int64_t place, int64_t count, float* row) {
  const int64_t step = from.pixel;
  if (step == 1) {
    // The next tile's part of the row: rows are too short for the machine to foresee it.
    const int64_t size = from.kind == FLOAT32 ? 4 : 2;
    const char* next = (const char*)from.data + (place + count) * size;
    for (int64_t byte = 0; byte < count * size; byte += 64) __builtin_prefetch(next + byte, 0, 2);
  }
  if (from.kind == FLOAT32) {
    const float* source = (const float*)from.data + place;
    if (step == 1) std::memcpy(row, source, sizeof(float) * count);
    else for (int64_t l = 0; l < count; ++l) row[l] = source[l * step];
  } else if (from.kind == BFLOAT16) {
    const uint16_t* source = (const uint16_t*)from.data + place;
    if (step == 1) for (int64_t l = 0; l < count; ++l) row[l] = from_bfloat(source[l]);
    else for (int64_t l = 0; l < count; ++l) row[l] = from_bfloat(source[l * step]);
  } else {
    const uint16_t* source = (const uint16_t*)from.data + place;
    if (step == 1) for (int64_t l = 0; l < count; ++l) row[l] = from_half(source[l]);
    else for (int64_t l = 0; l < count; ++l) row[l] = from_half(source[l * step]);
  }
}

__attribute__((noinline)) inline void store_row(const Logits& to, int64_t place, int64_t count, const float* row) {
  const int64_t step = to.pixel;
  if (to.kind == FLOAT32) {
    float* target = (float*)to.data + place;
    if (step == 1) std::memcpy(target, row, sizeof(float) * count);
    else for (int64_t l = 0; l < count; ++l) target[l * step] = row[l];
  } else if (to.kind == BFLOAT16) {
    uint16_t* target = (uint16_t*)to.data + place;
    if (step == 1) for (int64_t l = 0; l < count; ++l) target[l] = to_bfloat(row[l]);
    else for (int64_t l = 0; l < count; ++l) target[l * step] = to_bfloat(row[l]);
  } else {
    uint16_t* target = (uint16_t*)to.data + place;
    if (step == 1) for (int64_t l = 0; l < count; ++l) target[l] = to_half(row[l]);
    else for (int64_t l = 0; l < count; ++l) target[l * step] = to_half(row[l]);
  }
}

// Behind the last pixel of a row stands the last pixel again, as far as a vector can reach.
inline void pad_row(float* row, int64_t count) {
  for (int64_t l = count; l % LANES; ++l) row[l] = row[count - 1];
}

// Pixels first .. first + count - 1 of an image, count <= TILE, as [classes][TILE].
inline void load_tile(const Logits& from, int64_t image, int64_t first, int64_t classes, int64_t count,
                      float (*to)[TILE]) {
  for (int64_t c = 0; c < classes; ++c) {
    load_row(from, image * from.image + c * from.channel + first * from.pixel, count, to[c]);
    pad_row(to[c], count);
  }
}

inline void store_tile(const Logits& to, int64_t image, int64_t first, int64_t classes, int64_t count,
                       const float (*from)[TILE]) {
  for (int64_t c = 0; c < classes; ++c)
    store_row(to, image * to.image + c * to.channel + first * to.pixel, count, from[c]);
}

}  // namespace fpl
