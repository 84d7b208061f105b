// What the kernels of this provider cost: the table from which the kernel of a step, its tiles and
// what it packs are chosen.
//
// Measured on one core of an Intel Xeon (model 207) with AVX-512. Narrower vectors use the same
// rates until somebody measures theirs: all kernels get slower, so choices between them move
// little. Choices decide bits, so the table is part of the build and of the program fingerprint,
// and nothing of it is measured while a server runs: two machines with the same instruction set
// choose alike.

#ifndef TENON_BACKENDS_CPU_CALIBRATION_H_
#define TENON_BACKENDS_CPU_CALIBRATION_H_

namespace tenon::cpu {

// Raised when a rate, a kernel or a rule of choice changes.
inline constexpr int kCalibrationVersion = 5;

// Times in nanoseconds, rates in bytes per nanosecond.
struct Calibration {
  struct Copy {  // of bytes that are read and written once each
    double plain, transpose;
    double uneven;   // short loops of no power of two
    double element;  // any copy, for choosing it
  } copy;
  struct Memory {  // between it and the caches, of lines that are moved again or used in part
    double read_again, written_again;
  } memory;
  struct Product {        // register-blocked (gett)
    double multiply_add;  // of one vector
    double finish;        // of a vector of results
    double partial;       // whole vectors that take as long as a partial one, which is alone
    double piece;         // of a vector that is read or written, for each one after the first
    double tile, item;    // beginning one
  } product;
  struct Gate {  // permuted in registers
    double multiply_add, permutation, row, run;
  } gate;
  struct Dot {
    double load, complex_load;  // of a vector and what is done with it
    double block, term;         // beginning them
  } dot;
  struct Nest {  // vectorised loop nests
    double step, block, term;
    double bytes;      // of work where the innermost block is one loop
    double tabulated;  // per element where it needs tables
    double row_sum;    // per element of sums along rows
  } nest;
  double library_product;  // a vector's multiply-adds in a large product of the library
  double interpreted;      // an iteration of the interpreter
};

const Calibration& MachineCalibration();

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_CALIBRATION_H_
