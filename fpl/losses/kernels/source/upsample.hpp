// Bilinear enlargement with aligned corners, one low-resolution row at a time, and its transpose.
//
// An output pixel is a mean of two low-resolution rows of means of two cells each. Rows are enlarged to the columns of
// a tile once, when they are first needed; every output row between two of them then costs one mean per number.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "logits.hpp"

namespace fpl {

// Along one axis: output i lies between the cells low[i] and its successor, of which it takes the share share[i]; the
// last cell is its own successor. Rounded in float32 as F.interpolate does, so that both choose the same cells. Behind
// the last output stands the last one again, up to a whole tile.
struct Axis {
  int64_t small, large;
  std::vector<int32_t> low;
  std::vector<float> share, rest;
  bool same;   // nothing to enlarge: output i is cell i, and does not look at a neighbour
  bool close;  // neighbouring LANES outputs touch at most LANES cells and their successors

  Axis(int64_t from, int64_t to) : small(from), large(to), same(from == to), close(true) {
    const int64_t padded = (to + TILE - 1) / TILE * TILE;
    low.resize(padded), share.resize(padded), rest.resize(padded);
    const float scale = to > 1 ? (float)(from - 1) / (float)(to - 1) : 0.0f;
    for (int64_t i = 0; i < padded; ++i) {
      const int64_t output = std::min(i, to - 1);
      const float source = scale * (float)output, whole = std::min(std::floor(source), (float)(from - 1));
      low[i] = same ? (int32_t)output : (int32_t)whole;
      share[i] = same ? 0.0f : std::min(std::max(source - whole, 0.0f), 1.0f);
      rest[i] = 1.0f - share[i];
      close = close && low[i] - low[i / LANES * LANES] < LANES;
    }
  }

  int64_t next(int64_t cell) const { return std::min(cell + 1, small - 1); }
};

// [B, C, h, w] anywhere in memory: the rows' stride in elements, and all else.
extern "C" struct Field {
  Logits cells;
  int64_t row;

  int64_t place(int64_t image, int64_t channel, int64_t at_row, int64_t column) const {
    return image * cells.image + channel * cells.channel + at_row * row + column * cells.pixel;
  }
};

// LANES of the cells that begin at `from`.
FPL_INLINE F pick(const float* from, I which) {
#ifdef __clang__  // has shuffles by constants only
  F v;
  for (int l = 0; l < LANES; ++l) v[l] = from[which[l]];
  return v;
#else
  return __builtin_shuffle(at(from), which);
#endif
}

// Columns [first, first + TILE) of an enlarged row. `cells` are those from low[first] on, with room for 2 * LANES more.
FPL_INLINE void enlarge(const Axis& axis, int64_t first, const float* cells, float* to) {
  const int32_t start = axis.low[first];
  if (!axis.close) {
    for (int64_t x = 0; x < TILE; ++x) {
      const float* cell = cells + axis.low[first + x] - start;
      to[x] = axis.rest[first + x] * cell[0] + axis.share[first + x] * cell[1];
    }
    return;
  }
  for (int64_t x = 0; x < TILE; x += LANES) {
    const int32_t* low = axis.low.data() + first + x;
    const float* cell = cells + low[0] - start;
    const I which = at(low) - low[0];
    const F left = pick(cell, which), right = pick(cell + 1, which);
    put(to + x, axis.same ? left : at(&axis.rest[first + x]) * left + at(&axis.share[first + x]) * right);
  }
}

// The transpose: add columns [first, first + count) to the cells they came from; `to` points at cell 0.
FPL_INLINE void collapse(const Axis& axis, int64_t first, int64_t count, const float* from, float* to) {
  for (int64_t x = 0; x < count;) {
    const int32_t cell = axis.low[first + x];
    float left = 0.0f, right = 0.0f;
    do {
      left += axis.rest[first + x] * from[x];
      right += axis.share[first + x] * from[x];
      ++x;
    } while (x < count && axis.low[first + x] == cell);
    to[cell] += left;
    if (!axis.same) to[axis.next(cell)] += right;
  }
}

// The two low-resolution rows of one network that an output row lies between, enlarged to the columns of a tile.
struct Rows {
  const Field* field;
  const Axis* columns;
  int64_t classes, image, first;
  float* memory;  // [2][C][TILE]
  float* cells;
  int64_t held[2];

  // Forget what is held: another image or tile comes.
  void move(int64_t to_image, int64_t to_first) { image = to_image, first = to_first, held[0] = held[1] = -1; }

  // Row `row`, [C][TILE]; neighbouring rows can be held at once.
  const float* get(int64_t row) {
    float* place = memory + (row & 1) * classes * TILE;
    if (held[row & 1] == row) return place;
    held[row & 1] = row;
    const int64_t start = columns->low[first], last = columns->low[first + TILE - 1];
    const int64_t count = columns->next(last) - start + 1;
    for (int64_t c = 0; c < classes; ++c) {
      load_row(field->cells, field->place(image, c, row, start), count, cells);
      cells[count] = cells[count - 1];  // the last cell's successor
      enlarge(*columns, first, cells, place + c * TILE);
    }
    return place;
  }
};

// Gradients of output rows on their way to the two low-resolution rows they lie between.
struct GradientRows {
  const Axis* columns;
  int64_t classes, first_row;
  float* memory;  // [2][C][TILE]
  float* cells;   // [rows from first_row on][C][w], float32; added to
  int64_t first, count, held[2];

  void move(int64_t to_first, int64_t to_count) { first = to_first, count = to_count, held[0] = held[1] = -1; }

  // Write out what one slot holds.
  void flush(int slot) {
    if (held[slot] < 0) return;
    const float* from = memory + slot * classes * TILE;
    float* to = cells + (held[slot] - first_row) * classes * columns->small;
    for (int64_t c = 0; c < classes; ++c)
      collapse(*columns, first, count, from + c * TILE, to + c * columns->small);
    held[slot] = -1;
  }

  void flush() { flush(0), flush(1); }

  // Add `share` of a gradient [C][TILE] to row `row`.
  void add(int64_t row, float share, const float* gradient) {
    const int slot = (int)(row & 1);
    float* to = memory + slot * classes * TILE;
    const bool fresh = held[slot] != row;
    if (fresh) flush(slot), held[slot] = row;
    for (int64_t c = 0; c < classes; ++c)
      for (int64_t x = c * TILE; x < c * TILE + count; x += LANES) {
        const F part = at(gradient + x) * share;
        put(to + x, fresh ? part : at(to + x) + part);
      }
  }
};

// A mean of two rows [C][TILE]; F.interpolate's order of operations, so that infinities behave as there.
FPL_INLINE F between(const float* upper, const float* lower, float rest, float share) {
  return at(upper) * rest + at(lower) * share;
}

}  // namespace fpl
