// The digest of a band of quanta: mix is the finaliser of splitmix64, all modulo 2^64.
#pragma once
#include "base.h"

namespace lam {

constexpr u64 DIGEST_SEED = 0x9E3779B97F4A7C15ull;

LAM_BOTH u64 mixed(u64 state) {
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9ull;
    state = (state ^ (state >> 27)) * 0x94D049BB133111EBull;
    return state ^ (state >> 31);
}

LAM_BOTH u64 digest_start(u32 band) {
    return mixed(DIGEST_SEED ^ band);
}

LAM_BOTH u64 digest_taken(u64 digest, i32 quantum) {
    return mixed(digest ^ static_cast<u32>(quantum));
}

}  // namespace lam
