// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_VERSION_H_
#define RONDA_RUNTIME_BASE_VERSION_H_

namespace ronda {

// All ranks of a job must run the same version, because any version may change the protocol.
inline constexpr char kVersion[] = "0.2.0";

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_VERSION_H_
