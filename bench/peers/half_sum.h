#ifndef RONDA_BENCH_PEERS_HALF_SUM_H_
#define RONDA_BENCH_PEERS_HALF_SUM_H_

#include <cstddef>
#include <cstdint>

// What users of MPI write to sum 16-bit floating-point numbers, as MPI has no type for them: eight at a time, widened
// and narrowed by F16C.

// Whether this processor has F16C.
bool CanAddHalves();

// output[i] += input[i], IEEE 754 binary16, summed in binary32. REQUIRES: CanAddHalves().
void AddHalves(const uint16_t* input, uint16_t* output, size_t count);

#endif  // RONDA_BENCH_PEERS_HALF_SUM_H_
