// The functions of <cmath>, in the namespace that includes this.
using ::acos; using ::acosh; using ::asin; using ::asinh; using ::atan; using ::atan2; using ::atanh; using ::cbrt; using ::ceil;
using ::copysign; using ::cos; using ::cosh; using ::erf; using ::erfc; using ::exp; using ::exp2; using ::expm1; using ::fabs; using ::fdim;
using ::floor; using ::fma; using ::fmax; using ::fmin; using ::fmod; using ::hypot; using ::isfinite; using ::isinf; using ::isnan; using ::ldexp;
using ::lgamma; using ::llrint; using ::llround; using ::log; using ::log10; using ::log1p; using ::log2; using ::logb; using ::lrint;
using ::lround; using ::nearbyint; using ::pow; using ::remainder; using ::rint; using ::round; using ::scalbn; using ::signbit; using ::sin;
using ::sinh; using ::sqrt; using ::tan; using ::tanh; using ::tgamma; using ::trunc; using ::abs; using ::frexp; using ::ilogb; using ::modf;
using ::nextafter; using ::remquo; using ::scalbln;
