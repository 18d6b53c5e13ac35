// What happens in one vector of pixels: which classes are positive, the weight, the loss and its gradient.
//
// Arithmetic is float32 whatever the logits are stored in. What each function computes is defined by its counterpart
// in the tensor implementation, named at its head. Loops run over classes, with their sums in registers.

#pragma once

#include <algorithm>

#include "vector.hpp"

namespace fpl {

// Pixels that are brought into the cache together, as float32 rows [class][pixel]. With shorter rows the machine's
// prefetching does not set in (64: 30 % slower).
constexpr int TILE = 256;

enum Strategy { N_MINUS_1 = 0, N = 1, GIVEN = 2, RATIO = 3 };
enum Shape { CONCAVE = 0, LINEAR = 1, CONVEX = 2, NONE = 3 };

}  // namespace fpl

extern "C" {

// `Settings` of contract.py, and how many threads may work.
struct Settings {
  int64_t classes;
  double ratio;
  float threshold, curvature, convex;
  int32_t strategy, soft, k, cap, released, weight, threads;
};
}

namespace fpl {

struct Chosen {
  F k;      // number of positives
  F sum;    // their probabilities' sum
  F next;   // the largest probability of a negative; 0 if there is none
  F top;    // the largest logit
  F value;  // logit of the last positive, NaN where the teacher is no number
  I index;  // where negatives have that logit too, its class; else the last class
};

// One step of a bubble sort: the largest of `count` values is returned, the others are left in `rest`.
FPL_INLINE F bubble(const float* values, int64_t stride, int32_t count, float* rest) {
  F largest = at(values);
  for (int32_t c = 1; c < count; ++c) {
    F x = at(values + c * stride), smaller = x < largest ? x : largest;
    largest = x > largest ? x : largest;
    put(rest + (c - 1) * LANES, smaller);
  }
  return largest;
}

// Equal logits: the lower class first. The class of the k-th where the next one equals it.
inline I last_class(int32_t classes, const float (*t)[TILE], int g, F k, F value) {
  F larger = all(0.0f);
  for (int32_t c = 0; c < classes; ++c) larger += at(t[c] + g) > value ? all(1.0f) : all(0.0f);
  F wanted = k - larger, seen = all(0.0f);
  I index = all(classes - 1);
  for (int32_t c = 0; c < classes; ++c) {
    I equal = at(t[c] + g) == value;
    seen += equal ? all(1.0f) : all(0.0f);
    index = equal & (seen == wanted) ? all(c) : index;
  }
  return index;
}

// K where no probability is a number: no running sum exceeds anything, as in `assign_sorted`.
inline float largest_k(const Settings& s) {
  double k = (double)s.classes;
  if (s.strategy == N_MINUS_1) k -= 1;
  if (s.strategy == GIVEN) k = s.k;
  if (s.strategy == RATIO) k = std::max(1.0, std::floor(k * s.ratio + 1e-9));
  return (float)std::min<double>(k, s.cap);
}

// What the first two maxima, or more, say: `assign_sorted` and the sums of `weight_sorted`. Only values are sorted;
// classes are asked for where the k-th value and the next are equal.
FPL_INLINE Chosen walk(const Settings& s, const float (*t)[TILE], float* rest, int g, int32_t strategy, F wanted,
                       F cap) {
  const int32_t classes = (int32_t)s.classes;
  F top = bubble(t[0] + g, TILE, classes, rest);
  F total = all(0.0f), more = all(0.0f);
  int32_t c = 0;
  for (; c + 1 < classes; c += 2) total += exp_neg(at(t[c] + g) - top), more += exp_neg(at(t[c + 1] + g) - top);
  if (c < classes) total += exp_neg(at(t[c] + g) - top);
  F scale = 1.0f / (total + more);
  Chosen out{all(1.0f), scale, all(0.0f), top, top, all(classes - 1)};
  F sum = scale, next_value = top;  // of the first k
  I open = all(-1);
  for (int32_t k = 2; k <= classes; ++k) {
    F value = bubble(rest, LANES, classes - k + 1, rest);
    F p = exp_neg(value - top) * scale, with = sum + p;
    // NaN counts as exceeding, so that such a pixel does not hold up its neighbours.
    F decides = strategy == N_MINUS_1 ? with : sum;
    I below = s.released ? decides < s.threshold : decides <= s.threshold;
    I take = strategy == GIVEN ? all((float)k) <= wanted : below;
    if (strategy == N_MINUS_1 && k == classes) take = all(0);
    take = take & open & (all((float)k) <= cap);
    out.next = open & ~take ? p : out.next;
    next_value = open & ~take ? value : next_value;
    out.k = take ? all((float)k) : out.k;
    out.sum = take ? with : out.sum;
    out.value = take ? value : out.value;
    open = take;
    sum = with;
    if (!any(open)) break;
  }
  out.next = open ? all(0.0f) : out.next;
  next_value = open ? all(NOT_A_NUMBER) : next_value;
  if (any(next_value == out.value)) out.index = last_class(classes, t, g, out.k, out.value);
  I known = scale * 0.0f == 0.0f;
  out.k = known ? out.k : all(largest_k(s));
  out.value = known ? out.value : all(NOT_A_NUMBER);
  return out;
}

// The positives of LANES pixels from column g on; `rest` is scratch for classes * LANES numbers.
FPL_INLINE Chosen choose(const Settings& s, const float (*t)[TILE], float* rest, int g) {
  const F cap = all((float)s.cap);
  if (s.strategy != RATIO) return walk(s, t, rest, g, s.strategy, all((float)s.k), cap);
  Chosen n = walk(s, t, rest, g, N, all(0.0f), all((float)s.classes));
  F wanted = n.k;
  // The small term keeps a product such as 0.29 * 100 = 28.999... from losing a whole class.
  for (int l = 0; l < LANES; ++l) wanted[l] = (float)std::max(1.0, std::floor((double)n.k[l] * s.ratio + 1e-9));
  return walk(s, t, rest, g, GIVEN, wanted, cap);
}

FPL_INLINE I is_known(const Chosen& c) { return c.value == c.value; }

// Whether a class with teacher logit x belongs to the positives.
FPL_INLINE I is_positive(F x, I which, F value, I index) { return (x > value) | ((x == value) & (which <= index)); }

// `weight_sorted`.
FPL_INLINE F adaptive_weight(const Settings& s, const Chosen& c) {
  if (s.weight == NONE) return all(1.0f);
  F mean = s.released ? (c.sum + c.next) / (c.k + 1.0f) : c.sum / c.k, gap = mean - c.next;
  gap = gap < 0.0f ? all(0.0f) : gap;
  F w = gap / mean;
  if (s.weight == CONCAVE) w = log1p_of(s.curvature * gap) / log1p_of(s.curvature * mean);
  if (s.weight == CONVEX) w = gap / (mean + s.convex * c.next);
  w = w > 1.0f ? all(1.0f) : w;
  w = c.k == (float)s.classes ? all(1.0f) : w;
  return is_known(c) ? w : all(NOT_A_NUMBER);
}

// `split_sums`: the positives' smallest logit, the negatives' largest, and the sums of exponentials relative to them.
struct Sums {
  F low, high, positive, negative;
};

template <bool TIES>
FPL_INLINE Sums split_where(int32_t classes, float (*t)[TILE], float (*z)[TILE], int g, F value, I index, bool keep) {
  F low = all(INF), high = all(-INF);
  for (int32_t c = 0; c < classes; ++c) {
    F x = at(t[c] + g), y = at(z[c] + g);
    I positive = TIES ? is_positive(x, all(c), value, index) : x >= value;
    if (TIES) put(t[c] + g, positive ? all(1.0f) : all(-1.0f));
    F a = positive ? y : all(INF), b = positive ? all(-INF) : y;
    low = a < low ? a : low;
    high = b > high ? b : high;
  }
  F inside = all(0.0f), outside = all(0.0f);
  for (int32_t c = 0; c < classes; ++c) {
    F y = at(z[c] + g);
    I positive = at(t[c] + g) >= (TIES ? all(0.0f) : value);
    F e = exp_neg(positive ? low - y : y - high);
    inside += positive ? e : all(0.0f);
    outside += positive ? all(0.0f) : e;
    if (keep) put(z[c] + g, positive ? -e : e);
  }
  return {low, high, inside, outside};
}

// With `keep` the exponentials replace the student's logits, those of positives with a minus sign. Where several
// classes have the last positive's logit, marks replace the teacher's logits.
FPL_INLINE Sums split(int32_t classes, float (*t)[TILE], float (*z)[TILE], int g, F value, I index, bool keep) {
  if (any(index < classes - 1)) return split_where<true>(classes, t, z, g, value, index, keep);
  return split_where<false>(classes, t, z, g, value, index, keep);
}

// log(1 + exp(x)), x = high - low + log(positive) + log(negative), without losing digits on either side.
FPL_INLINE F loss_of(const Sums& m, I known) {
  F d = m.high - m.low, product = m.positive * m.negative, e = exp_neg(d > 0.0f ? -d : d);
  F found = d > 0.0f ? d + log_of(product + e) : log1p_of(product * e);
  return known ? found : all(NOT_A_NUMBER);
}

// sigmoid(x): the gradient of the loss with respect to x.
FPL_INLINE F slope_of(const Sums& m, I known) {
  F d = m.high - m.low, product = m.positive * m.negative, e = exp_neg(d > 0.0f ? -d : d);
  F found = d > 0.0f ? product / (product + e) : product * e / (1.0f + product * e);
  return known ? found : all(NOT_A_NUMBER);
}

// `loss_gradient`: turns the exponentials that `split` kept into the gradient; `total` is slope times upstream.
FPL_INLINE void finish_gradient(int32_t classes, float (*z)[TILE], int g, const Sums& m, F total) {
  F positive = total / m.positive, negative = total / m.negative;
  for (int32_t c = 0; c < classes; ++c) {
    F y = at(z[c] + g);
    put(z[c] + g, y * (int_bits(y) < 0 ? positive : negative));
  }
}

// Cross-entropy with the teacher's argmax (the lower class where several are highest): log SUM exp(z_c - z_argmax).
inline F cross_entropy_of(int32_t classes, const float (*t)[TILE], const float (*z)[TILE], int g, F top) {
  F highest = all(-INF), wanted = all(NOT_A_NUMBER);
  for (int32_t c = classes - 1; c >= 0; --c) {
    F y = at(z[c] + g);
    highest = y > highest ? y : highest;
    wanted = at(t[c] + g) == top ? y : wanted;
  }
  F sum = all(0.0f);
  for (int32_t c = 0; c < classes; ++c) sum += exp_neg(at(z[c] + g) - highest);
  return log_of(sum) + (highest - wanted);
}

}  // namespace fpl
