// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_RUNTIME_CUDA_PLUGIN_UNDER_TEST_H_
#define RONDA_TESTS_RUNTIME_CUDA_PLUGIN_UNDER_TEST_H_

#include <string>

namespace ronda::testing {

// Returns the path of the plugin that plugin_test.cc tests. It is the installed plugin (installed_plugin.cc), or uses
// the stand-ins for CUDA's libraries (stand_in_plugin.cc).
std::string PluginUnderTest();

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_CUDA_PLUGIN_UNDER_TEST_H_
