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

// The MPI under which a process was started. Each MPI needs its own plugin.
enum class MpiFlavor { kOpenMpi, kMpich };

// The file name of the plugin: "libronda_mpi.so", "libronda_mpi_mpich.so".
absl::string_view PluginName(MpiFlavor flavor);

// Loads the plugin for an MPI. The plugin stays loaded, because MPI libraries do not survive being unloaded. The plugin
// is `path`. If `path` is empty, it is the first plugin found in the folder of the library or program that contains
// this code, in the ../lib of that folder, or in the loader's search path.
//
// Errors: NOT_FOUND that names the places searched and the remedy; FAILED_PRECONDITION if the plugin has another
// version.
absl::StatusOr<const ronda_mpi_plugin*> LoadMpiPlugin(MpiFlavor flavor, const std::string& path);

// This process's use of MPI, through a plugin that it loads (plugin.h). It lasts from MPI_Init, called here or by the
// program, to MPI_Finalize.
//
// A process has one session at a time; the objects that Connect returns keep it alive. The destructor ends MPI unless
// the program initialized it or LeaveWithoutEnd was called. MPI cannot begin again in the same process. So a program
// that needs a second job keeps the session or initializes MPI itself.
//
// Thread-compatible. Different threads may use different connections at the same time, since the session makes the
// calls to MPI one by one.
class MpiSession : public std::enable_shared_from_this<MpiSession> {
 public:
  struct Options {
    MpiFlavor flavor = MpiFlavor::kOpenMpi;
    std::string plugin;  // as LoadMpiPlugin's `path`
  };

  // Errors: the errors of LoadMpiPlugin; FAILED_PRECONDITION if MPI was initialized for one thread only; INTERNAL with
  // MPI's own text, or if MPI has ended.
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

  // Returns rank 0's text on all ranks; other ranks' `text` is ignored. Every rank calls it; blocks until all have.
  absl::StatusOr<std::string> Broadcast(absl::string_view text);

  // Returns a connection for messages between `ranks` (of the job, in any order), which are numbered by their position
  // in `ranks`. The messages are separate from the messages of any other Connect. Exactly the members of `ranks` call
  // this, with the same `tag` below 32768. Blocks until all of them have called it.
  absl::StatusOr<std::unique_ptr<PointToPoint>> Connect(const std::vector<RankId>& ranks, int tag);

  // Makes no more calls to MPI. Called when the job has failed, because MPI_Finalize would wait for ranks that are
  // gone.
  void LeaveWithoutEnd() { has_left_.store(true, std::memory_order_relaxed); }

 private:
  class Messages;

  MpiSession(const ronda_mpi_plugin& plugin, const ronda_mpi_world& world);

  bool has_left() const { return has_left_.load(std::memory_order_relaxed); }

  // Makes a call to MPI that returns 0 or an error code. Only one thread at a time may call the plugin, so the lock is
  // held even while a call blocks.
  // Errors: INTERNAL with MPI's text; CANCELLED after LeaveWithoutEnd.
  absl::Status Call(absl::string_view what, absl::FunctionRef<int()> function) const ABSL_LOCKS_EXCLUDED(mu_);

  const ronda_mpi_plugin& plugin_;
  const ronda_mpi_world world_;
  const std::string library_;
  std::atomic<bool> has_left_{false};
  mutable Mutex mu_;  // held during each call to MPI
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MPI_MPI_SESSION_H_
