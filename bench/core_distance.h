#ifndef RONDA_BENCH_CORE_DISTANCE_H_
#define RONDA_BENCH_CORE_DISTANCE_H_

namespace ronda::bench {

// The time in nanoseconds that a cache line takes from one of the process' first two CPUs to the other and back,
// halved, undisturbed by other processes; 0 on a single CPU. On virtual machines it changes by a factor of five within
// minutes, and every transfer between ranks with it: print it before and after, and compare only what was measured at
// the same distance.
double CoreDistanceNanoseconds();

}  // namespace ronda::bench

#endif  // RONDA_BENCH_CORE_DISTANCE_H_
