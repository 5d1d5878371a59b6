// The operations on a CPU, over the headers that the kernels are made of. Tests load this with ctypes and compare.
#include "body.h"
#include "lam/digest.h"
#include "lam/distance.h"

using namespace lam;

extern "C" {

// Bytes of the body; room for 129 a block and 3 is needed.
u64 lam_encode(const float* rows, u64 count, u32 dimension, float step, float inverse, float tolerance, u8* body) {
    return encode_body(rows, {count, dimension}, {step, inverse, tolerance}, body);
}

int lam_decode(const u8* body, u64 size, u64 count, u32 dimension, float step, float* rows) {
    return static_cast<int>(decode_body(body, size, {count, dimension}, step, rows));
}

// Whether every value has a quantum; `quanta` (count, dimension), `digests` (count, bands of a row).
int lam_quantize_bands(const float* rows, u64 count, u32 dimension, u32 width, float step, u64* digests, i32* quanta) {
    bool all = true;
    for (u64 row = 0; row < count; ++row)
        for (u32 band = 0; band * u64{width} < dimension; ++band, ++digests) {
            *digests = digest_start(band);
            for (u32 d = band * width; d < dimension && d - band * width < width; ++d) {
                i32* quantum = quanta + row * dimension + d;
                all = band_quantum(rows[row * dimension + d], step, quantum) && all;
                *digests = digest_taken(*digests, *quantum);
            }
        }
    return all;
}

void lam_l2_distances(const float* rows, const float* query, u64 count, u32 dimension, double* distances) {
    for (u64 row = 0; row < count; ++row) {
        double sums[SUMS] = {};
        for (u32 d = 0; d < dimension; ++d) sums[d % SUMS] = added(sums[d % SUMS], rows[row * dimension + d], query[d]);
        for (u32 half = SUMS / 2; half > 0; half /= 2)
            for (u32 lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
        distances[row] = sqrt(sums[0]);
    }
}

}  // extern "C"
