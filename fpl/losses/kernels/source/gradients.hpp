// Gradients of the losses that diagnostics compare, of one vector of pixels.
//
// No sum loses digits where a probability is near 1: gradients are split into a direction, which is never near zero,
// and a length, and what surrounds a class is summed without it, relative to the largest of the rest.

#pragma once

#include "pixel.hpp"

namespace fpl {
namespace {

FPL_INLINE F root(F x) {
  for (int l = 0; l < LANES; ++l) x[l] = std::sqrt(x[l]);
  return x;
}

// x - y where both can be the same infinity.
FPL_INLINE F minus(F x, F y) { return x == y ? all(0.0f) : x - y; }
FPL_INLINE F larger(F x, F y) { return x > y ? x : y; }
FPL_INLINE F smaller(F x, F y) { return x < y ? x : y; }

// The entropy of the teacher in nats; a class that underflows adds nothing.
FPL_INLINE F entropy_of(int32_t classes, const float (*t)[TILE], int g, F top) {
  F total = all(0.0f), product = all(0.0f);
  for (int32_t c = 0; c < classes; ++c) {
    F x = at(t[c] + g) - top, e = exp_neg(x);
    total += e;
    product += x < -87.0f ? all(0.0f) : e * x;
  }
  return log_of(total) - product / total;
}

// The student's positives, its negatives but one, and that one: the teacher's best negative, which becomes a positive
// if K grows by one. Sums are relative to `low` and `high`; the squares are of the same exponentials.
struct Parts {
  F low, inside, inside_square, high, outside, outside_square, next;
};

template <bool TIES>
FPL_INLINE Parts part_where(int32_t classes, const float (*t)[TILE], const float (*z)[TILE], int g, F value, I index) {
  F low = all(INF), high = all(-INF), next = all(-INF), best = all(NOT_A_NUMBER);
  for (int32_t c = 0; c < classes; ++c) {
    F x = at(t[c] + g), y = at(z[c] + g);
    I positive = TIES ? is_positive(x, all(c), value, index) : x >= value;
    I better = ~positive & ~(x <= best);
    F other = better ? next : y;
    other = positive ? all(-INF) : other;
    high = larger(other, high);
    low = smaller(positive ? y : all(INF), low);
    next = better ? y : next;
    best = better ? x : best;
  }
  F inside = all(0.0f), inside_square = inside, outside = inside, outside_square = inside;
  I found = all(0);
  for (int32_t c = 0; c < classes; ++c) {
    F x = at(t[c] + g), y = at(z[c] + g);
    I positive = TIES ? is_positive(x, all(c), value, index) : x >= value;
    I apart = ~positive & ~found & (x == best);
    found |= apart;
    F e = exp_neg(positive ? low - y : y - high);
    F in = positive ? e : all(0.0f), out = positive | apart ? all(0.0f) : e;
    inside += in;
    outside += out;
    inside_square += in * in;
    outside_square += out * out;
  }
  return {low, inside, inside_square, high, outside, outside_square, next};
}

FPL_INLINE Parts part(int32_t classes, const float (*t)[TILE], const float (*z)[TILE], int g, const Chosen& c) {
  if (any(c.index < classes - 1)) return part_where<true>(classes, t, z, g, c.value, c.index);
  return part_where<false>(classes, t, z, g, c.value, c.index);
}

// Sums with the best negative among the negatives, and the negatives' sum of squares.
struct Whole {
  Sums sums;
  F square;
};

FPL_INLINE Whole with_negative(const Parts& p) {
  F high = larger(p.next, p.high), rest = exp_neg(minus(p.high, high));
  F one = p.next == -INF ? all(0.0f) : exp_neg(minus(p.next, high));
  return {{p.low, high, p.inside, p.outside * rest + one}, p.outside_square * rest * rest + one * one};
}

// Sums with the best negative among the positives.
FPL_INLINE Sums with_positive(const Parts& p) {
  F low = smaller(p.next, p.low);
  return {low, p.high, p.inside * exp_neg(minus(low, p.low)) + exp_neg(minus(low, p.next)), p.outside};
}

// The student's softmax around its largest logit: sums over the other classes relative to the second largest.
struct Softmax {
  F first, second, rest, square;
  F ratio;   // exp(second - first)
  F label;   // logit of the teacher's best class
  I number;  // that class
};

FPL_INLINE Softmax softmax_of(int32_t classes, const float (*t)[TILE], const float (*z)[TILE], int g, F top) {
  F first = all(-INF), second = first, label = all(NOT_A_NUMBER);
  I number = all(0);
  for (int32_t c = classes - 1; c >= 0; --c) {
    F y = at(z[c] + g);
    I best = at(t[c] + g) == top;
    second = larger(y > first ? first : y, second);
    first = larger(y, first);
    label = best ? y : label;
    number = best ? all(c) : number;
  }
  // Of several largest all but one are among the rest.
  F equal = all(-1.0f), others = all(0.0f), square = all(0.0f);
  for (int32_t c = 0; c < classes; ++c) {
    F y = at(z[c] + g), e = exp_neg(y - second);
    I largest = y == first;
    e = largest ? all(0.0f) : e;
    equal += largest ? all(1.0f) : all(0.0f);
    others += e;
    square += e * e;
  }
  return {first, second, equal + others, equal + square, exp_neg(second - first), label, number};
}

// The gradient of cross-entropy with one class: `length` times a vector that is -1 there and exp(z - shift) / total of
// the others.
struct Toward {
  I largest;  // the class has the student's largest logit
  F exponential, shift, total, norm, length;
};

FPL_INLINE Toward toward(const Softmax& s, F logit) {
  I largest = logit == s.first;
  F e = exp_neg(logit - s.second), ratio = s.ratio, whole = 1.0f + s.rest * ratio;
  F others = 1.0f + (s.rest - e) * ratio, square = 1.0f + (s.square - e * e) * ratio * ratio;
  F total = largest ? s.rest : others;
  F norm = root(1.0f + (largest ? s.square : square) / (total * total));
  F length = (largest ? s.rest * ratio : others) / whole;
  return {largest, e, largest ? s.second : s.first, total, norm, length * norm};
}

// Component of another class.
FPL_INLINE F component(const Toward& v, const Softmax& s, F logit) {
  F e = exp_neg(logit - s.second), near = logit == s.first ? all(1.0f) : e * s.ratio;
  return (v.largest ? e : near) / v.total;
}

FPL_INLINE F cosine_vanilla_of(const Softmax& s, F truth, const Toward& ideal, const Toward& vanilla) {
  // Where both have the largest logit either may count as the largest.
  I ideal_largest = ideal.largest & ~vanilla.largest;
  F a = ideal.exponential, b = vanilla.exponential, ratio = s.ratio;
  F neither = 1.0f + (s.square - a * a - b * b) * ratio * ratio;
  F common = vanilla.largest ? (s.square - a * a) * ratio : ideal_largest ? (s.square - b * b) * ratio : neither;
  I both = ideal.largest & vanilla.largest;
  common = both ? s.square - 1.0f : common;
  common = common < 0.0f ? all(0.0f) : common;
  F product = common / (ideal.total * vanilla.total);
  F dot = product - component(vanilla, s, truth) - component(ideal, s, s.label);
  return dot / (ideal.norm * vanilla.norm);
}

}  // namespace
}  // namespace fpl
