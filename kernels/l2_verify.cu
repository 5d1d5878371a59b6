// l2 distances in float64, of each row to one query. Eight threads share a row, each holds four of the 32 sums: a step
// of 32 elements is one access of 16 bytes a thread, four rows a warp. The query stays in the L1 cache.
#include "lam/distance.h"

namespace lam::verifying {

constexpr u32 THREADS = 256;
constexpr u32 OF_THREAD = 4;                     // sums
constexpr u32 THREADS_OF_ROW = SUMS / OF_THREAD;
constexpr u32 ALL = 0xFFFFFFFFu;

__device__ __forceinline__ void add_step(const float* row, const float* query, bool vector, u32 left, double* sums) {
    if (vector && left >= OF_THREAD) {
        const float4 a = *reinterpret_cast<const float4*>(row);
        const float4 b = *reinterpret_cast<const float4*>(query);
        sums[0] = added(sums[0], a.x, b.x), sums[1] = added(sums[1], a.y, b.y);
        sums[2] = added(sums[2], a.z, b.z), sums[3] = added(sums[3], a.w, b.w);
        return;
    }
    for (u32 e = 0; e < OF_THREAD; ++e)
        if (e < left) sums[e] = added(sums[e], row[e], query[e]);
}

// Lane i takes lane i + 16, i + 8, i + 4 from another thread, i + 2 and i + 1 from its own.
__device__ __forceinline__ double folded(double* sums) {
#pragma unroll
    for (u32 distance = THREADS_OF_ROW / 2; distance > 0; distance /= 2)
        for (u32 e = 0; e < OF_THREAD; ++e) sums[e] += __shfl_xor_sync(ALL, sums[e], distance);
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

}  // namespace lam::verifying

// rows (count, dimension) and query (dimension,) float32, distances (count,) float64. `vector`: every row and the query
// begin at a multiple of 16 bytes.
extern "C" __global__ void __launch_bounds__(lam::verifying::THREADS)
lam_l2_verify(const float* rows, const float* query, lam::u64 count, lam::u32 dimension, bool vector,
              double* distances) {
    using namespace lam;
    using namespace lam::verifying;
    const u64 row = static_cast<u64>(blockIdx.x) * (THREADS / THREADS_OF_ROW) + threadIdx.x / THREADS_OF_ROW;
    const u32 first = threadIdx.x % THREADS_OF_ROW * OF_THREAD;
    double sums[OF_THREAD] = {0.0, 0.0, 0.0, 0.0};
    if (row < count)
        for (u32 d = first; d < dimension; d += SUMS)
            add_step(rows + row * dimension + d, query + d, vector, dimension - d, sums);
    const double square = folded(sums);
    if (row < count && first == 0) distances[row] = sqrt(square);
}
