// Strategy `soft`: the n - 1 first classes are positive and the n-th in part. Loss, weight and gradient are the means
// of those of n - 1 and n positives, the latter with the membership of the n-th class as its share.
//
// `Settings` then have the strategy n - 1, so that `choose` gives the whole members and what comes behind them.

#pragma once

#include "gradients.hpp"

namespace fpl {
namespace {

// `partial_membership`; 0 where the teacher is no number.
FPL_INLINE F membership(const Settings& s, const Chosen& c) {
  F lack = s.threshold - c.sum, share = lack / c.next;
  share = share > 1.0f ? all(1.0f) : share;
  I some = is_known(c) & (lack > 0.0f);
  if (s.released) some &= c.k < (float)s.cap;
  return some ? share : all(0.0f);
}

FPL_INLINE F mean(F fewer, F more, F part) { return part > 0.0f ? fewer + part * (more - fewer) : fewer; }

struct Between {
  F part;            // membership of the n-th class
  F value;           // its teacher logit
  I index;           // and its number
  Parts parts;       // the student's sums around it
  Sums fewer, more;  // those of n - 1 and of n positives
  F loss, weight;
  I broken;  // the n-th class's logit is one that the sums of either set alone would make NaN of
};

// The best two teacher logits behind the positives, and which class has the first.
FPL_INLINE void next_two(int32_t classes, const float (*t)[TILE], int g, const Chosen& c, F& first, F& second,
                         I& index) {
  first = second = all(-INF), index = all(classes - 1);
  for (int32_t k = 0; k < classes; ++k) {
    F x = at(t[k] + g);
    I positive = is_positive(x, all(k), c.value, c.index), better = ~positive & (x > first);
    x = positive ? all(-INF) : x;
    second = larger(better ? first : x, second);
    first = better ? x : first;
    index = better ? all(k) : index;
  }
}

FPL_INLINE Between soft_of(const Settings& s, const float (*t)[TILE], const float (*z)[TILE], int g, const Chosen& c,
                           F part_of) {
  const int32_t classes = (int32_t)s.classes;
  const I known = is_known(c);
  Between b;
  F second;
  b.part = part_of;
  next_two(classes, t, g, c, b.value, second, b.index);
  b.parts = part(classes, t, z, g, c);
  b.fewer = with_negative(b.parts).sums, b.more = with_positive(b.parts);
  // As a positive, or as all there is of the negatives.
  const I lowest = (b.part > 0.0f) | (b.parts.high == -INF);
  b.broken = (b.parts.next == INF) | ((b.parts.next == -INF) & lowest);
  b.loss = b.broken ? all(NOT_A_NUMBER) : mean(loss_of(b.fewer, known), loss_of(b.more, known), b.part);
  Chosen wider = c;
  wider.k = c.k + 1.0f, wider.sum = c.sum + c.next;
  wider.next = second == -INF ? all(0.0f) : c.next * exp_neg(second - b.value);
  b.weight = mean(adaptive_weight(s, c), adaptive_weight(s, wider), b.part);
  return b;
}

// The positives that count as such: the n-th class from a membership of one half on.
FPL_INLINE Chosen counted(const Chosen& c, const Between& b) {
  const I in = b.part >= 0.5f;
  Chosen out = c;
  out.k = in ? c.k + 1.0f : c.k;
  out.value = in ? b.value : c.value;
  out.index = in ? b.index : c.index;
  return out;
}

// Puts the gradient of SUM upstream * loss in place of the student's logits.
FPL_INLINE void put_gradient(int32_t classes, const float (*t)[TILE], float (*z)[TILE], int g, const Chosen& c,
                             const Between& b, F upstream) {
  const I known = is_known(c);
  const Parts& p = b.parts;
  upstream = b.broken ? all(NOT_A_NUMBER) : upstream;
  const F fewer = slope_of(b.fewer, known) * (1.0f - b.part) * upstream;
  const F more = b.part > 0.0f ? slope_of(b.more, known) * b.part * upstream : all(0.0f);
  const F down = fewer / b.fewer.negative, up = more / b.more.positive;
  // Of the n-th class itself, of the other positives by exp(low - z), and of the other negatives by exp(z - high).
  const F one = p.next == -INF ? all(0.0f) : exp_neg(minus(p.next, b.fewer.high));
  const F own = down * one - up * exp_neg(minus(b.more.low, p.next));
  const F positives = -(fewer / p.inside + up * exp_neg(minus(b.more.low, p.low)));
  const F negatives = down * exp_neg(minus(p.high, b.fewer.high)) + (p.outside > 0.0f ? more / p.outside : all(0.0f));
  for (int32_t k = 0; k < classes; ++k) {
    F x = at(t[k] + g), y = at(z[k] + g);
    I positive = is_positive(x, all(k), c.value, c.index);
    F e = exp_neg(positive ? p.low - y : y - p.high) * (positive ? positives : negatives);
    put(z[k] + g, b.index == k ? own : e);
  }
}

}  // namespace
}  // namespace fpl
