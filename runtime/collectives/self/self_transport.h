#ifndef RONDA_RUNTIME_COLLECTIVES_SELF_SELF_TRANSPORT_H_
#define RONDA_RUNTIME_COLLECTIVES_SELF_SELF_TRANSPORT_H_

#include "absl/strings/string_view.h"
#include "runtime/collectives/transport.h"

namespace ronda {

// The transport of a job of one rank; `hostname` appears in its failure's text.
Transport CreateSelfTransport(absl::string_view hostname);

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SELF_SELF_TRANSPORT_H_
