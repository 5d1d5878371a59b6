// The kernels themselves, run on a CPU by cuda_on_host.h. Tests load this with ctypes and launch as ops/cuda.py would.
#include "cuda_on_host.h"
// clang-format off
#include "codec_decode.cu"
#include "codec_encode.cu"
#include "l2_verify.cu"
#include "quantize_bands.cu"
// clang-format on

namespace {
constexpr unsigned AT_ONCE = 4;  // thread blocks

template <auto kernel>
struct OnHost;

template <typename... Arguments, void (*kernel)(Arguments...)>
struct OnHost<kernel> {
    static void run(unsigned grid, unsigned threads, unsigned seed, Arguments... arguments) {
        on_host::launch(grid, threads, AT_ONCE, seed, [=] { kernel(arguments...); });
    }
};

template <auto kernel>
void* const entry = reinterpret_cast<void*>(&OnHost<kernel>::run);
}  // namespace

// Each is the address of a function that takes grid, threads of a block, seed, and the arguments of the kernel.
extern "C" {
void* on_host_codec_encode = entry<lam_codec_encode>;
void* on_host_codec_decode = entry<lam_codec_decode>;
void* on_host_l2_verify = entry<lam_l2_verify>;
void* on_host_quantize_bands = entry<lam_quantize_bands>;
}
