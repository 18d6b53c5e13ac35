// What the loss does to the pixels: the sums of `fpl.losses.diagnose`, one pass over both networks' logits.

#include "gradients.hpp"
#include "tile.hpp"

namespace fpl {
namespace {

// Columns of the result, those of `COLUMNS` in cpu_diagnose.py; three in a row for the cases. Behind them stand four
// of `classes` entries: pixels by K, pixels by published K, entropy and its square by K.
enum Column {
  D_PIXELS, D_WEIGHT, D_LOSS, D_WEIGHTED_LOSS, D_CROSS_ENTROPY, D_SLOPE_N_MINUS_1, D_SLOPE_N,
  D_LABELED, D_CASE_1_K1, D_COSINE_FUZZY, D_COSINE_VANILLA, D_COSINE_POSITIVE, D_NORM_FUZZY, D_NORM_IDEAL,
  D_NORM_FUZZY_ALL, D_NORM_IDEAL_ALL,
  D_CASES, D_VANILLA = D_CASES + 3, D_VANILLA_SQUARE = D_VANILLA + 3, D_FUZZY = D_VANILLA_SQUARE + 3,
  D_FUZZY_SQUARE = D_FUZZY + 3, COLUMNS = D_FUZZY_SQUARE + 3
};

// Tiles that a thread takes at once.
constexpr int64_t TILES = 8;

struct Accounts {
  F columns[COLUMNS];
  double* by_k;  // [4][classes]

