#ifndef RONDA_BENCH_BINDING_H_
#define RONDA_BENCH_BINDING_H_

#include <string>
#include <vector>

namespace ronda::bench {

// On which cores a rank's threads may run.
enum class Binding {
  kLauncher,  // what the launcher has chosen: rondarun lets them be, Open MPI gives two ranks a core each
  kNone,      // on all
  kCore       // on one each, the rank's number modulo the number of cores
};

// "launcher", "none", "core", in the order of the enumeration.
const std::vector<std::string>& BindingNames();

// The cores on which the system lets this process run, wherever the calling thread is bound to: fewer than there are in
// some containers.
std::vector<int> GrantedCores();

// Binds the calling thread, and with it the threads that it will start.
void Bind(Binding binding, int rank);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_BINDING_H_
