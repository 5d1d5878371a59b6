// The l2 distance in float64. Element d belongs to lane d mod 32; each lane adds its squares in ascending d; then the
// lanes are folded in halves: lane i takes lane i + 16, i + 8, ... i + 1. The order is part of the definition.
#pragma once
#include "base.h"

namespace lam {

constexpr u32 SUMS = 32;

LAM_BOTH double added(double sum, float a, float b) {
    const double difference = static_cast<double>(a) - static_cast<double>(b);
    return sum + difference * difference;
}

}  // namespace lam
