// fp32 values to integers and back. Every line is one IEEE operation, rounded to nearest: compile without contraction.
#pragma once
#include "base.h"

namespace lam {

// What an error bound eps comes to in fp32; lam_vllm/codec/bounded.py makes the three from eps.
struct Bound {
    float step, inverse, tolerance;
};

constexpr float MOST_QUANTUM = 4194303.0f;     // 2^22 - 1
constexpr float BAND_LIMIT = 2147483648.0f;    // 2^31

LAM_BOTH float reconstruct(i32 quantum, float step) {
    return static_cast<float>(quantum) * step;
}

// Whether the value lies within the bound of its quantum's value. Comparisons with NaN are false, so it never does.
LAM_BOTH bool quantise(float value, Bound bound, i32* quantum) {
    const float whole = rintf(value * bound.inverse);
    const bool fits = fabsf(whole) <= MOST_QUANTUM;
    *quantum = fits ? static_cast<i32>(whole) : 0;  // a cast of what is no int32 is undefined
    return fits && fabsf(value - reconstruct(*quantum, bound.step)) <= bound.tolerance;
}

// Q_eps of the search. The quotient is divided, not multiplied by an inverse; false where there is no such int32.
LAM_BOTH bool band_quantum(float value, float step, i32* quantum) {
    const float quotient = value / step;
    const bool fits = fabsf(quotient) < BAND_LIMIT;
    *quantum = fits ? static_cast<i32>(rintf(quotient)) : 0;
    return fits;
}

}  // namespace lam
