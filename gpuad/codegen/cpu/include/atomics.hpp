#ifdef GPUAD_ATOMICS
template <typename T, typename F>
GPUAD_INLINE T gpuad_atomic(T* target, F next)
{
    T old, value;
    __atomic_load(target, &old, __ATOMIC_RELAXED);
    do value = next(old);
    while (!__atomic_compare_exchange(target, &old, &value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}
#else
template <typename T, typename F>
GPUAD_INLINE T gpuad_atomic(T* target, F next)
{
    const T old = *target;
    *target = next(old);
    return old;
}
#endif
template <typename T> struct gpuad_same { typedef T type; };
#define GPUAD_ATOMIC(name, expression) \
    template <typename T> GPUAD_INLINE T name(T* target, typename gpuad_same<T>::type value) \
    { \
        return gpuad_atomic(target, [=](T old) -> T { return expression; }); \
    }
GPUAD_ATOMIC(atomicAdd, old + value)
GPUAD_ATOMIC(atomicSub, old - value)
GPUAD_ATOMIC(atomicExch, ((void)old, value))
GPUAD_ATOMIC(atomicMin, old < value ? old : value)
GPUAD_ATOMIC(atomicMax, old > value ? old : value)
GPUAD_ATOMIC(atomicAnd, old & value)
GPUAD_ATOMIC(atomicOr, old | value)
GPUAD_ATOMIC(atomicXor, old ^ value)
GPUAD_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
GPUAD_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
template <typename T>
GPUAD_INLINE T atomicCAS(T* target, typename gpuad_same<T>::type expected, typename gpuad_same<T>::type value)
{
    return gpuad_atomic(target, [=](T old) -> T { return std::memcmp(&old, &expected, sizeof(T)) == 0 ? value : old; });
}
