// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_MONITOR_SERVE_PAGE_H_
#define RONDA_PROGRAMS_MONITOR_SERVE_PAGE_H_

#include "programs/monitor/serve/http.h"

namespace ronda {

// Returns page.html, the page that shows the jobs. The page's policy allows only its own style and script.
Page MakeJobsPage();

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_SERVE_PAGE_H_
