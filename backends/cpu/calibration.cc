#include "backends/cpu/calibration.h"

namespace tenon::cpu {
namespace {

constexpr Calibration kAvx512 = {
    .copy = {.plain = 20, .transpose = 14, .uneven = 7, .element = 1},
    .memory = {.read_again = 10, .written_again = 5},
    .product =
        {.multiply_add = 0.22, .finish = 2.0, .partial = 1.4, .piece = 1.3, .tile = 80, .item = 12},
    .gate = {.multiply_add = 0.2, .permutation = 0.4, .row = 1.1, .run = 8},
    .dot = {.load = 0.35, .complex_load = 0.9, .block = 20, .term = 15},
    .nest = {.step = 30, .block = 12, .term = 8, .bytes = 12, .tabulated = 1.2, .row_sum = 0.5},
    .library_product = 0.25 * 16 / 9,
    .interpreted = 5,
};

}  // namespace

const Calibration& MachineCalibration() { return kAvx512; }

}  // namespace tenon::cpu
