// Names of the integers, and what lets one text be compiled by g++, nvcc and NVRTC (which has no standard headers).
#pragma once

#ifndef __CUDACC_RTC__
#include <math.h>
#include <string.h>
#endif

#ifdef __CUDACC__
#define LAM_BOTH __host__ __device__ __forceinline__
#else
#define LAM_BOTH inline
#endif

namespace lam {

using u8 = unsigned char;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;

static_assert(sizeof(u32) == 4 && sizeof(u64) == 8 && sizeof(float) == 4 && sizeof(double) == 8, "another machine");

LAM_BOTH u32 bits_of(float value) {
#ifdef __CUDA_ARCH__
    return __float_as_uint(value);
#else
    u32 bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
#endif
}

LAM_BOTH float float_of(u32 bits) {
#ifdef __CUDA_ARCH__
    return __uint_as_float(bits);
#else
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
#endif
}

LAM_BOTH u32 bit_length(u32 number) {
#ifdef __CUDA_ARCH__
    return 32 - __clz(number);
#else
    return number == 0 ? 0 : 32 - __builtin_clz(number);
#endif
}

}  // namespace lam
