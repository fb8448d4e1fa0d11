#pragma once
// The discrete Fourier transform of any length, fp64.
#include <cstddef>
#include <vector>

namespace fovea {

struct Complex {
  double re = 0, im = 0;
};

class Dft {
 public:
  explicit Dft(int n);  ///< n >= 1; time n times the sum of n's prime factors

  /// X[k] = sum over t of x[t] e^(-2 pi i k t / n), for k in [0, n). The pointer is valid until the next
  /// call.
  const Complex* transform(const double* x);

 private:
  void step(const double* x, size_t stride, size_t n, Complex* out);

  size_t n_;
  std::vector<size_t> factor_of_;  // by size: the smallest prime factor of each divisor used
  std::vector<Complex> roots_;     // e^(-2 pi i j / n)
  std::vector<Complex> out_, parts_;
};

}  // namespace fovea
