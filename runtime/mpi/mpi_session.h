#ifndef RONDA_RUNTIME_MPI_MPI_SESSION_H_
#define RONDA_RUNTIME_MPI_MPI_SESSION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"
#include "runtime/collectives/messages/point_to_point.h"
#include "runtime/mpi/plugin_library.h"

namespace ronda {

// This process' use of MPI, through a plugin that is loaded for it (plugin.h): from MPI_Init, or what the program has
// done of it already, to MPI_Finalize.
//
// Thread-compatible; what different threads have connected they may use at the same time, as calls to MPI are made one
// by one. One at a time in a process; kept by what is made from it. Ends MPI when it is destroyed, unless
// the program had begun it or LeaveWithoutEnd was called. MPI does not begin a second time in a process: who needs that
// keeps the session, or initializes MPI itself.
class MpiSession {
 public:
  struct Options {
    MpiFlavor flavor = MpiFlavor::kOpenMpi;
    std::string plugin;  // a path, if it is not to be looked for beside libronda.so and as the loader does
  };

  // Errors: NOT_FOUND that names the places looked at and what to install or set; FAILED_PRECONDITION if the plugin is
  // another version's, or MPI was initialized for one thread only; INTERNAL with MPI's own text, or if it has ended.
  static absl::StatusOr<std::shared_ptr<MpiSession>> Start(const Options& options);

  // The library that Start would use, without beginning MPI: "Open MPI v4.1.4".
  // Errors: NOT_FOUND and FAILED_PRECONDITION as Start.
  static absl::StatusOr<std::string> Library(const Options& options);

  virtual ~MpiSession() = default;

  virtual RankId rank() const = 0;
  virtual int size() const = 0;
  // "Open MPI v4.1.4"
  virtual const std::string& library() const = 0;

  // Gives all ranks rank 0's text; `text` is not looked at elsewhere. Every rank calls it; blocks until all have.
  virtual absl::StatusOr<std::string> Broadcast(absl::string_view text) = 0;

  // Messages between `ranks` (of the job, in any order), numbered by their place there, apart from those of any other
  // Connect. Its members, and only they, call it with the same `tag`, below 32768, and block until all have.
  virtual absl::StatusOr<std::unique_ptr<PointToPoint>> Connect(const std::vector<RankId>& ranks, int tag) = 0;

  // The job has failed: from now on no more calls to MPI, as its end would wait for ranks that are gone.
  virtual void LeaveWithoutEnd() = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MPI_MPI_SESSION_H_
