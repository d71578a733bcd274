// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_HARNESS_MACHINE_H_
#define RONDA_BENCH_HARNESS_MACHINE_H_

#include <string>
#include <vector>

namespace ronda::bench {

// The machine that a measurement runs on.
struct Machine {
  std::string cpu;        // "AMD EPYC 9B14"; "unknown" if the system does not say
  int cores = 0;          // that the system grants, even if a launcher has bound this process to fewer
  double memory_gib = 0;  // installed
  std::string kernel;     // "Linux 6.1.0"
};

// Returns the description of this machine.
Machine DescribeMachine();

// Returns how many cores were busy, on average, between two snapshots of /proc/stat. Time that the hypervisor gave to
// other virtual machines counts as busy. Returns 0 if the snapshots are equal or invalid.
double BusyCores(const std::string& before, const std::string& after);

// Returns how many cores are busy with other programs. The measurement takes a tenth of a second, during which this
// process sleeps.
double BusyCoresNow();

// Returns the time in seconds on a clock that all processes of the machine share.
double NowSeconds();

// Returns the time in UTC, "2026-11-21T19:30:00Z".
std::string NowInUtc();

// Which cores a rank's threads may run on.
enum class Binding {
  kLauncher,  // as the launcher has set them: rondarun does not bind, Open MPI gives two ranks one core each
  kNone,      // all
  kCore       // one core per rank: the rank modulo the number of cores
};

// Returns the names of the values of Binding in enumeration order: "launcher", "none" and "core".
const std::vector<std::string>& BindingNames();

// Returns the cores that the system grants this process, regardless of the calling thread's binding. Some containers
// grant fewer cores than the machine has.
std::vector<int> GrantedCores();

// Binds the calling thread, and all threads that it starts afterwards.
void Bind(Binding binding, int rank);

// Returns how many nanoseconds a cache line takes to travel between the first two cores that the system grants. This is
// half the round-trip time in the fastest batch, which no other process has disturbed. Returns 0 if the system grants
// only one core, or does not let this process choose the cores of its threads. On virtual
// machines, this time changes by a factor of five within minutes, and so does every transfer between ranks. So print it
// before and after a benchmark, and compare only measurements for which it is the same.
double CoreDistanceNanoseconds();

}  // namespace ronda::bench

#endif  // RONDA_BENCH_HARNESS_MACHINE_H_
