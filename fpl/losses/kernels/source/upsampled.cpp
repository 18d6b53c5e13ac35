// The loss of low-resolution logits enlarged bilinearly: value, sums and the gradient at the low resolution. Logits of
// full resolution exist for one tile at a time, as rows of TILE pixels in the cache.

#include "tile.hpp"
#include "upsample.hpp"

namespace {

using namespace fpl;

// Low-resolution rows that are worked on in one go; the next strip begins with the last one's lower row.
constexpr int64_t STRIP = 8;

}  // namespace

extern "C" {

// All of one call. Null: there is none. Maps are [B, H, W] without gaps.
struct Upsampled {
  Field student, teacher, second;  // no data: no second teacher
  Field gradient;                  // no data: not wanted
  int64_t images, rows, columns;   // of the logits
  int64_t height, width;           // of the loss
  const uint8_t* inside;           // where the second teacher teaches
  const float* weight_map;
  const uint8_t* counted;
  float constant;  // what the gradient is multiplied by
  int32_t cross_entropy;
};
}

namespace {

// What a strip needs besides the tile.
struct Memory {
  std::vector<float> memory;
  float *networks[3], *gradient;  // [2][classes][TILE] each
  float* cells;                   // of one channel of one row
  float* strip;                   // gradient of the strip's rows, [STRIP + 1][classes][columns], zeros
  alignas(64) int32_t chosen[TILE];
  alignas(64) float factor[TILE];

