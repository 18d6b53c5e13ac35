// The fuzzy positive loss of logits at their own resolution: the summed form in one pass, the mapped form in two.

#include "tile.hpp"

namespace fpl {

// Tiles that a thread takes at once.
constexpr int64_t STRIP = 8;

struct Place {
  int64_t image, first, count;
};

// Units of STRIP tiles over all images.
inline int64_t count_strips(int64_t images, int64_t pixels) {
  return images * ((pixels + STRIP * TILE - 1) / (STRIP * TILE));
}

template <class Work>
void for_tiles_of_strip(int64_t strip, int64_t pixels, Work work) {
  const int64_t strips = (pixels + STRIP * TILE - 1) / (STRIP * TILE), image = strip / strips;
  const int64_t start = strip % strips * STRIP * TILE, end = std::min(start + STRIP * TILE, pixels);
  for (int64_t first = start; first < end; first += TILE)
    work(Place{image, first, std::min<int64_t>(TILE, end - first)});
}

inline void load_at(const Logits& from, const Settings& s, const Place& p, float (*to)[TILE]) {
  load_tile(from, p.image, p.first, s.classes, p.count, to);
}

// The second teacher's logits where `inside` is set; a teacher that teaches no pixel of the tile is not read.
inline void load_teachers(const Logits& teacher, const Logits* second, const uint8_t* inside, const Settings& s,
                          const Place& p, float (*to)[TILE]) {
  if (!second) return load_at(teacher, s, p, to);
  int64_t set = 0;
  for (int64_t l = 0; l < p.count; ++l) set += inside[l] != 0;
  if (set == 0) return load_at(teacher, s, p, to);
  load_at(*second, s, p, to);
  if (set == p.count) return;
  alignas(64) float row[TILE];
  for (int64_t c = 0; c < s.classes; ++c) {
    load_row(teacher, p.image * teacher.image + c * teacher.channel + p.first * teacher.pixel, p.count, row);
    for (int64_t l = 0; l < p.count; ++l) to[c][l] = inside[l] ? to[c][l] : row[l];
    pad_row(to[c], p.count);
  }
}

template <class T>
const T* shifted(const T* start, int64_t by) {
  return start ? start + by : nullptr;
}

}  // namespace fpl

using namespace fpl;

