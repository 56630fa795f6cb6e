// The class and its functions, in the namespace that includes this. `GPUAD_DEFAULT`: the constructor without arguments.
template <class T> struct complex;

#define GPUAD_C inline __host__ __device__
#define GPUAD_COMPLEX(T, U) \
  template <> struct __align__(2 * sizeof(T)) complex<T> { \
    typedef T value_type; \
    GPUAD_DEFAULT \
    GPUAD_C complex(const T& re) { this->re = re; im = 0; } \
    GPUAD_C complex(const T& re, const T& im) { this->re = re; this->im = im; } \
    GPUAD_C complex(const complex<U>& z); \
    GPUAD_C complex& operator=(const T& a) { re = a; im = 0; return *this; } \
    GPUAD_C complex& operator=(const complex<U>& z); \
    GPUAD_C complex& operator+=(const complex z) { re += z.re; im += z.im; return *this; } \
    GPUAD_C complex& operator-=(const complex z) { re -= z.re; im -= z.im; return *this; } \
    GPUAD_C complex& operator*=(const complex z); \
    GPUAD_C complex& operator/=(const complex z); \
    GPUAD_C T real() const { return re; } \
    GPUAD_C T imag() const { return im; } \
    GPUAD_C void real(T a) { re = a; } \
    GPUAD_C void imag(T b) { im = b; } \
   private: \
    T re, im; \
  };
GPUAD_COMPLEX(float, double)
GPUAD_COMPLEX(double, float)
#undef GPUAD_COMPLEX

GPUAD_C complex<float>::complex(const complex<double>& z) { re = (float)z.real(); im = (float)z.imag(); }
GPUAD_C complex<double>::complex(const complex<float>& z) { re = z.real(); im = z.imag(); }
GPUAD_C complex<float>& complex<float>::operator=(const complex<double>& z) { re = (float)z.real(); im = (float)z.imag(); return *this; }
GPUAD_C complex<double>& complex<double>::operator=(const complex<float>& z) { re = z.real(); im = z.imag(); return *this; }