  Memory(int64_t classes, int64_t columns)
      : memory(8 * classes * TILE + columns + 3 * LANES + (STRIP + 1) * classes * columns + 16) {
    float* next = (float*)(((uintptr_t)memory.data() + 63) & ~(uintptr_t)63);
    for (auto& network : networks) network = next, next += 2 * classes * TILE;
    gradient = next, next += 2 * classes * TILE;
    strip = next, next += (STRIP + 1) * classes * columns;
    cells = next;
  }
};

// An output row of a tile: the two low-resolution rows it lies between, and its share of the second.
struct Place {
  int64_t upper, lower;
  float rest, share;
  bool same;
};

void enlarge_row(int64_t classes, int64_t count, Rows& network, const Place& place, float (*to)[TILE]) {
  const float *upper = network.get(place.upper), *lower = network.get(place.lower);
  for (int64_t c = 0; c < classes; ++c)
    for (int64_t x = 0; x < count; x += LANES) {
      const int64_t from = c * TILE + x;
      put(to[c] + x, place.same ? at(upper + from) : between(upper + from, lower + from, place.rest, place.share));
    }
}

// The second network's where `chosen`, else the first's.
void enlarge_row_of_two(int64_t classes, int64_t count, Rows& first, Rows& second, const int32_t* chosen,
                        const Place& place, float (*to)[TILE]) {
  const float *upper[2] = {first.get(place.upper), second.get(place.upper)};
  const float *lower[2] = {first.get(place.lower), second.get(place.lower)};
  for (int64_t c = 0; c < classes; ++c)
    for (int64_t x = 0; x < count; x += LANES) {
      const int64_t from = c * TILE + x;
      const I mask = at(chosen + x);
      const F above = mask ? at(upper[1] + from) : at(upper[0] + from);
      const F below = mask ? at(lower[1] + from) : at(lower[0] + from);
      put(to[c] + x, place.same ? above : above * place.rest + below * place.share);
    }
}

// The teacher's row: of one network where the mask is uniform, as it mostly is, else of both.
void enlarge_teacher(int64_t classes, int64_t count, Rows& first, Rows& second, const uint8_t* inside,
                     int32_t* chosen, const Place& place, float (*to)[TILE]) {
  int64_t number = 0;
  if (inside)
    for (int64_t x = 0; x < count; ++x) number += inside[x];
  if (number == 0) return enlarge_row(classes, count, first, place, to);
  if (number == count) return enlarge_row(classes, count, second, place, to);
  for (int64_t x = 0; x < TILE; ++x) chosen[x] = -(int32_t)inside[std::min(x, count - 1)];
  enlarge_row_of_two(classes, count, first, second, chosen, place, to);
}

// One strip of one image: output rows whose upper low-resolution row is one of [strip * STRIP, (strip + 1) * STRIP).
void work_on_strip(const Settings& settings, const Upsampled& u, const Axis& rows, const Axis& columns, int64_t image,
                   int64_t strip, Buffers& buffers, Memory& memory, Totals& totals) {
  const int64_t classes = settings.classes;
  auto network = [&](const Field& field, int number) {
    return Rows{&field, &columns, classes, 0, 0, memory.networks[number], memory.cells, {-1, -1}};
  };
  Rows student = network(u.student, 0), teacher = network(u.teacher, 1), second = network(u.second, 2);
  GradientRows gradient{&columns, classes, strip * STRIP, memory.gradient, memory.strip, 0, 0, {-1, -1}};
  const auto begin = rows.low.begin(), end = begin + u.height;
  const int64_t top = std::lower_bound(begin, end, strip * STRIP) - begin;
  const int64_t bottom = std::lower_bound(begin, end, (strip + 1) * STRIP) - begin;
  for (int64_t first = 0; first < u.width; first += TILE) {
    const int64_t count = std::min<int64_t>(TILE, u.width - first);
    student.move(image, first), teacher.move(image, first), second.move(image, first);
    gradient.move(first, count);
    for (int64_t y = top; y < bottom; ++y) {
      const Place place{rows.low[y], rows.next(rows.low[y]), rows.rest[y], rows.share[y], rows.same};
      const int64_t pixel = (image * u.height + y) * u.width + first;
      auto part = [&](auto* map) { return map ? map + pixel : nullptr; };
      enlarge_teacher(classes, count, teacher, second, part(u.inside), memory.chosen, place, buffers.t);
      enlarge_row(classes, count, student, place, buffers.z);
      const float* weights = part(u.weight_map);
      if (weights)
        for (int64_t x = 0; x < count; ++x) memory.factor[x] = u.constant * weights[x];
      const TileInput input{count, weights ? memory.factor : nullptr, u.constant, weights, part(u.counted)};
      work_on_tile(settings, buffers, input, totals, u.gradient.cells.data != nullptr, u.cross_entropy != 0);
      if (!u.gradient.cells.data) continue;
      gradient.add(place.upper, place.rest, buffers.z[0]);
      if (!place.same) gradient.add(place.lower, place.share, buffers.z[0]);
    }
    gradient.flush();
  }
}

int64_t count_strips(const Upsampled& u) { return (u.rows + STRIP - 1) / STRIP; }

// Rows of a strip's gradient that no other strip adds to go to their place, the others to `shared`, float32
// [images][strips][classes][columns]: the first row of every strip.
void store_strip(int64_t classes, const Upsampled& u, int64_t image, int64_t strip, const float* from, float* shared) {
  for (int64_t r = 0; r <= STRIP && strip * STRIP + r < u.rows; ++r)
    for (int64_t c = 0; c < classes; ++c) {
      const float* row = from + (r * classes + c) * u.columns;
      const int64_t first_of = image * count_strips(u) + strip + r / STRIP;
      float* sum = shared + (first_of * classes + c) * u.columns;
      if (r % STRIP) store_row(u.gradient.cells, u.gradient.place(image, c, strip * STRIP + r, 0), u.columns, row);
      else for (int64_t x = 0; x < u.columns; ++x) sum[x] += row[x];
    }
}

void store_shared(int64_t classes, const Upsampled& u, const float* shared) {
  for (int64_t image = 0; image < u.images; ++image)
    for (int64_t row = 0; row < u.rows; row += STRIP)
      for (int64_t c = 0; c < classes; ++c, shared += u.columns)
        store_row(u.gradient.cells, u.gradient.place(image, c, row, 0), u.columns, shared);
}

void sum_upsampled(const Settings& s, const Upsampled& u, double* sums, int64_t* histogram) {
  const bool gradient = u.gradient.cells.data != nullptr;
  const Axis rows(u.rows, u.height), columns(u.columns, u.width);
  const int64_t strips = count_strips(u);
  std::vector<float> shared(gradient ? u.images * strips * s.classes * u.columns : 0);
  std::vector<double> odd_sums(SUMS);
  std::vector<int64_t> odd_histogram(s.classes);
  // Even strips, then odd ones: those that run at once never add to the same row, and each row is added to in a fixed
  // order, so that the result does not depend on the number of threads.
  for (int64_t odd = 0; odd < 2; ++odd) {
    const int64_t half = (strips + 1 - odd) / 2;
    sum_units(s, u.images * half, odd ? odd_sums.data() : sums, odd ? odd_histogram.data() : histogram,
              [&](int64_t unit, Buffers& buffers, Totals& totals) {
                const int64_t image = unit / half, strip = 2 * (unit % half) + odd;
                Memory memory(s.classes, u.columns);
                work_on_strip(s, u, rows, columns, image, strip, buffers, memory, totals);
                if (gradient) store_strip(s.classes, u, image, strip, memory.strip, shared.data());
              });
  }
  if (gradient) store_shared(s.classes, u, shared.data());
  for (int i = 0; i < SUMS; ++i) sums[i] += odd_sums[i];
  for (int64_t c = 0; c < s.classes; ++c) histogram[c] += odd_histogram[c];
}

}  // namespace

extern "C" {

// The summed form. `sums` [SUMS], `histogram` [classes] and the gradient are overwritten. Returns what `status_of`
// does.
int32_t fpl_summed_upsampled(const Settings* settings, const Upsampled* upsampled, double* sums, int64_t* histogram) {
  return status_of([&] { sum_upsampled(*settings, *upsampled, sums, histogram); });
}
}
