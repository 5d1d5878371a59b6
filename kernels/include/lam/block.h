// A block of the fixed layout: a width byte and its words. Width w <= 24: the w lowest bit planes of the zigzag
// quanta. Width 255: a value missed the bound, and the 32 words are the bits of the values.
#pragma once
#include "planes.h"
#include "quantise.h"

namespace lam {

constexpr u32 ESCAPED = 255;
constexpr u32 MOST_WIDTH = 24;
constexpr u32 MISSED = 0x80000000u;  // above the bits of any zigzag quantum

LAM_BOTH bool is_width(u32 width) {
    return width <= MOST_WIDTH || width == ESCAPED;
}

LAM_BOTH u32 words_of(u32 width) {
    return width == ESCAPED ? BLOCK : width;
}

// Four values to four numbers; what is returned, joined by "or" over the block's lanes, gives its width.
LAM_BOTH u32 quantise_lane(const float values[OF_LANE], Bound bound, u32 numbers[OF_LANE]) {
    u32 used = 0;
    for (u32 e = 0; e < OF_LANE; ++e) {
        i32 quantum;
        if (!quantise(values[e], bound, &quantum)) used |= MISSED;
        numbers[e] = zigzag(quantum);
        used |= numbers[e];
    }
    return used;
}

LAM_BOTH u32 width_of(u32 used) {
    return used & MISSED ? ESCAPED : bit_length(used);
}

LAM_BOTH float value_of(u32 number, u32 width, float step) {
    return width == ESCAPED ? float_of(number) : reconstruct(unzigzag(number), step);
}

}  // namespace lam