  FPL_INLINE void add(int column, I where, F value) { columns[column] += where ? value : all(0.0f); }
  FPL_INLINE void count(int column, I where) { columns[column] += where ? all(1.0f) : all(0.0f); }
  FPL_INLINE void score(I where, int which, F vanilla, F fuzzy) {
    count(D_CASES + which, where);
    add(D_VANILLA + which, where, vanilla);
    add(D_VANILLA_SQUARE + which, where, vanilla * vanilla);
    add(D_FUZZY + which, where, fuzzy);
    add(D_FUZZY_SQUARE + which, where, fuzzy * fuzzy);
  }
};

// What is known of LANES pixels.
struct Seen {
  I use, labeled, known, positive;  // counted; of known class; teacher is a number; that class is positive
  I number;                         // the class
  F truth;                          // the student's logit of it
};

// All positives alone: cross-entropy and the loss are one. False where that would lose digits.
FPL_INLINE bool account_single(const Seen& seen, const Whole& w, F slope, Accounts& to) {
  const Sums& m = w.sums;
  F e = exp_neg(seen.truth - m.high), share = e / m.negative;
  I third = seen.labeled & ~seen.positive, first = seen.labeled & seen.positive;
  if (any(third & (share > 0.7f))) return false;
  F direction = w.square / (m.negative * m.negative), rest = 1.0f - slope;
  F others = rest + slope * (1.0f - share);
  F square = rest * rest + slope * slope * (direction - share * share);
  square = square < 0.0f ? all(0.0f) : square;
  F fuzzy = slope * root(1.0f + direction), ideal = seen.positive ? fuzzy : root(others * others + square);
  // A slope that is no number shows in every column.
  F one = 1.0f + slope * 0.0f, score = -share + slope * 0.0f;
  to.count(D_LABELED, seen.labeled);
  to.count(D_CASE_1_K1, first);
  to.add(D_NORM_FUZZY_ALL, seen.labeled, fuzzy);
  to.add(D_NORM_IDEAL_ALL, seen.labeled, ideal + slope * 0.0f);
  to.score(first, 0, one, one);
  to.score(third, 2, score, score);
  return true;
}

FPL_INLINE void account_several(const Seen& seen, const Chosen& chosen, const Parts& p, const Whole& w, F slope,
                                const Softmax& s, float classes, Accounts& to) {
  const Sums& m = w.sums;
  const F bad = slope * 0.0f;
  const I some = chosen.k < classes;  // there are negatives
  const Toward ideal = toward(s, seen.truth), vanilla = toward(s, s.label);
  I first = seen.labeled & seen.known & (seen.number == s.number), second = seen.labeled & seen.positive & ~first;
  I third = seen.labeled & ~first & ~second;
  F vanilla_score = first ? all(1.0f) : -component(vanilla, s, seen.truth);
  F up = exp_neg(m.low - seen.truth) / m.positive, down = -exp_neg(seen.truth - m.high) / m.negative;
  F fuzzy_score = third ? down : up;
  to.count(D_LABELED, seen.labeled);
  to.count(D_CASE_1_K1, first & (chosen.k == 1.0f));
  to.score(first, 0, vanilla_score + bad, fuzzy_score + bad);
  to.score(second, 1, vanilla_score + bad, fuzzy_score + bad);
  to.score(third, 2, vanilla_score + bad, fuzzy_score + bad);
  F negative = some ? w.square / (m.negative * m.negative) : all(0.0f);
  F norm = root(p.inside_square / (m.positive * m.positive) + negative);
  F fuzzy_length = slope * norm + bad, ideal_length = ideal.length + bad;
  to.add(D_NORM_FUZZY_ALL, seen.labeled, fuzzy_length);
  to.add(D_NORM_IDEAL_ALL, seen.labeled, ideal_length);
  if (!any(second)) return;
  // exp(-z) of the loss times exp(z) of the softmax is the same for every positive.
  F dot = up - (chosen.k - 1.0f) * exp_neg(m.low - ideal.shift) / (m.positive * ideal.total);
  dot += exp_neg(m.high - ideal.shift) * w.square / (m.negative * ideal.total);
  F cosine = some ? dot / (norm * ideal.norm) + bad : bad;
  to.add(D_COSINE_FUZZY, second, cosine);
  to.count(D_COSINE_POSITIVE, second & (cosine > 0.0f));
  to.add(D_COSINE_VANILLA, second, cosine_vanilla_of(s, seen.truth, ideal, vanilla) + bad);
  to.add(D_NORM_FUZZY, second, fuzzy_length);
  to.add(D_NORM_IDEAL, second, ideal_length);
}

// Pixels and entropy by K, and pixels by published K.
FPL_INLINE void account_k(const Seen& seen, F k, F published, F entropy, int64_t classes, double* by_k) {
  double* sums = by_k + 2 * classes;
  for (int l = 0; l < LANES; ++l) {
    if (!seen.use[l]) continue;
    const int64_t place = (int64_t)k[l] - 1;
    by_k[place] += 1;
    by_k[classes + (int64_t)published[l] - 1] += 1;
    sums[place] += entropy[l];
    sums[classes + place] += entropy[l] * entropy[l];
  }
}

// Whether the settings choose the same positives as the paper's n - 1 chose: n - 1 as released counts from T on instead
// of above it, and stops at its cap.
FPL_INLINE bool is_same(const Settings& s, const Chosen& published, I use) {
  if (s.strategy != N_MINUS_1) return false;
  return !s.released || !any(use & ((published.k > (float)s.cap) | (published.sum == s.threshold)));
}

// One vector of pixels. `published` are the settings with the paper's strategy, n - 1.
inline void account(const Settings& s, const Settings& published, Buffers& buffers, int g, Seen seen, F truth_score,
                    Accounts& to) {
  const int32_t classes = (int32_t)s.classes;
  float (*t)[TILE] = buffers.t, (*z)[TILE] = buffers.z;
  const Chosen before = choose(published, t, buffers.rest, g);
  const Chosen chosen = is_same(s, before, seen.use) ? before : choose(s, t, buffers.rest, g);
  seen.known = is_known(before);
  seen.positive = is_positive(truth_score, seen.number, chosen.value, chosen.index);
  const Parts parts_before = part(classes, t, z, g, before);
  const Whole whole_before = with_negative(parts_before);
  const F slope_before = slope_of(whole_before.sums, seen.known);
  // The first class alone exceeds T: then n is 1, and K is 1 as well.
  const I alone = (before.k == 1.0f) & (before.sum > s.threshold);
  F slope_n = slope_before;
  if (any(seen.use & ~alone))
    slope_n = alone ? slope_before : slope_of(with_positive(parts_before), seen.known);
  const bool other = any(seen.use & (chosen.k != before.k));
  const Parts parts = other ? part(classes, t, z, g, chosen) : parts_before;
  const Whole whole = other ? with_negative(parts) : whole_before;
  const F slope = other ? slope_of(whole.sums, seen.known) : slope_before;
  const F loss = loss_of(whole.sums, seen.known), weight = seen.known ? adaptive_weight(s, chosen) : all(NOT_A_NUMBER);
  to.count(D_PIXELS, seen.use);
  to.add(D_WEIGHT, seen.use, weight);
  to.add(D_LOSS, seen.use, loss);
  to.add(D_WEIGHTED_LOSS, seen.use, loss * weight);
  to.add(D_SLOPE_N_MINUS_1, seen.use, slope_before);
  to.add(D_SLOPE_N, seen.use, slope_n);
  account_k(seen, chosen.k, before.k, entropy_of(classes, t, g, chosen.top), s.classes, to.by_k);
  const bool single = !any(seen.use & (chosen.k > 1.0f)), labeled = any(seen.labeled);
  if (single) to.add(D_CROSS_ENTROPY, seen.use, loss);
  if (single && (!labeled || account_single(seen, whole, slope, to))) return;
  const Softmax softmax = softmax_of(classes, t, z, g, chosen.top);
  const F cross_entropy = log1p_of(softmax.rest * softmax.ratio) + (softmax.first - softmax.label);
  if (!single) to.add(D_CROSS_ENTROPY, seen.use, seen.known ? cross_entropy : all(NOT_A_NUMBER));
  if (labeled) account_several(seen, chosen, parts, whole, slope, softmax, (float)classes, to);
}

// Pixels of one tile; `truth` and `counted` begin there.
inline void account_tile(const Settings& s, const Settings& published, Buffers& buffers, int64_t count,
                         const int32_t* truth, const uint8_t* counted, Accounts& to) {
  alignas(64) int32_t numbers[TILE], use[TILE], labeled[TILE];
  alignas(64) float truths[TILE], scores[TILE];
  for (int64_t l = 0; l < TILE; ++l) {
    use[l] = l < count && (!counted || counted[l]) ? -1 : 0;
    const int32_t number = truth && l < count ? truth[l] : -1;
    labeled[l] = number >= 0 && number < s.classes ? use[l] : 0;
    numbers[l] = labeled[l] ? number : 0;
    const int64_t place = l < count ? l : 0;
    truths[l] = buffers.z[numbers[l]][place];
    scores[l] = buffers.t[numbers[l]][place];
  }
  for (int g = 0; g < count; g += LANES) {
    Seen seen{at(use + g), at(labeled + g), all(0), all(0), at(numbers + g), at(truths + g)};
    if (any(seen.use)) account(s, published, buffers, g, seen, at(scores + g), to);
  }
}

}  // namespace
}  // namespace fpl

