// Enough of CUDA to run the text of the kernels on a CPU: g++ -include cuda_on_host.h. A thread block is an operating
// system thread, so that blocks meet each other as on a device; its threads are fibres of it, which change places at
// warp and block barriers, in an order that changes each time: who relies on an order without a barrier is found out.
// No statement about speed, occupancy or a device's memory model follows from it.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#define LAM_ON_HOST
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __shared__ static thread_local  // one for each thread block, not initialised between them, as on a device

struct dim3 {
    unsigned x = 1;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline thread_local dim3 threadIdx, blockIdx;
inline dim3 gridDim, blockDim;

namespace on_host {

constexpr unsigned WARP = 32;
constexpr size_t STACK = 64 * 1024;

inline unsigned next(unsigned seed) { return seed * 1664525 + 1013904223; }

// The threads of one block. Each runs until it waits; a round in which nobody could go on is a dead end.
class Block {
  public:
    Block(unsigned threads, unsigned seed) : fibres_(threads), warps_(threads / WARP), seed_(seed) {
        if ((threads & (threads - 1)) != 0) fail("the threads of a block must be a power of two here");
        for (Fibre& fibre : fibres_) fibre.stack.resize(STACK);
    }

    void run(unsigned index, const std::function<void()>& kernel) {
        current = this;
        kernel_ = &kernel;
        blockIdx.x = index;
        for (Fibre& fibre : fibres_) start(fibre);
        for (size_t left = fibres_.size(); left > 0;) {
            moved_ = false;
            seed_ = next(seed_);
            const unsigned stride = (seed_ >> 8) | 1, first = seed_ >> 16;  // odd: meets each of 2^n fibres once
            for (unsigned turn = 0; turn < fibres_.size(); ++turn) {
                const unsigned i = (first + turn * stride) % fibres_.size();
                if (fibres_[i].done) continue;
                running_ = i;
                threadIdx.x = i;
                swapcontext(&main_, &fibres_[i].context);
                left -= fibres_[i].done;
            }
            if (!moved_) fail("threads wait for one another: not all of a warp or block came to a barrier");
        }
    }

    // Waits until `count` threads have come to this barrier.
    struct Barrier {
        unsigned waiting = 0, generation = 0;
    };
    void wait(Barrier& barrier, unsigned count) {
        moved_ = true;
        const unsigned generation = barrier.generation;
        if (++barrier.waiting == count) {
            barrier.waiting = 0;
            ++barrier.generation;
            return;
        }
        while (barrier.generation == generation) yield();
        moved_ = true;
    }
    void wait_block() { wait(all_, fibres_.size()); }

    // What each lane of the warp gives, seen by all of them.
    const unsigned* exchange(unsigned mask, unsigned value) {
        if (mask != 0xFFFFFFFFu) fail("only whole warps may exchange values here");
        Warp& warp = warps_[running_ / WARP];
        wait(warp.barrier, WARP);  // all have read what was exchanged before
        warp.values[running_ % WARP] = value;
        wait(warp.barrier, WARP);
        return warp.values;
    }

    static thread_local Block* current;

  private:
    struct Fibre {
        ucontext_t context;
        std::vector<char> stack;
        bool done = false;
    };
    struct Warp {
        Barrier barrier;
        unsigned values[WARP];
    };

    void start(Fibre& fibre) {
        fibre.done = false;
        getcontext(&fibre.context);
        fibre.context.uc_stack.ss_sp = fibre.stack.data();
        fibre.context.uc_stack.ss_size = STACK;
        fibre.context.uc_link = &main_;
        makecontext(&fibre.context, &Block::enter, 0);
    }
    static void enter() {
        Block* block = current;
        (*block->kernel_)();
        block->fibres_[block->running_].done = true;
        block->moved_ = true;
    }
    void yield() {
        const unsigned own = running_;
        swapcontext(&fibres_[own].context, &main_);
    }
    [[noreturn]] static void fail(const char* why) {
        std::fprintf(stderr, "cuda_on_host: %s\n", why);
        std::abort();
    }

