// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_MPI_MPI_SESSION_H_
#define RONDA_RUNTIME_MPI_MPI_SESSION_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/mpi/plugin.h"
#include "runtime/point_to_point/point_to_point.h"

namespace ronda {

// The MPI implementation whose launcher started a process. Each needs its own plugin.
enum class MpiFlavor { kOpenMpi, kMpich };

// Returns the plugin's file name: "libronda_mpi.so" or "libronda_mpi_mpich.so".
absl::string_view PluginName(MpiFlavor flavor);

// Loads the plugin for an MPI implementation from `path`, and never unloads it, because MPI libraries cannot be
// unloaded safely. If `path` is empty, searches the folder of the library or program that contains this code, then
// ../lib relative to that folder, then the loader's search path.
//
// Errors: NOT_FOUND that names the paths it tried and the remedy; FAILED_PRECONDITION if the plugin has the wrong
// version.
absl::StatusOr<const ronda_mpi_plugin*> LoadMpiPlugin(MpiFlavor flavor, const std::string& path);

// This process's use of MPI, through a plugin (plugin.h), from MPI_Init to MPI_Finalize. Either the session or the
// program itself calls MPI_Init.
//
// A process has one session at a time. The objects that Connect() returns keep the session alive. The destructor calls
// MPI_Finalize, unless the program itself initialized MPI or LeaveWithoutEnd() was called. MPI cannot be initialized
// again in the same process, so a program that needs a second job must keep the session, or initialize MPI itself.
//
// Thread-compatible. Different threads may use different connections at the same time, because the session serialises
// the calls to MPI.
class MpiSession : public std::enable_shared_from_this<MpiSession> {
 public:
  struct Options {
    MpiFlavor flavor = MpiFlavor::kOpenMpi;
    std::string plugin;  // as LoadMpiPlugin's `path`
  };

  // Errors: those of LoadMpiPlugin(); FAILED_PRECONDITION if MPI was initialized for a single thread; INTERNAL with
  // MPI's error text, or if MPI has been finalized.
  static absl::StatusOr<std::shared_ptr<MpiSession>> Start(const Options& options);

  // Returns the name of the library that Start would use, for example "Open MPI v4.1.4". Does not initialize MPI.
  // Errors: the errors of LoadMpiPlugin.
  static absl::StatusOr<std::string> Library(const Options& options);

  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  RankId rank() const { return world_.rank; }
  int size() const { return world_.size; }
  const std::string& library() const { return library_; }  // "Open MPI v4.1.4"

  // Returns rank 0's `text` on all ranks, and ignores that of other ranks. Every rank must call Broadcast(), which
  // blocks until all ranks have called it.
  absl::StatusOr<std::string> Broadcast(absl::string_view text);

  // Returns a connection for messages between `ranks`, which are ranks of the job in any order. On the connection, a
  // rank's number is its position in `ranks`. Messages of different connections do not mix. Exactly these ranks must
  // call Connect(), with the same `tag` below 32768. Blocks until all of them have called it.
  absl::StatusOr<std::unique_ptr<PointToPoint>> Connect(const std::vector<RankId>& ranks, int tag);

  // Stops the session from calling MPI. Must be called when the job has failed, because MPI_Finalize would wait for
  // dead ranks.
  void LeaveWithoutEnd() { has_left_.store(true, std::memory_order_relaxed); }

 private:
  class Messages;

  MpiSession(const ronda_mpi_plugin& plugin, const ronda_mpi_world& world);

  bool has_left() const { return has_left_.load(std::memory_order_relaxed); }

  // Calls `function`, which calls MPI and returns 0 or an error code. Only one thread at a time may call the plugin, so
  // the lock is held even while the call blocks.
  // Errors: INTERNAL with MPI's error text; CANCELLED after LeaveWithoutEnd().
  absl::Status Call(absl::string_view what, absl::FunctionRef<int()> function) const ABSL_LOCKS_EXCLUDED(mu_);

  const ronda_mpi_plugin& plugin_;
  const ronda_mpi_world world_;
  const std::string library_;
  std::atomic<bool> has_left_{false};
  mutable Mutex mu_;  // held during each call to MPI
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MPI_MPI_SESSION_H_