// Signs are factors, not those of `fabs`, which has no derivative where a root has one: on the axes.
#define GPUAD_COMPLEX(T) \
  GPUAD_C T abs(const complex<T>& z) { \
    T r = ::hypot(z.real(), z.imag()); \
    return r; \
  } \
  GPUAD_C T arg(const complex<T>& z) { return ::atan2(z.imag(), z.real()); } \
  GPUAD_C T norm(const complex<T>& z) { return z.real() * z.real() + z.imag() * z.imag(); } \
  GPUAD_C T real(const complex<T>& z) { return z.real(); } \
  GPUAD_C T imag(const complex<T>& z) { return z.imag(); } \
  GPUAD_C complex<T> conj(const complex<T>& z) { return complex<T>(z.real(), -z.imag()); } \
  GPUAD_C complex<T> proj(const complex<T>& z) { \
    return isinf(z.real()) || isinf(z.imag()) ? complex<T>(T(1) / T(0), ::copysign(T(0), z.imag())) : z; \
  } \
  \
  GPUAD_C complex<T> operator+(const complex<T>& z) { return z; } \
  GPUAD_C complex<T> operator-(const complex<T>& z) { return complex<T>(-z.real(), -z.imag()); } \
  GPUAD_C complex<T> operator+(const complex<T>& a, const complex<T>& b) { return complex<T>(a.real() + b.real(), a.imag() + b.imag()); } \
  GPUAD_C complex<T> operator+(const complex<T>& a, const T& b) { return complex<T>(a.real() + b, a.imag()); } \
  GPUAD_C complex<T> operator+(const T& a, const complex<T>& b) { return complex<T>(b.real() + a, b.imag()); } \
  GPUAD_C complex<T> operator-(const complex<T>& a, const complex<T>& b) { return complex<T>(a.real() - b.real(), a.imag() - b.imag()); } \
  GPUAD_C complex<T> operator-(const complex<T>& a, const T& b) { return complex<T>(a.real() - b, a.imag()); } \
  GPUAD_C complex<T> operator-(const T& a, const complex<T>& b) { return complex<T>(a - b.real(), -b.imag()); } \
  GPUAD_C complex<T> operator*(const complex<T>& a, const complex<T>& b) { \
    return complex<T>(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()); \
  } \
  GPUAD_C complex<T> operator*(const complex<T>& a, const T& b) { return complex<T>(a.real() * b, a.imag() * b); } \
  GPUAD_C complex<T> operator*(const T& a, const complex<T>& b) { return complex<T>(b.real() * a, b.imag() * a); } \
  GPUAD_C complex<T> operator/(const complex<T>& a, const complex<T>& b) { \
    T scale = T(1) / (::fabs(b.real()) + ::fabs(b.imag())); \
    complex<T> p(a.real() * scale, a.imag() * scale), q(b.real() * scale, b.imag() * scale); \
    T inverse = T(1) / (q.real() * q.real() + q.imag() * q.imag()); \
    return complex<T>((p.real() * q.real() + p.imag() * q.imag()) * inverse, (p.imag() * q.real() - p.real() * q.imag()) * inverse); \
  } \
  GPUAD_C complex<T> operator/(const complex<T>& a, const T& b) { return complex<T>(a.real() / b, a.imag() / b); } \
  GPUAD_C complex<T> operator/(const T& a, const complex<T>& b) { return complex<T>(a) / b; } \
  GPUAD_C complex<T>& complex<T>::operator*=(const complex<T> z) { return *this = *this * z; } \
  GPUAD_C complex<T>& complex<T>::operator/=(const complex<T> z) { return *this = *this / z; } \
  \
  GPUAD_C bool operator==(const complex<T>& a, const complex<T>& b) { return a.real() == b.real() && a.imag() == b.imag(); } \
  GPUAD_C bool operator==(const complex<T>& a, const T& b) { return a.real() == b && a.imag() == 0; } \
  GPUAD_C bool operator==(const T& a, const complex<T>& b) { return a == b.real() && b.imag() == 0; } \
  GPUAD_C bool operator!=(const complex<T>& a, const complex<T>& b) { return !(a == b); } \
  GPUAD_C bool operator!=(const complex<T>& a, const T& b) { return !(a == b); } \
  GPUAD_C bool operator!=(const T& a, const complex<T>& b) { return !(a == b); } \
  GPUAD_C bool operator<(const complex<T>& a, const complex<T>& b) { \
    return a.real() < b.real() || (a.real() == b.real() && a.imag() < b.imag()); \
  } \
  GPUAD_C bool operator>(const complex<T>& a, const complex<T>& b) { return b < a; } \
  GPUAD_C bool operator<=(const complex<T>& a, const complex<T>& b) { return a == b || a < b; } \
  GPUAD_C bool operator>=(const complex<T>& a, const complex<T>& b) { return a == b || b < a; } \
  \
  GPUAD_C complex<T> exp(const complex<T>& z) { \
    T m = ::exp(z.real()); \
    return complex<T>(m * ::cos(z.imag()), m * ::sin(z.imag())); \
  } \
  GPUAD_C complex<T> log(const complex<T>& z) { return complex<T>(::log(abs(z)), arg(z)); } \
  GPUAD_C complex<T> log10(const complex<T>& z) { return log(z) / T(2.30258509299404568402); } \
  GPUAD_C complex<T> pow(const complex<T>& z, const complex<T>& w) { return exp(log(z) * w); } \
  GPUAD_C complex<T> pow(const complex<T>& z, const T& w) { return exp(log(z) * w); } \
  GPUAD_C complex<T> pow(const T& x, const complex<T>& w) { return exp(::log(x) * w); } \
  GPUAD_C complex<T> sqrt(const complex<T>& z) { \
    if (z.real() == 0 && z.imag() == 0) return complex<T>(::sqrt(z.real()), ::sqrt(z.imag())); /* as steep as it is */ \
    T right = z.real() >= 0 ? T(1) : T(-1), above = ::copysign(T(1), z.imag()); \
    T t = ::sqrt(T(0.5) * (right * z.real() + abs(z))); \
    if (z.real() >= 0) return complex<T>(t, z.imag() / (2 * t)); \
    return complex<T>(above * z.imag() / (2 * t), above * t); \
  } \
  \
  GPUAD_C complex<T> sinh(const complex<T>& z) { \
    return complex<T>(::sinh(z.real()) * ::cos(z.imag()), ::cosh(z.real()) * ::sin(z.imag())); \
  } \
  GPUAD_C complex<T> cosh(const complex<T>& z) { \
    return complex<T>(::cosh(z.real()) * ::cos(z.imag()), ::sinh(z.real()) * ::sin(z.imag())); \
  } \
  GPUAD_C complex<T> tanh(const complex<T>& z) { \
    if (::fabs(z.real()) > T(1)) { /* 1 - 2u / (1 + u) with u = exp(-2z), whose derivative does not cancel */ \
      T right = z.real() > 0 ? T(1) : T(-1), e = ::exp(-2 * right * z.real()), c = e * ::cos(2 * z.imag()); \
      T q = 1 / (1 + 2 * c + e * e); \
      return complex<T>(right * (1 - 2 * (c + e * e) * q), 2 * e * ::sin(2 * z.imag()) * q); \
    } \
    T t = ::tan(z.imag()), s = ::sinh(z.real()), b = 1 + t * t, d = 1 + b * s * s; \
    return complex<T>(b * ::cosh(z.real()) * s / d, t / d); \
  } \
  GPUAD_C complex<T> sin(const complex<T>& z) { \
    return complex<T>(::sin(z.real()) * ::cosh(z.imag()), ::cos(z.real()) * ::sinh(z.imag())); \
  } \
  GPUAD_C complex<T> cos(const complex<T>& z) { \
    return complex<T>(::cos(z.real()) * ::cosh(z.imag()), -(::sin(z.real()) * ::sinh(z.imag()))); \
  } \
  GPUAD_C complex<T> tan(const complex<T>& z) { \
    complex<T> t = tanh(complex<T>(-z.imag(), z.real())); \
    return complex<T>(t.imag(), -t.real()); \
  } \
  GPUAD_C complex<T> asin(const complex<T>& z) { \
    complex<T> below = sqrt(T(1) - z), above = sqrt(T(1) + z); \
    return complex<T>(::atan2(z.real(), (below * above).real()), ::asinh((conj(below) * above).imag())); \
  } \
  GPUAD_C complex<T> acos(const complex<T>& z) { \
    complex<T> below = sqrt(T(1) - z), above = sqrt(T(1) + z); \
    return complex<T>(2 * ::atan2(below.real(), above.real()), ::asinh((conj(above) * below).imag())); \
  } \
  GPUAD_C complex<T> acosh(const complex<T>& z) { \
    complex<T> below = sqrt(z - T(1)), above = sqrt(z + T(1)); \
    return complex<T>(::asinh((conj(below) * above).real()), 2 * ::atan2(below.imag(), above.real())); \
  } \
  GPUAD_C complex<T> atanh(const complex<T>& z) { \
    T x = z.real(), y = z.imag(); \
    T a = T(0.25) * ::log1p(4 * x / ((1 - x) * (1 - x) + y * y)); \
    return complex<T>(a, T(0.5) * ::atan2(2 * y, (1 - x) * (1 + x) - y * y)); \
  } \
  GPUAD_C complex<T> asinh(const complex<T>& z) { \
    complex<T> a = asin(complex<T>(-z.imag(), z.real())); \
    return complex<T>(a.imag(), -a.real()); \
  } \
  GPUAD_C complex<T> atan(const complex<T>& z) { \
    complex<T> a = atanh(complex<T>(-z.imag(), z.real())); \
    return complex<T>(a.imag(), -a.real()); \
  }
GPUAD_COMPLEX(float)
GPUAD_COMPLEX(double)
#undef GPUAD_COMPLEX

template <class T> GPUAD_C complex<T> polar(const T& m, const T& angle = 0) {
  return complex<T>(m * ::cos(angle), m * ::sin(angle));
}

// Powers of mixed precision are computed in double.
GPUAD_C complex<double> pow(const complex<float>& z, const complex<double>& w) { return pow(complex<double>(z), w); }
GPUAD_C complex<double> pow(const complex<double>& z, const complex<float>& w) { return pow(z, complex<double>(w)); }
GPUAD_C complex<double> pow(const complex<float>& z, const double& w) { return pow(complex<double>(z), w); }
GPUAD_C complex<double> pow(const complex<double>& z, const float& w) { return pow(z, (double)w); }
GPUAD_C complex<float> pow(const complex<float>& z, const int& w) { return pow(z, (float)w); }
GPUAD_C complex<double> pow(const complex<double>& z, const int& w) { return pow(z, (double)w); }
#undef GPUAD_C
