// Q_eps and the digest of every band in one pass: a thread takes a band, quanta are written only when asked for.
#include "lam/digest.h"
#include "lam/quantise.h"

namespace lam::banding {

constexpr u32 THREADS = 256;

struct Taken {
    u64 digest;
    bool refused;
};

__device__ __forceinline__ Taken taken(Taken so_far, float value, float step, i32* quantum) {
    const bool fits = band_quantum(value, step, quantum);
    return {digest_taken(so_far.digest, *quantum), so_far.refused || !fits};
}

__device__ __forceinline__ Taken take_four(Taken so_far, const float* values, float step, i32* quanta) {
    const float4 four = *reinterpret_cast<const float4*>(values);
    int4 quantum;
    so_far = taken(so_far, four.x, step, &quantum.x);
    so_far = taken(so_far, four.y, step, &quantum.y);
    so_far = taken(so_far, four.z, step, &quantum.z);
    so_far = taken(so_far, four.w, step, &quantum.w);
    if (quanta != nullptr) *reinterpret_cast<int4*>(quanta) = quantum;
    return so_far;
}

__device__ __forceinline__ Taken take_one(Taken so_far, const float* value, float step, i32* quanta) {
    i32 quantum;
    so_far = taken(so_far, *value, step, &quantum);
    if (quanta != nullptr) *quanta = quantum;
    return so_far;
}

}  // namespace lam::banding

// rows (N, D) float32, digests (N, bands of a row), quanta (N, D) or null; `bands` of the whole matrix, the last of a
// row may be shorter than `width`; `vector`: every band, and the last one too, is whole accesses of 16 bytes; *refused
// becomes 1 where a value has no quantum, and is left alone otherwise.
extern "C" __global__ void __launch_bounds__(lam::banding::THREADS)
lam_quantize_bands(const float* rows, lam::u32 dimension, lam::u32 bands, lam::u32 bands_of_row, lam::u32 width,
                   bool vector, float step, lam::u64* digests, lam::i32* quanta, lam::u32* refused) {
    using namespace lam;
    using namespace lam::banding;
    const u32 at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= bands) return;
    const u32 row = at / bands_of_row;
    const u32 band = at - row * bands_of_row;
    const u64 first = static_cast<u64>(row) * dimension + band * width;
    const u32 left = dimension - band * width;
    const u32 length = left < width ? left : width;
    Taken so_far = {digest_start(band), false};
    for (u32 d = 0; d < length; d += vector ? 4 : 1) {
        i32* kept = quanta == nullptr ? nullptr : quanta + first + d;
        so_far = vector ? take_four(so_far, rows + first + d, step, kept)
                              : take_one(so_far, rows + first + d, step, kept);
    }
    digests[at] = so_far.digest;
    if (so_far.refused) *refused = 1;
}