// All return what `status_of` does.
extern "C" {

// The summed form. Maps are [images, pixels]; null: no second teacher, weight map, restriction, gradient.
int32_t fpl_summed(const Settings* settings, int64_t images, int64_t pixels, const Logits* student,
                   const Logits* teacher, const Logits* second, const uint8_t* inside, const float* weight_map,
                   const uint8_t* counted, float scale, int32_t cross_entropy, const Logits* gradient, double* sums,
                   int64_t* histogram) {
  return status_of([&] {
    const Settings& s = *settings;
    sum_units(s, count_strips(images, pixels), sums, histogram, [&](int64_t strip, Buffers& buffers, Totals& totals) {
      for_tiles_of_strip(strip, pixels, [&](const Place& p) {
        const int64_t at = p.image * pixels + p.first;
        alignas(64) float factor[TILE];
        load_teachers(*teacher, second, shifted(inside, at), s, p, buffers.t);
        load_at(*student, s, p, buffers.z);
        if (weight_map)
          for (int64_t l = 0; l < p.count; ++l) factor[l] = scale * weight_map[at + l];
        TileInput input{p.count, weight_map ? factor : nullptr, scale, shifted(weight_map, at), shifted(counted, at)};
        work_on_tile(s, buffers, input, totals, gradient != nullptr, cross_entropy != 0);
        if (gradient) store_tile(*gradient, p.image, p.first, s.classes, p.count, buffers.z);
      });
    });
  });
}

// The mapped form, all maps [images, pixels]: loss, weight, K, and of the last positive the teacher's logit and the
// class, from which `fpl_mapped_gradient` knows the others.
int32_t fpl_mapped(const Settings* settings, int64_t images, int64_t pixels, const Logits* student,
                   const Logits* teacher, float* loss, float* weight, int64_t* k, float* value, int32_t* index) {
  return status_of([&] {
    const Settings& s = *settings;
    for_units(s, count_strips(images, pixels), [&](int64_t strip, Buffers& buffers, int64_t) {
      for_tiles_of_strip(strip, pixels, [&](const Place& p) {
        alignas(64) float losses[TILE], weights[TILE], ks[TILE], values[TILE];
        alignas(64) int32_t indices[TILE];
        load_at(*teacher, s, p, buffers.t);
        load_at(*student, s, p, buffers.z);
        for (int64_t g = 0; g < p.count; g += LANES) {
          const Chosen chosen = choose(s, buffers.t, buffers.rest, g);
          if (s.soft) {
            const Between both = soft_of(s, buffers.t, buffers.z, g, chosen, membership(s, chosen));
            put(losses + g, both.loss);
            put(weights + g, both.weight);
            put(ks + g, counted(chosen, both).k);
            // The gradient asks the teacher again.
            put(values + g, chosen.value);
            put(indices + g, chosen.index);
            continue;
          }
          const Sums sums = split((int32_t)s.classes, buffers.t, buffers.z, g, chosen.value, chosen.index, false);
          put(losses + g, loss_of(sums, is_known(chosen)));
          put(weights + g, adaptive_weight(s, chosen));
          put(ks + g, chosen.k);
          put(values + g, chosen.value);
          put(indices + g, chosen.index);
        }
        const int64_t to = p.image * pixels + p.first;
        std::memcpy(loss + to, losses, sizeof(float) * p.count);
        std::memcpy(weight + to, weights, sizeof(float) * p.count);
        std::memcpy(value + to, values, sizeof(float) * p.count);
        std::memcpy(index + to, indices, sizeof(int32_t) * p.count);
        for (int64_t l = 0; l < p.count; ++l) k[to + l] = (int64_t)ks[l];
      });
    });
  });
}

// Gradient of SUM upstream * loss; `value` and `index` are those of `fpl_mapped`.
int32_t fpl_mapped_gradient(const Settings* settings, int64_t images, int64_t pixels, const Logits* student,
                            const Logits* teacher, const float* value, const int32_t* index, const float* upstream,
                            const Logits* gradient) {
  return status_of([&] {
    const Settings& s = *settings;
    for_units(s, count_strips(images, pixels), [&](int64_t strip, Buffers& buffers, int64_t) {
      for_tiles_of_strip(strip, pixels, [&](const Place& p) {
        alignas(64) int32_t indices[TILE];
        const int64_t from = p.image * pixels + p.first;
        std::memcpy(indices, index + from, sizeof(int32_t) * p.count);
        for (int64_t l = p.count; l % LANES; ++l) indices[l] = (int32_t)s.classes - 1;
        load_at(*teacher, s, p, buffers.t);
        load_at(*student, s, p, buffers.z);
        for (int64_t g = 0; g < p.count; g += LANES) {
          if (s.soft) {
            const Chosen chosen = choose(s, buffers.t, buffers.rest, g);
            const Between both = soft_of(s, buffers.t, buffers.z, g, chosen, membership(s, chosen));
            const F factor = some(upstream + from, g, p.count);
            put_gradient((int32_t)s.classes, buffers.t, buffers.z, g, chosen, both, factor);
            continue;
          }
          const F last = some(value + from, g, p.count);
          const Sums sums = split((int32_t)s.classes, buffers.t, buffers.z, g, last, fpl::at(indices + g), true);
          const F total = slope_of(sums, last == last) * some(upstream + from, g, p.count);
          finish_gradient((int32_t)s.classes, buffers.z, g, sums, total);
        }
        store_tile(*gradient, p.image, p.first, s.classes, p.count, buffers.z);
      });
    });
  });
}
}
