// All work on one tile of pixels whose logits are float32 already, and tiles shared out over threads.
//
// How a translation unit uses it:
//
//   #include "tile.hpp"
//   sum_units(settings, units, sums, histogram, [&](int64_t unit, Buffers& buffers, Totals& totals) {
//     // Fill buffers.t[class][pixel] and buffers.z[class][pixel] with teacher and student, count <= TILE pixels, and
//     // repeat the last pixel up to a multiple of LANES (`pad_row` of logits.hpp).
//     TileInput input{count, nullptr, scale, nullptr, nullptr};
//     work_on_tile(settings, buffers, input, totals, gradient, cross_entropy);
//     // buffers.z is now the gradient (with `gradient`; else it is undefined). buffers.t is undefined.
//   });
//
// A unit is what a thread takes at once, one tile or several: enough to be worth a thread's start, 2000 pixels or more
// where there are so many. Totals of each unit begin at zero and are added up
// in the order of the units, so the result does not depend on the number of threads; `sums` [SUMS] and `histogram`
// [classes] are overwritten. Units must not write to the same memory. `for_units` is the same without sums.

#pragma once

#include <atomic>
#include <exception>
#include <new>
#include <thread>
#include <vector>

#include "logits.hpp"
#include "soft.hpp"

namespace fpl {

// Columns of `SUMS` in contract.py.
enum Sum { PIXELS, VALUE, WEIGHTED_LOSS, LOSS, WEIGHT, CROSS_ENTROPY, SUMS };

struct Totals {
  double sums[SUMS];
  int64_t* histogram;  // [classes]: pixels with K = 1 .. classes
};

// Arrays have `count` entries or more.
struct TileInput {
  int64_t count;            // pixels, 1 .. TILE
  const float* factor;      // gradient of SUM factor * weight * loss: scale times weight map; null: `constant`
  float constant;
  const float* weight_map;  // further factor in VALUE; null: 1
  const uint8_t* counted;   // 0: the pixel adds nothing and its gradient is 0, whatever it holds; null: all count
};

// Scratch of one thread.
struct Buffers {
  std::vector<float> memory;
  float (*t)[TILE];  // teacher
  float (*z)[TILE];  // student, later its gradient
  float* rest;       // for `choose`
  explicit Buffers(int64_t classes) : memory(classes * (2 * TILE + LANES) + 16) {
    auto start = ((uintptr_t)memory.data() + 63) & ~(uintptr_t)63;
    t = (float(*)[TILE])start;
    z = t + classes;
    rest = z[classes - 1] + TILE;
  }
};

// LANES numbers of an array that may end before; zeros behind its end.
FPL_INLINE F some(const float* from, int64_t g, int64_t count) {
  if (g + LANES <= count) return at(from + g);
  F v = all(0.0f);
  for (int64_t l = 0; g + l < count; ++l) v[l] = from[g + l];
  return v;
}

FPL_INLINE I counted_lanes(const TileInput& input, int64_t g) {
  I use = all(-1);
  if (g + LANES > input.count)
    for (int64_t l = 0; l < LANES; ++l) use[l] = g + l < input.count ? -1 : 0;
  if (input.counted)
    for (int64_t l = 0; l < LANES && g + l < input.count; ++l) use[l] = input.counted[g + l] ? -1 : 0;
  return use;
}

FPL_INLINE void clear_gradient(int32_t classes, float (*z)[TILE], int64_t g, I use) {
  for (int32_t c = 0; c < classes; ++c) put(z[c] + g, float_bits(int_bits(at(z[c] + g)) & use));
}

FPL_INLINE void count_k(F k, I use, bool several, int64_t* histogram) {
  int64_t ones = 0;
  for (int l = 0; l < LANES; ++l) {
    if (several) histogram[(int64_t)k[l] - 1] -= use[l];
    else ones -= use[l];
  }
  histogram[0] += ones;
}

template <bool SOFT>
void work_on_tile_by(const Settings& s, Buffers& buffers, const TileInput& input, Totals& totals, bool gradient,
                     bool cross_entropy) {
  const int32_t classes = (int32_t)s.classes;
  float (*t)[TILE] = buffers.t, (*z)[TILE] = buffers.z;
  F value = all(0.0f), weighted = value, losses = value, weights = value, entropy = value;
  I pixels = all(0);
  for (int64_t g = 0; g < input.count; g += LANES) {
    const I use = counted_lanes(input, g);
    if (!any(use)) {
      if (gradient) clear_gradient(classes, z, g, use);
      continue;
    }
    Chosen chosen = choose(s, t, buffers.rest, g);
    const I known = is_known(chosen);
    const F part = SOFT ? membership(s, chosen) : all(0.0f);
    const bool partly = SOFT && any(use & (part > 0.0f));
    const bool several = partly || any(use & (chosen.k > 1.0f));
    Between both;
    if (partly) both = soft_of(s, t, z, g, chosen, part);
    const Chosen whole = chosen;
    if (partly) chosen = counted(whole, both);
    F other = all(0.0f);
    if (cross_entropy && several)
      other = known ? cross_entropy_of(classes, t, z, g, chosen.top) : all(NOT_A_NUMBER);
    Sums sums;
    if (!partly) sums = split(classes, t, z, g, chosen.value, chosen.index, gradient);
    const F loss = partly ? both.loss : loss_of(sums, known);
    const F weight = partly ? both.weight : adaptive_weight(s, chosen), product = loss * weight;
    if (gradient) {
      F factor = input.factor ? some(input.factor, g, input.count) : all(input.constant);
      if (partly) put_gradient(classes, t, z, g, whole, both, weight * factor);
      else finish_gradient(classes, z, g, sums, slope_of(sums, known) * weight * factor);
      if (input.counted && any(~use)) clear_gradient(classes, z, g, use);
    }
    const F zero = all(0.0f);
    pixels -= use;
    losses += use ? loss : zero;
    weights += use ? weight : zero;
    weighted += use ? product : zero;
    // For K = 1 the two losses are the same.
    if (cross_entropy) entropy += use ? (several ? other : loss) : zero;
    if (input.weight_map) value += use ? product * some(input.weight_map, g, input.count) : zero;
    count_k(chosen.k, use, several, totals.histogram);
  }
  for (int l = 0; l < LANES; ++l) totals.sums[PIXELS] += pixels[l];
  totals.sums[VALUE] += sum_lanes(input.weight_map ? value : weighted);
  totals.sums[WEIGHTED_LOSS] += sum_lanes(weighted);
  totals.sums[LOSS] += sum_lanes(losses);
  totals.sums[WEIGHT] += sum_lanes(weights);
  totals.sums[CROSS_ENTROPY] += sum_lanes(entropy);
}

// Apart, so that the other strategies run the code they would run without `soft`.
inline void work_on_tile(const Settings& s, Buffers& buffers, const TileInput& input, Totals& totals, bool gradient,
                         bool cross_entropy) {
  if (s.soft) work_on_tile_by<true>(s, buffers, input, totals, gradient, cross_entropy);
  else work_on_tile_by<false>(s, buffers, input, totals, gradient, cross_entropy);
}

// Calls work(unit, buffers, thread) for every unit, in no fixed order.
//
// An exception must not leave a thread, nor the function while threads run: that ends the process. One that a unit
// throws, for want of memory, is thrown again when all have come to their end.
template <class Work>
void for_units(const Settings& s, int64_t units, Work work) {
  const int64_t threads = std::max<int64_t>(1, std::min<int64_t>(s.threads, units));
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  auto part = [&](int64_t thread) {
    try {
      Buffers buffers(s.classes);
      for (int64_t unit; (unit = next.fetch_add(1)) < units;) work(unit, buffers, thread);
    } catch (...) {
      failed = true, next = units;
    }
  };
  std::vector<std::thread> others;
  try {
    others.reserve(threads);
    for (int64_t thread = 1; thread < threads; ++thread) others.emplace_back(part, thread);
  } catch (const std::exception&) {
    // No more threads are to be had: those that run share the work.
  }
  part(0);
  for (auto& other : others) other.join();
  if (failed) throw std::bad_alloc();
}

// What a function that Python calls returns: 0 when `work` is done, 1 where there was no memory for it.
template <class Work>
int32_t status_of(Work work) {
  try {
    work();
  } catch (const std::exception&) {
    return 1;
  }
  return 0;
}

// Calls work(unit, buffers, totals) for every unit and adds the totals up.
template <class Work>
void sum_units(const Settings& s, int64_t units, double* sums, int64_t* histogram, Work work) {
  std::vector<double> partial(units * SUMS, 0.0);
  std::vector<std::vector<int64_t>> counts(std::max(1, s.threads), std::vector<int64_t>(s.classes, 0));
  for_units(s, units, [&](int64_t unit, Buffers& buffers, int64_t thread) {
    Totals totals{{}, counts[thread].data()};
    work(unit, buffers, totals);
    std::copy(totals.sums, totals.sums + SUMS, partial.begin() + unit * SUMS);
  });
  std::fill(sums, sums + SUMS, 0.0);
  std::fill(histogram, histogram + s.classes, 0);
  for (int64_t unit = 0; unit < units; ++unit)
    for (int i = 0; i < SUMS; ++i) sums[i] += partial[unit * SUMS + i];
  for (const auto& count : counts)
    for (int64_t c = 0; c < s.classes; ++c) histogram[c] += count[c];
}

}  // namespace fpl
