// Jobs of N ranks inside one test: every rank is a process that an MPI's own launcher starts.
#ifndef RONDA_TESTS_TESTING_MPIRUN_H_
#define RONDA_TESTS_TESTING_MPIRUN_H_

#include <string>
#include <vector>

#include "runtime/mpi/mpi_session.h"
#include "tests/testing/process_world.h"

namespace ronda::testing {

// Debian's name for this MPI's launcher, which does not depend on what the administrator prefers.
std::string PathOfMpirun(MpiFlavor flavor);

// Whether it is installed.
bool HasMpirun(MpiFlavor flavor);

// Runs argv on `size` ranks; what they write is interleaved in the output.
// REQUIRES: HasMpirun(flavor).
ProcessResult RunUnderMpirun(MpiFlavor flavor, int size, const std::vector<std::string>& argv);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_MPIRUN_H_
