#include "audio/dft.h"

#include <cmath>
#include <numbers>

namespace fovea {

Dft::Dft(int n) : n_(static_cast<size_t>(n)), factor_of_(n_ + 1), roots_(n_), out_(n_), parts_(n_) {
  for (size_t j = 0; j < n_; ++j) {
    const double angle = -2 * std::numbers::pi * static_cast<double>(j) / n;
    roots_[j] = {std::cos(angle), std::sin(angle)};
  }
  for (size_t m = n_; m > 1; m /= factor_of_[m])
    for (factor_of_[m] = 2; m % factor_of_[m] != 0; ++factor_of_[m]) {
    }
}

const Complex* Dft::transform(const double* x) {
  step(x, 1, n_, out_.data());
  return out_.data();
}

/// Decimation in time: with n = p m, the transform is combined from p transforms of length m, each over every
/// p-th value: X[q m + k] = sum over r < p of e^(-2 pi i r (q m + k) / n) Y_r[k].
void Dft::step(const double* x, size_t stride, size_t n, Complex* out) {
  if (n == 1) {
    *out = {*x, 0};
    return;
  }
  const size_t p = factor_of_[n], m = n / p, root = n_ / n;
  for (size_t r = 0; r < p; ++r)
    step(x + r * stride, stride * p, m, out + r * m);
  for (size_t k = 0; k < m; ++k) {
    for (size_t r = 0; r < p; ++r)
      parts_[r] = out[r * m + k];
    for (size_t to = k; to < n; to += m) {
      Complex sum;
      for (size_t r = 0, turn = 0; r < p; ++r) {  // turn = r * to mod n
        const Complex w = roots_[turn * root], y = parts_[r];
        sum.re += w.re * y.re - w.im * y.im;
        sum.im += w.re * y.im + w.im * y.re;
        turn += to;
        if (turn >= n) turn -= n;
      }
      out[to] = sum;
    }
  }
}

}  // namespace fovea
