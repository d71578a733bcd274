// SPDX-License-Identifier: Apache-2.0

// A plugin of a later version. Ronda knows only the first field of the plugin's table.
#include "runtime/net/hosts_plugin.h"

extern "C" __attribute__((visibility("default"))) const ronda_hosts_plugin* ronda_hosts_plugin_table(void) {
  static const ronda_hosts_plugin table = {.version = RONDA_HOSTS_PLUGIN_VERSION + 1};
  return &table;
}
