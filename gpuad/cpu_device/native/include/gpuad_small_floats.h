// Arithmetic of a type of 16 bits, GPUAD_SMALL: in float, and rounded. Included once for each.
#define GPUAD_PAIR(OP) \
  static inline GPUAD_SMALL operator OP(GPUAD_SMALL a, GPUAD_SMALL b) { return float(a) OP float(b); } \
  static inline GPUAD_SMALL& operator OP##=(GPUAD_SMALL& a, GPUAD_SMALL b) { return a = a OP b; }
GPUAD_PAIR(+) GPUAD_PAIR(-) GPUAD_PAIR(*) GPUAD_PAIR(/)
#undef GPUAD_PAIR
#define GPUAD_COMPARED(OP, NAME) \
  static inline bool operator OP(GPUAD_SMALL a, GPUAD_SMALL b) { return float(a) OP float(b); } \
  static inline bool NAME(GPUAD_SMALL a, GPUAD_SMALL b) { return float(a) OP float(b); }
GPUAD_COMPARED(<, __hlt) GPUAD_COMPARED(>, __hgt) GPUAD_COMPARED(<=, __hle) GPUAD_COMPARED(>=, __hge) GPUAD_COMPARED(==, __heq) GPUAD_COMPARED(!=, __hne)
#undef GPUAD_COMPARED
static inline GPUAD_SMALL operator-(GPUAD_SMALL a) { return -float(a); }
static inline GPUAD_SMALL __hneg(GPUAD_SMALL a) { return -float(a); }
static inline GPUAD_SMALL __habs(GPUAD_SMALL a) { return fabsf(a); }
static inline GPUAD_SMALL __hadd(GPUAD_SMALL a, GPUAD_SMALL b) { return a + b; }
static inline GPUAD_SMALL __hsub(GPUAD_SMALL a, GPUAD_SMALL b) { return a - b; }
static inline GPUAD_SMALL __hmul(GPUAD_SMALL a, GPUAD_SMALL b) { return a * b; }
static inline GPUAD_SMALL __hdiv(GPUAD_SMALL a, GPUAD_SMALL b) { return a / b; }
static inline GPUAD_SMALL __hfma(GPUAD_SMALL a, GPUAD_SMALL b, GPUAD_SMALL c) { return double(float(a)) * float(b) + float(c); }
static inline GPUAD_SMALL __hmax(GPUAD_SMALL a, GPUAD_SMALL b) { return fmaxf(a, b); }
static inline GPUAD_SMALL __hmin(GPUAD_SMALL a, GPUAD_SMALL b) { return fminf(a, b); }
static inline bool __hisnan(GPUAD_SMALL a) { return std::isnan(float(a)); }
static inline bool __hisinf(GPUAD_SMALL a) { return std::isinf(float(a)); }
static inline GPUAD_SMALL hsqrt(GPUAD_SMALL a) { return sqrtf(a); }
static inline GPUAD_SMALL hexp(GPUAD_SMALL a) { return expf(a); }
static inline GPUAD_SMALL hlog(GPUAD_SMALL a) { return logf(a); }
static inline GPUAD_SMALL hrcp(GPUAD_SMALL a) { return 1 / float(a); }
static inline GPUAD_SMALL atomicAdd(GPUAD_SMALL* p, GPUAD_SMALL v) { GPUAD_SMALL old = *p; *p = old + v; return old; }
