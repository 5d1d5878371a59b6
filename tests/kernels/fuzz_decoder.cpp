// Mutated and truncated bodies through the host decoder; built with sanitizers, which end the process on a report.
// Arguments: how many, a seed, and files of: u32 rows, u32 dimension, body.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <vector>

#include "body.h"

using namespace lam;

struct Sample {
    u32 rows, dimension;
    std::vector<u8> body;
};

static Sample read_sample(const char* path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    Sample sample;
    memcpy(&sample.rows, bytes.data(), 4);
    memcpy(&sample.dimension, bytes.data() + 4, 4);
    sample.body.assign(bytes.begin() + 8, bytes.end());
    return sample;
}

static void mutate(Sample& sample, std::mt19937& random) {
    const auto below = [&](size_t limit) { return static_cast<size_t>(random()) % limit; };
    for (size_t changes = below(4); changes > 0 && !sample.body.empty(); --changes)
        sample.body[below(sample.body.size())] = static_cast<u8>(random());
    if (below(4) == 0) sample.body.resize(below(sample.body.size() + 1));
    if (below(8) == 0) sample.body.resize(sample.body.size() + below(300), static_cast<u8>(random()));
    if (below(8) == 0) sample.rows = static_cast<u32>(below(40));
    if (below(8) == 0) sample.dimension = static_cast<u32>(below(500));
}

int main(int count, char** arguments) {
    if (count < 4) return 2;
    std::vector<Sample> samples;
    for (int i = 3; i < count; ++i) samples.push_back(read_sample(arguments[i]));
    std::mt19937 random(static_cast<unsigned>(std::atoi(arguments[2])));
    size_t outcomes[4] = {};
    for (int left = std::atoi(arguments[1]); left > 0; --left) {
        Sample sample = samples[random() % samples.size()];
        mutate(sample, random);
        // Exactly as large as they are: one byte further is a report.
        const std::unique_ptr<u8[]> body(new u8[sample.body.size()]);
        if (!sample.body.empty()) memcpy(body.get(), sample.body.data(), sample.body.size());
        const size_t values = size_t{sample.rows} * sample.dimension;
        const std::unique_ptr<float[]> rows(new float[values]);
        const Matrix matrix{sample.rows, sample.dimension};
        const Fault fault = decode_body(body.get(), sample.body.size(), matrix, 0.005f, rows.get());
        ++outcomes[static_cast<int>(fault)];
    }
    std::printf("%zu %zu %zu %zu\n", outcomes[0], outcomes[1], outcomes[2], outcomes[3]);
    return 0;
}