    std::vector<Fibre> fibres_;
    std::vector<Warp> warps_;
    Barrier all_;
    ucontext_t main_;
    const std::function<void()>* kernel_ = nullptr;
    unsigned seed_;
    unsigned running_ = 0;
    bool moved_ = false;
};
inline thread_local Block* Block::current = nullptr;

// Runs a grid, `at_once` blocks at a time, begun in the order of a shuffle by `seed`: a device promises no order.
inline void launch(unsigned grid, unsigned threads, unsigned at_once, unsigned seed,
                   const std::function<void()>& kernel) {
    gridDim.x = grid;
    blockDim.x = threads;
    std::vector<unsigned> order(grid);
    for (unsigned i = 0; i < grid; ++i) order[i] = i;
    for (unsigned i = grid; i > 1; --i) {
        seed = next(seed);
        std::swap(order[i - 1], order[(seed >> 8) % i]);
    }
    std::atomic<unsigned> begun{0};
    const auto work = [&](unsigned own_seed) {
        Block block(threads, own_seed);
        for (unsigned i = begun++; i < grid; i = begun++) block.run(order[i], kernel);
    };
    std::vector<std::thread> team;
    for (unsigned i = 0; i < at_once; ++i) team.emplace_back(work, seed = next(seed));
    for (std::thread& one : team) one.join();
}

}  // namespace on_host

inline void __syncthreads() { on_host::Block::current->wait_block(); }

inline unsigned __shfl_xor_sync(unsigned mask, unsigned value, unsigned distance) {
    return on_host::Block::current->exchange(mask, value)[(threadIdx.x % 32) ^ distance];
}
inline double __shfl_xor_sync(unsigned mask, double value, unsigned distance) {
    unsigned halves[2];
    __builtin_memcpy(halves, &value, sizeof value);
    for (unsigned& half : halves) half = __shfl_xor_sync(mask, half, distance);
    __builtin_memcpy(&value, halves, sizeof value);
    return value;
}
inline unsigned __shfl_up_sync(unsigned mask, unsigned value, unsigned distance) {
    const unsigned lane = threadIdx.x % 32;
    return on_host::Block::current->exchange(mask, value)[lane < distance ? lane : lane - distance];
}
inline unsigned __shfl_sync(unsigned mask, unsigned value, unsigned lane) {
    return on_host::Block::current->exchange(mask, value)[lane];
}
inline unsigned __ballot_sync(unsigned mask, bool holds) {
    const unsigned* lanes = on_host::Block::current->exchange(mask, holds);
    unsigned votes = 0;
    for (unsigned lane = 0; lane < 32; ++lane) votes |= lanes[lane] << lane;
    return votes;
}
inline bool __any_sync(unsigned mask, bool holds) { return __ballot_sync(mask, holds) != 0; }
inline unsigned __reduce_add_sync(unsigned mask, unsigned value) {
    const unsigned* lanes = on_host::Block::current->exchange(mask, value);
    unsigned sum = 0;
    for (unsigned lane = 0; lane < 32; ++lane) sum += lanes[lane];
    return sum;
}
inline int __ffs(unsigned bits) { return __builtin_ffs(static_cast<int>(bits)); }
inline unsigned atomicAdd(unsigned* at, unsigned value) { return __atomic_fetch_add(at, value, __ATOMIC_RELAXED); }
inline unsigned atomicOr(unsigned* at, unsigned value) { return __atomic_fetch_or(at, value, __ATOMIC_RELAXED); }

namespace lam {
inline unsigned peek(const unsigned* state) {
    const unsigned value = __atomic_load_n(state, __ATOMIC_RELAXED);
    if (value == 0) std::this_thread::yield();
    return value;
}
inline void post(unsigned* state, unsigned value) { __atomic_store_n(state, value, __ATOMIC_RELAXED); }
}  // namespace lam