using namespace fpl;

extern "C" {

// Overwrites `result` [COLUMNS + 4 * classes]. Maps are [images, pixels]; null: no truth, all pixels count. Returns
// what `status_of` does.
int32_t fpl_diagnose(const Settings* settings, int64_t images, int64_t pixels, const Logits* student,
                     const Logits* teacher, const int32_t* truth, const uint8_t* counted, double* result) {
  const Settings& s = *settings;
  Settings published = s;
  published.strategy = N_MINUS_1;
  published.cap = (int32_t)s.classes;
  published.released = 0;
  const int64_t strips = (pixels + TILES * TILE - 1) / (TILES * TILE), width = COLUMNS + 4 * s.classes;
  return status_of([&] {
    std::vector<double> partial(images * strips * width, 0.0);
    for_units(s, images * strips, [&](int64_t unit, Buffers& buffers, int64_t) {
      double* sums = partial.data() + unit * width;
      const int64_t image = unit / strips, start = unit % strips * TILES * TILE;
      for (int64_t first = start; first < std::min(start + TILES * TILE, pixels); first += TILE) {
        const int64_t count = std::min<int64_t>(TILE, pixels - first), place = image * pixels + first;
        load_tile(*teacher, image, first, s.classes, count, buffers.t);
        load_tile(*student, image, first, s.classes, count, buffers.z);
        Accounts accounts{{}, sums + COLUMNS};
        account_tile(s, published, buffers, count, truth ? truth + place : nullptr,
                     counted ? counted + place : nullptr, accounts);
        for (int column = 0; column < COLUMNS; ++column) sums[column] += sum_lanes(accounts.columns[column]);
      }
    });
    std::fill(result, result + width, 0.0);
    for (int64_t unit = 0; unit < images * strips; ++unit)
      for (int64_t column = 0; column < width; ++column) result[column] += partial[unit * width + column];
  });
}
}
